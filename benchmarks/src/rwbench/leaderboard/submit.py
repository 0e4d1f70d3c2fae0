"""The way to a submission: predictions made elsewhere become a run, and a finished run becomes a folder of data."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ruleworld_data.io import part_of, whole_file, write_whole

from ..run.folder import SPEC_FILE, exclusive, find_specs
from ..score.results import read_results, write_results
from ..score.samples import SAMPLES_FILE, read_samples
from ..spec import RunSpec, canonical_json
from .board import REPRODUCED, read_marks
from .copies import content_of, content_sha256
from .files import FOLDER_NAME, METADATA, RESULTS, SAMPLES, read_folder, submission_folders
from .judge import Judge, board_spec
from .metadata import Metadata
from .records import Record, pack_samples, read_prediction_file, read_records
from .validate import fingerprints, read_claimed, validate


def import_predictions(
    path: Path, label: str, representation: str, pool_size: int, out: Path, judge: Judge, **setting: Any
) -> Path:
    """Score predictions, write them as a run folder and return it.

    Parameters
    ----------
    path : Path
        JSON Lines with ``id`` and any of ``output``, ``answers``, ``retrieved``, ``usage``, ``seconds``; or parquet
        with ``id`` and ``output``.
    label : str
        Name of the method in reports.
    representation, pool_size, **setting
        What the method was given, as in `rwbench.leaderboard.judge.board_spec`.
    out : Path
        Folder of run folders.
    judge : Judge

    Raises
    ------
    FileNotFoundError, ValueError
        If the file or a row of it cannot be used; the message names the line.
    """
    records = read_prediction_file(path)
    method = {"name": "imported", "label": label, "content": content_sha256(records.values())}
    spec = board_spec(method, representation, pool_size, **setting)
    judge.check_spec(spec.to_dict())
    samples = judge.samples(spec, records, str(path))
    results = judge.results(spec, samples, {"key": "imported", "label": label})
    results["timing"]["finished"] = datetime.now(UTC).isoformat(timespec="seconds")
    folder = out / spec.run_id
    folder.mkdir(parents=True, exist_ok=True)
    with exclusive(folder):
        write_whole(folder / SPEC_FILE, json_bytes(spec.to_dict()))
        lines = "".join(canonical_json(sample) + "\n" for sample in samples)
        write_whole(folder / SAMPLES_FILE, lines.encode())
        write_results(folder, results)
    return folder


def submit(run: Path, metadata: Metadata, root: Path, judge: Judge, slug: str | None = None) -> Path:
    """Write the submission of a run and return its folder, after the checks that a pull request gets.

    Parameters
    ----------
    run, root : Path
        Folder of one finished run, and of submissions; the latter is made if missing.
    metadata : Metadata
    judge : Judge
    slug : str, optional
        End of the folder's name; by default made of the method's name and the setting.

    Raises
    ------
    FileNotFoundError
        If the run is not there or not finished.
    ValueError
        If questions failed, the folder is taken, or the checks refuse it (`Refused`).
    """
    specs = find_specs(run)
    results = read_results(run)
    if results is None or len(specs) != 1:
        raise FileNotFoundError(
            f"{run} is no finished run; give one run folder, or finish it: rwbench resume {run}"
        )
    spec = specs[0][0]
    samples = read_samples(run / SAMPLES_FILE)
    failed = [sample["id"] for sample in samples if sample["error"] is not None]
    if failed:
        raise ValueError(
            f"{len(failed)} questions of {run} failed (first: {failed[0]}); a submission has an answer to every "
            f"question: rwbench resume {run}"
        )
    setting = f"{spec.representation} {spec.pool_size} {spec.scale} {spec.split}"
    slug = slug or slug_of(f"{metadata.name} {setting}")
    name = f"{metadata.date}_{slug}"
    if not FOLDER_NAME.fullmatch(name):
        raise ValueError(f"a submission's short name is made of a-z, 0-9, dot and hyphen, got {slug!r}")
    judge.check_spec(spec.to_dict())
    body = pack_samples(samples)
    ours = judge.results(spec, judge.samples(spec, read_records(body)), results["method"])
    ours["environment"] = results["environment"]
    ours["timing"]["finished"] = results["timing"]["finished"]
    root.mkdir(parents=True, exist_ok=True)
    # One name for all that are written here: they take turns, so that each is compared with those before it.
    with part_of(root / "submission", folder=True) as place:
        if (root / name).exists():
            raise ValueError(f"{root / name} is there already; choose another --slug, or remove that folder")
        part = place / name
        part.mkdir()
        write_whole(part / METADATA, metadata.to_yaml())
        write_results(part, ours)
        write_whole(part / SAMPLES, body)
        validate(part, judge, fingerprints(root))
        part.rename(root / name)
    return root / name


def mark_reproduced(runs: Path, root: Path, day: str) -> dict[str, str | None]:
    """Mark submissions that a run of maintainers reproduces, in ``reproduced.json`` beside their folder.

    Parameters
    ----------
    runs : Path
        Folder of run folders, made again from the same specs; other runs in it are of no concern.
    root : Path
        Folder of submissions.
    day : str
        YYYY-MM-DD, noted with the mark.

    Returns
    -------
    dict
        By submission that has a finished run there: None if it is marked, else what differs. A mark that it had ends.

    Raises
    ------
    FileNotFoundError, ValueError
        If there is no run, or a file of a run or of the marks is damaged.
    """
    again = {spec.run_id: out / spec.run_id for spec, out in find_specs(runs)}
    found: dict[str, str | None] = {}
    with whole_file(root.parent / REPRODUCED) as part:
        marks = read_marks(root)
        for folder in submission_folders(root):
            files = read_folder(folder)
            claimed = read_claimed(files[RESULTS])
            place = again.get(RunSpec.from_dict(claimed["spec"]).run_id)
            results = None if place is None else read_results(place)
            if place is None or results is None:
                continue
            theirs = {record.id: record for record in read_records(files[SAMPLES]).values()}
            ours = {sample["id"]: Record.of_sample(sample) for sample in read_samples(place / SAMPLES_FILE)}
            differ = [name for name in theirs if content_of(theirs[name]) != content_of(ours.get(name))]
            found[folder.name] = None
            if results["timing"]["finished"] == claimed["timing"]["finished"]:
                found[folder.name] = "it is the very run that was handed in; run it again"
            elif differ or len(ours) != len(theirs):
                found[folder.name] = (
                    f"{len(differ)} of {len(theirs)} questions differ, the first is {differ[:1]}"
                )
            marks.pop(folder.name, None)
            if found[folder.name] is None:
                marks[folder.name] = {"samples_sha256": claimed["samples_sha256"], "date": day}
        part.write_bytes(json_bytes(dict(sorted(marks.items()))))
    return found


def only_run(paths: Sequence[Path]) -> Path:
    """Return the one run folder among paths, as a shell gives them for ``runs/*``; a ValueError if there is not one."""
    if len(paths) == 1:
        return paths[0]
    found = [path for path in paths if (path / SPEC_FILE).is_file()]
    if len(found) != 1:
        names = ", ".join(map(str, found[:3])) + (", ..." if len(found) > 3 else "")
        raise ValueError(
            f"{len(found)} of these {len(paths)} paths are run folders{f' ({names})' if found else ''}; a submission "
            "is of one run, so give one: rwbench submit RUN"
        )
    return found[0]


def slug_of(text: str) -> str:
    """Return words of a-z and 0-9 with hyphens between them, at most 60 characters."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    return "-".join(re.findall("[a-z0-9]+", plain))[:60].strip("-") or "submission"


def json_bytes(value: Any) -> bytes:
    """Return indented JSON with a line break at its end."""
    return (json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()
