"""Submissions: written from a run, read back, re-scored and compared. Reads data only; runs nothing of a stranger's."""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from ruleworld_data.io import part_of, write_whole

from ..run.folder import SPEC_FILE, exclusive
from ..score.results import Results, read_results, write_results
from ..score.samples import SAMPLES_FILE, Sample, read_samples
from ..spec import RunSpec, canonical_json
from .copies import Fingerprint, content_sha256, copied, fingerprint
from .entry import Entry, read_entry
from .files import ENTRY, FOLDER_NAME, HOW_TO_WRITE, SAMPLES, json_bytes, read_folder, submission_folders
from .judge import RELEASED, Judge, board_spec, looks_at_gold
from .problems import Refused, quote, validated
from .records import Record, pack_records, read_predictions, read_records

YEARS = 10


class Submission(NamedTuple):
    """A submission that was accepted: its words, and results computed here."""

    folder: str
    entry: Entry
    spec: RunSpec
    results: Results
    samples: list[Sample]
    fingerprint: Fingerprint


def validate(
    folder: Path, judge: Judge, others: Mapping[str, Fingerprint] | None = None, latest: str | None = None
) -> Submission:
    """Check a submission against our data, and ``others``: the fingerprints on the board, by folder name.

    A date lies between the data's release and ``latest``, or, for what is on the board whatever a clock says, within
    `YEARS` of the newest before it. `Refused` with the problems of the first stage that finds one: files, words, spec,
    date, samples, copies.
    """
    files = read_folder(folder)
    entry = read_entry(files[ENTRY])
    if not folder.name.startswith(entry.date):
        raise Refused(f"{ENTRY}: date is not the folder's, got {entry.date}; folder: {folder.name[:10]}")
    spec = judge.check_spec(entry.spec)
    first = RELEASED[spec.data]
    newest = max([first, *(name[:10] for name in others or () if name != folder.name)])
    last = latest or f"{int(newest[:4]) + YEARS}{newest[4:]}"
    if not first <= entry.date <= last:
        what = f"date must lie between {first}, when data {spec.data} came out, and {last}, got {entry.date}"
        raise Refused(f"{ENTRY}: {what}; give the day of the pull request")
    if entry.kind != "ceiling" and (gold := looks_at_gold(spec.method)):
        raise Refused(f"{ENTRY}: spec.method looks at gold data, got {gold!r}; set kind to ceiling")
    records = read_records(files[SAMPLES])
    samples = judge.samples(spec, records)
    own = fingerprint(entry, records.values())
    if problems := [*copied(own, {name: o for name, o in (others or {}).items() if name != folder.name})]:
        raise Refused(*problems)
    return Submission(folder.name, entry, spec, judge.results(spec, samples, entry.name), samples, own)


def check_all(
    folders: Iterable[Path],
    judge: Judge,
    known: Mapping[str, Fingerprint] | None = None,
    latest: str | None = None,
) -> dict[str, Submission | Refused]:
    """Return each submission, or why it is refused, by folder name; copies of each other or of ``known`` are."""
    known = dict(known or {})
    checked: dict[str, Submission | Refused] = {}
    for path in folders:
        if not os.path.lexists(path):
            raise FileNotFoundError(f"no {path}; `rwbench submit RUN --to DIR` writes a submission")
        try:
            submission = checked[path.name] = validate(path, judge, known, latest)
            known[path.name] = submission.fingerprint
        except Refused as error:
            checked[path.name] = error
        except (
            Exception
        ) as error:  # a check that breaks refuses this folder, and never ends the checks of others
            what = f"cannot be checked ({type(error).__name__}: {quote(str(error))[1:-1]})"
            checked[path.name] = Refused(f"{quote(path.name)}: {what}; {HOW_TO_WRITE}")
    return checked


def tomorrow() -> str:
    """Return the latest day that a submission of today may name: somewhere it is tomorrow already."""
    # a clock that stands before the release is wrong
    return max((date.today() + timedelta(days=1)).isoformat(), *RELEASED.values())


def fingerprints(board: Path) -> dict[str, Fingerprint]:
    """Return the fingerprints of submissions on the board, by folder name; unreadable ones are left out."""
    known = {}
    for path in submission_folders(board):
        try:
            files = read_folder(path)
            known[path.name] = fingerprint(read_entry(files[ENTRY]), read_records(files[SAMPLES]).values())
        except Exception:  # refused where the board is checked
            continue
    return known


