"""`rwbench validate`: everything recomputed from the samples; reads data only, runs and writes nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from ..score.results import Results, check_results
from ..score.samples import Sample
from ..spec import RunSpec, canonical_json
from .copies import Fingerprint, duplicates, gold_copies
from .files import HOW_TO_WRITE, KIB, METADATA, RESULTS, SAMPLES, read_folder, submission_folders
from .judge import Judge
from .metadata import Metadata
from .parsing import Problem, Refused, model_problems, plain_text, quote, refuse_if, strict_json, utf8
from .records import Record, read_records

TOLERANCE = 1e-6
UNCHECKED = ("environment", "timing")
"""Parts of results.json that only the submitter knows; their form is checked, and they are not shown."""
MAX_SPEC = 16 * KIB
METHOD_KEY = re.compile(r"[a-z0-9][a-z0-9#+._-]{0,59}")
Keys = tuple[str, ...]


@dataclass(frozen=True)
class Submission:
    """A submission that was accepted: its words, and results computed here."""

    folder: str
    metadata: Metadata
    spec: RunSpec
    results: Results
    samples: list[Sample]
    fingerprint: Fingerprint


def validate(folder: Path, judge: Judge, others: Mapping[str, Fingerprint] | None = None) -> Submission:
    """Check a submission.

    Parameters
    ----------
    folder : Path
    judge : Judge
    others : mapping of str to Fingerprint, optional
        Those of the submissions that are on the board already, by folder name (`Submission.fingerprint`).

    Raises
    ------
    FileNotFoundError
        If there is no such folder.
    Refused
        With every problem of the first stage that finds one: files, metadata, results, samples, scores, copies.
    """
    files = read_folder(folder)
    metadata = Metadata.from_yaml(files[METADATA])
    if not folder.name.startswith(metadata.date):
        what, fix = "date is not the folder's", f"folder: {folder.name[:10]}"
        raise Refused(Problem(METADATA, what, fix, value=metadata.date))
    claimed = read_claimed(files[RESULTS])
    spec = judge.check_spec(claimed["spec"])
    records = read_records(files[SAMPLES])
    samples = judge.samples(spec, records)
    results = judge.results(spec, samples, claimed["method"])
    lines = utf8(files[RESULTS], RESULTS).split("\n")
    refuse_if(
        Problem(
            RESULTS, f"{quote('.'.join(path))} is not what the samples give", fix, line_of(lines, path), value
        )
        for path, value, fix in differences(claimed, results)
    )
    if metadata.kind != "ceiling":
        refuse_if(gold_copies(samples))
    fingerprint = fingerprint_of(claimed, records.values())
    others = {name: other for name, other in (others or {}).items() if name != folder.name}
    refuse_if(duplicates(fingerprint, others))
    results["environment"], results["timing"] = claimed["environment"], claimed["timing"]
    return Submission(folder.name, metadata, spec, results, samples, fingerprint)


def validate_all(folders: Iterable[Path], judge: Judge) -> list[Submission]:
    """Return accepted submissions; the first that is refused stops it with a ValueError that names its folder."""
    accepted: list[Submission] = []
    for path in folders:
        known = {submission.folder: submission.fingerprint for submission in accepted}
        try:
            accepted.append(validate(path, judge, known))
        except Refused as error:
            raise ValueError(f"{path.name} is refused:\n{error}") from None
    return accepted


def check_all(folders: Iterable[Path], board: Path | None) -> dict[str, tuple[Problem, ...]]:
    """Return the problems of each submission by folder name: none if it is accepted.

    Parameters
    ----------
    folders : iterable of Path
        They must not be copies of each other, nor of those in ``board``.
    board : Path, optional
        Folder of the submissions on the board already.
    """
    judge = Judge()
    known = fingerprints(submission_folders(board)) if board is not None else {}
    found: dict[str, tuple[Problem, ...]] = {}
    for path in folders:
        try:
            known[path.name] = validate(path, judge, known).fingerprint
            found[path.name] = ()
        except Refused as error:
            found[path.name] = error.problems
    return found


def fingerprints(folders: Iterable[Path]) -> dict[str, Fingerprint]:
    """Return the fingerprints of submissions on the board, by folder name; unreadable ones are left out."""
    found = {}
    for path in folders:
        try:
            files = read_folder(path)
            records = read_records(files[SAMPLES]).values()
            found[path.name] = fingerprint_of(strict_json(files[RESULTS], RESULTS), records)
        except (Refused, KeyError, TypeError):
            continue
    return found


def fingerprint_of(results: Mapping[str, Any], records: Iterable[Record]) -> Fingerprint:
    """Return the fingerprint of a submission, from its results.json and records."""
    spec = results["spec"]
    return Fingerprint.of(f"{spec['representation']} {spec['pool_size']}", records)


def read_claimed(body: bytes) -> Results:
    """Return a submission's results.json, in whose form and words nothing is wrong; `Refused` otherwise."""
    value = strict_json(body, RESULTS)
    try:
        claimed = check_results(value)
    except ValidationError as error:
        refuse_if(model_problems(error, RESULTS, HOW_TO_WRITE))
        raise
    refuse_if(_word_problems(claimed))
    return claimed


