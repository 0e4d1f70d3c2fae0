"""`rwbench submit`: from a finished run to a folder of data, checked as a pull request's would be."""

from __future__ import annotations

import json
import re
import shutil
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ruleworld_data.io import write_whole

from ..run.runner import SAMPLES_FILE, SPEC_FILE, find_specs
from ..run.samples import read_samples
from ..score.results import read_results
from .copies import Content
from .files import FOLDER_NAME, METADATA, RESULTS, SAMPLES, compress, read_folder
from .metadata import Metadata
from .parsing import strict_json
from .records import lines_of, read_records, record_of
from .refusals import Refused
from .rescore import Judge
from .validate import Submission, validate

HALF_DONE = ".unfinished"


def submit(run: Path, metadata: Metadata, root: Path, judge: Judge, slug: str | None = None) -> Path:
    """Write the submission of a run and return its folder.

    Parameters
    ----------
    run : Path
        Folder of one finished run.
    metadata : Metadata
    root : Path
        Folder of submissions; made if missing.
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
    slug = slug or slug_of(
        f"{metadata.name} {spec.representation} {spec.pool_size} {spec.scale} {spec.split}"
    )
    name = f"{metadata.date}_{slug}"
    if not FOLDER_NAME.fullmatch(name):
        raise ValueError(f"a submission's short name is made of a-z, 0-9, dot and hyphen, got {slug!r}")
    if (root / name).exists():
        raise ValueError(f"{root / name} is there already; choose another --slug, or remove that folder")
    judge.check_spec(spec.to_dict())
    records = [record_of(sample) for sample in samples]
    body = compress(lines_of(records))
    ours = judge.results(spec, judge.samples(spec, read_records(body)), results["method"])
    ours["environment"] = results["environment"]
    ours["timing"]["finished"] = results["timing"]["finished"]
    part = root / HALF_DONE / name
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        write_whole(part / METADATA, metadata.to_yaml().encode())
        text = json.dumps(ours, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        write_whole(part / RESULTS, text.encode())
        write_whole(part / SAMPLES, body)
        validate(part, judge, contents(folders(root)))
        part.rename(root / name)
    finally:
        shutil.rmtree(root / HALF_DONE, ignore_errors=True)
    return root / name


def only_run(paths: Sequence[Path]) -> Path:
    """Return the one run folder among paths, as a shell gives them for ``runs/*``: reports lie beside it.

    Raises
    ------
    ValueError
        If there are several, or none among several paths.
    """
    if len(paths) == 1:
        return paths[0]
    found = [path for path in paths if (path / SPEC_FILE).is_file()]
    if len(found) != 1:
        said = ", ".join(map(str, found[:3])) + (", ..." if len(found) > 3 else "")
        raise ValueError(
            f"{len(found)} of these {len(paths)} paths are run folders{f' ({said})' if found else ''}; a submission is "
            "of one run, so give one: rwbench submit RUN"
        )
    return found[0]


def slug_of(text: str) -> str:
    """Return words of a-z and 0-9 with hyphens between them, at most 60 characters."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    return "-".join(re.findall("[a-z0-9]+", plain))[:60].strip("-") or "submission"


def folders(root: Path) -> list[Path]:
    """Return the submissions' folders in a folder of submissions; other files in it are no concern of ours."""
    if not root.is_dir():
        return []
    return sorted(path for path in root.iterdir() if FOLDER_NAME.fullmatch(path.name))


def contents(paths: Iterable[Path]) -> Mapping[str, Content]:
    """Return what submissions that are on the board say, for telling copies; unreadable ones are left out."""
    found = {}
    for path in paths:
        try:
            files = read_folder(path)
            spec = strict_json(files[RESULTS], RESULTS)["spec"]
            setting = f"{spec['representation']} {spec['pool_size']}"
            found[path.name] = Content.of(setting, read_records(files[SAMPLES]).values())
        except (Refused, KeyError, TypeError):
            continue
    return found


def validate_all(paths: Iterable[Path], judge: Judge) -> list[Submission]:
    """Return accepted submissions; the first that is refused stops it, its folder named."""
    accepted: list[Submission] = []
    for path in paths:
        known = {submission.folder: submission.content for submission in accepted}
        try:
            accepted.append(validate(path, judge, known))
        except Refused as error:
            raise ValueError(f"{path.name} is refused:\n{error}") from None
    return accepted