def import_predictions(
    path: Path, label: str, representation: str, pool_size: int, out: Path, judge: Judge, **setting: Any
) -> Path:
    """Score predictions made elsewhere (`read_predictions`), write them as a run folder below ``out`` and return it.

    ``label`` is the method's name in reports; representation, pool size and the rest of the setting are as in
    `board_spec`. A ValueError names the line of a row that cannot be used.
    """
    records = read_predictions(path)
    method = {"name": "imported", "label": label, "content": content_sha256(records.values())}
    spec = board_spec(method, representation, pool_size, **setting)
    judge.check_spec(spec.to_dict())
    samples = judge.samples(spec, records, str(path))
    folder = out / spec.run_id
    folder.mkdir(parents=True, exist_ok=True)
    with exclusive(folder):
        write_whole(folder / SPEC_FILE, json_bytes(spec.to_dict()))
        write_whole(folder / SAMPLES_FILE, "".join(canonical_json(sample) + "\n" for sample in samples))
        write_results(folder, judge.results(spec, samples, label))
    return folder


def submit(
    spec: RunSpec,
    samples: Sequence[Sample],
    words: Mapping[str, Any],
    root: Path,
    judge: Judge,
    slug: str | None = None,
    *,
    searches: bool = True,
) -> Path:
    """Write the submission of a run (`read_run`) and return its folder, after the checks that a pull request gets.

    Parameters
    ----------
    words : mapping
        Fields of `Entry` but the spec.
    root : Path
        Folder of submissions; made if missing.
    slug : str, optional
        End of the folder's name; by default made of the method's name and the setting.
    searches : bool
        Whether the rules found go along; without them the row has no recall and a fifth of the bytes.

    Raises
    ------
    ValueError
        If questions failed, the folder is taken, or the checks refuse it (`Refused`).
    """
    failed = [sample["id"] for sample in samples if sample["error"] is not None]
    if failed:
        raise ValueError(
            f"{len(failed)} questions of the run failed (first: {failed[0]}); a submission has an answer to every "
            "question: rwbench run RECIPE"
        )
    entry = validated(Entry, {**words, "spec": json.loads(canonical_json(spec.to_dict()))}, ENTRY)
    setting = f"{spec.representation} {spec.pool_size} {spec.scale} {spec.split}"
    slug = slug or slug_of(f"{entry.name} {setting}")
    name = f"{entry.date}_{slug}"
    if not FOLDER_NAME.fullmatch(name):
        raise ValueError(f"a submission's short name is made of a-z, 0-9, dot and hyphen, got {slug!r}")
    body = pack_records(Record.of_sample(sample, searches=searches) for sample in samples)
    root.mkdir(parents=True, exist_ok=True)
    # One name for all that are written here: they take turns, so that each is compared with those before it.
    with part_of(root / "submission", folder=True) as place:
        if (root / name).exists():
            raise ValueError(f"{root / name} is there already; choose another --slug, or remove that folder")
        part = place / name
        part.mkdir()
        write_whole(part / ENTRY, json_bytes(entry.model_dump(exclude_none=True)))
        write_whole(part / SAMPLES, body)
        validate(part, judge, fingerprints(root), tomorrow())
        part.rename(root / name)
    return root / name


def read_run(paths: Sequence[Path]) -> tuple[RunSpec, list[Sample]]:
    """Return spec and samples of the one finished run among paths, as a shell gives them for ``runs/*``.

    A ValueError if there is not one, a FileNotFoundError if it is not finished.
    """
    runs = [path for path in paths if (path / SPEC_FILE).is_file()] if len(paths) > 1 else list(paths)
    if len(runs) != 1:
        raise ValueError(
            f"{len(runs)} of these {len(paths)} paths are run folders; a submission is of one run, so give one: "
            "rwbench submit RUN"
        )
    results = read_results(runs[0])
    if results is None:
        raise FileNotFoundError(
            f"{runs[0]} is no finished run; give one run folder, or finish it: rwbench run RECIPE"
        )
    return RunSpec.from_dict(results["spec"]), read_samples(runs[0] / SAMPLES_FILE)


def slug_of(text: str) -> str:
    """Return words of a-z and 0-9 with hyphens between them, at most 60 characters."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    return "-".join(re.findall("[a-z0-9]+", plain))[:60].strip("-") or "submission"