def _word_problems(claimed: Results) -> Iterator[Problem]:
    words = {name: claimed[name] for name in ("method", *UNCHECKED, "spec")}  # type: ignore[literal-required]
    for path, text in _texts(words):
        try:
            plain_text(text or "-", 80 if path == "method.label" else 200)
        except PydanticCustomError as error:
            fix = "leave it out or write plain text"
            yield Problem(RESULTS, f"{ascii(path)[1:-1][:200]} {error.message()}", fix, value=quote(text))
    key, finished = claimed["method"]["key"], claimed["timing"]["finished"]
    if not METHOD_KEY.fullmatch(key):
        yield Problem(RESULTS, "method.key must be a short name", "a-z, 0-9, hyphen", value=quote(key))
    if len(canonical_json(claimed["spec"])) > MAX_SPEC:
        yield Problem(RESULTS, f"spec has more than {MAX_SPEC // KIB} KiB", HOW_TO_WRITE)
    try:
        datetime.fromisoformat(finished)
    except ValueError:
        fix = "as 2026-01-31T12:00:00+00:00"
        yield Problem(RESULTS, "timing.finished is no time", fix, value=quote(finished))


def _texts(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield (dotted path, text) of all texts and keys in a JSON value."""
    if isinstance(value, dict):
        for name, part in value.items():
            yield f"a key in {path or RESULTS}", name
            yield from _texts(part, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for part in value:
            yield from _texts(part, path)
    elif isinstance(value, str):
        yield path, value


def differences(claimed: Any, ours: Any, path: Keys = ()) -> Iterator[tuple[Keys, str | None, str]]:
    """Yield (keys down to a field, submitted value, fix) where submitted results are not the recomputed ones."""
    for name in sorted({*claimed, *ours} - set(() if path else UNCHECKED)):
        place = (*path, name)
        if name not in claimed:
            yield place, None, f"add it: {HOW_TO_WRITE}"
        elif name not in ours:
            yield place, quote(claimed[name]), "remove it"
        elif isinstance(claimed[name], dict) and isinstance(ours[name], dict):
            yield from differences(claimed[name], ours[name], place)
        elif not _same(claimed[name], ours[name]):
            yield place, quote(claimed[name]), f"recomputed: {quote(ours[name])}"


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    if isinstance(left, bool) or isinstance(right, bool) or not isinstance(left, int | float):
        return type(left) is type(right) and left == right
    return isinstance(right, int | float) and abs(left - right) <= TOLERANCE


def line_of(lines: list[str], path: Keys) -> int | None:
    """Return the 1-based line of a field in indented JSON, by the keys down to it.

    If only some of the keys are found, it is the line of the last of these; None if there is none.
    """
    at = 0
    for depth, name in enumerate(path, 1):
        indent = "  " * depth
        for number in range(at, len(lines)):
            if lines[number].startswith(f'{indent}"{name}":'):
                at = number + 1
                break
            if depth > 1 and lines[number].strip() and not lines[number].startswith(indent):
                return at or None
        else:
            return at or None
    return at or None
