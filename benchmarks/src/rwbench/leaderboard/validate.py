"""`rwbench validate`: everything recomputed from the samples; reads data only, runs and writes nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ..run.samples import Sample
from ..score.results import Results, check_results
from ..spec import RunSpec, canonical_json
from .copies import Content, copied_gold, twin
from .files import KIB, METADATA, RESULTS, SAMPLES, read_folder
from .metadata import Metadata
from .parsing import plain_text, strict_json, utf8
from .records import read_records
from .refusals import Problem, Refused, few, shown
from .rescore import Judge

TOLERANCE = 1e-6
UNCHECKED = ("environment", "timing")
"""Parts of results.json that only the submitter knows; they are looked at for form, and not shown."""
Keys = tuple[str, ...]
MAX_SPEC = 16 * KIB
METHOD_KEY = re.compile(r"[a-z0-9][a-z0-9#+._-]{0,59}")


@dataclass(frozen=True)
class Submission:
    """A submission that was accepted: its words, and results computed here."""

    folder: str
    metadata: Metadata
    spec: RunSpec
    results: Results
    samples: list[Sample]
    content: Content


def validate(folder: Path, judge: Judge, others: Mapping[str, Content] | None = None) -> Submission:
    """Check a submission.

    Parameters
    ----------
    folder : Path
    judge : Judge
    others : mapping of str to Content, optional
        Contents of the submissions that are on the board already, by folder name (`Submission.content`).

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
        raise Refused(
            Problem(METADATA, "date is not the folder's", f"folder: {folder.name[:10]}", value=metadata.date)
        )
    claimed = strict_json(files[RESULTS], RESULTS)
    _check_schema(claimed)
    spec = judge.check_spec(claimed["spec"])
    records = read_records(files[SAMPLES])
    samples = judge.samples(spec, records)
    results = judge.results(spec, samples, claimed["method"])
    lines = utf8(files[RESULTS], RESULTS).split("\n")
    if problems := few(
        Problem(
            RESULTS,
            f"{shown('.'.join(path))} is not what the samples give",
            mend,
            line_of(lines, path),
            shown(theirs),
        )
        for path, theirs, mend in differences(claimed, results)
    ):
        raise Refused(*problems)
    if metadata.kind != "ceiling" and (problems := copied_gold(samples)):
        raise Refused(*problems)
    content = Content.of(f"{spec.representation} {spec.pool_size}", records.values())
    if problems := twin(folder.name, content, others or {}):
        raise Refused(*problems)
    results["environment"], results["timing"] = claimed["environment"], claimed["timing"]
    return Submission(folder.name, metadata, spec, results, samples, content)


def differences(claimed: Any, ours: Any, path: Keys = ()) -> Iterator[tuple[Keys, Any, str]]:
    """Yield (keys down to a field, submitted value, mend) where submitted results are not the recomputed ones."""
    names = sorted({*claimed, *ours} - set(() if path else UNCHECKED))
    for name in names:
        place = (*path, name)
        if name not in claimed:
            yield place, None, "add it: write the folder with `rwbench submit RUN`"
        elif name not in ours:
            yield place, claimed[name], "remove it"
        elif isinstance(claimed[name], dict) and isinstance(ours[name], dict):
            yield from differences(claimed[name], ours[name], place)
        elif not _same(claimed[name], ours[name]):
            yield place, claimed[name], f"recomputed: {shown(ours[name])}"


def line_of(lines: list[str], path: Sequence[str]) -> int | None:
    """Return the line of a field, by the keys down to it, in indented JSON; None if it is laid out in another way.

    If only some of the keys are found, it is the line of the last of these.
    """
    place = 0
    for depth, name in enumerate(path, 1):
        found = _key_line(lines, place, depth, name)
        if found is None:
            break
        place = found + 1
    return place or None


def _key_line(lines: list[str], start: int, depth: int, name: str) -> int | None:
    indent = "  " * depth
    wanted = f'{indent}"{name}":'
    for number in range(start, len(lines)):
        line = lines[number]
        if line.startswith(wanted):
            return number
        if depth > 1 and line.strip() and not line.startswith(indent):
            return None
    return None


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    if isinstance(left, bool) or isinstance(right, bool) or not isinstance(left, int | float):
        return type(left) is type(right) and left == right
    return isinstance(right, int | float) and abs(left - right) <= TOLERANCE


def _check_schema(claimed: Any) -> None:
    try:
        check_results(claimed)
    except ValidationError as error:
        first = min(error.errors(include_url=False), key=lambda found: list(map(str, found["loc"])))
        place = ".".join(map(str, first["loc"])) or "the file"
        what = f"{shown(place)} does not fit the schema ({first['type']}: {first['msg']})"
        mend = "write the folder with `rwbench submit RUN`"
        raise Refused(Problem(RESULTS, what, mend, value=shown(first["input"]))) from None
    method = claimed["method"]
    why = plain_text(method["label"], 80)
    if why:
        raise Refused(
            Problem(RESULTS, f"method.label {why}", "call the method plainly", value=shown(method["label"]))
        )
    if not METHOD_KEY.fullmatch(method["key"]):
        raise Refused(
            Problem(
                RESULTS, "method.key must be a short name", "a-z, 0-9, hyphen", value=shown(method["key"])
            )
        )
    for path, text in _texts({name: claimed[name] for name in (*UNCHECKED, "spec")}):
        if text and (why := plain_text(text, 200)):
            raise Refused(
                Problem(RESULTS, f"{path} {why}", "leave it out or write plain text", value=shown(text))
            )
    if len(canonical_json(claimed["spec"])) > MAX_SPEC:
        raise Refused(
            Problem(
                RESULTS,
                f"spec has more than {MAX_SPEC // KIB} KiB",
                "write the folder with `rwbench submit RUN`",
            )
        )
    finished = claimed["timing"]["finished"]
    try:
        datetime.fromisoformat(finished)
    except ValueError:
        raise Refused(
            Problem(
                RESULTS, "timing.finished is no time", "as 2026-01-31T12:00:00+00:00", value=shown(finished)
            )
        ) from None


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
