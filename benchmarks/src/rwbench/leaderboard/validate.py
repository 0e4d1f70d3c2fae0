"""`rwbench validate`: everything recomputed from the samples; reads data only, runs and writes nothing."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from ..score.results import Results, check_results
from ..score.samples import Sample
from ..spec import RunSpec, canonical_json, spec_differences
from .copies import Fingerprint, duplicates, gold_copies, impostors
from .files import HOW_TO_WRITE, KIB, METADATA, RESULTS, SAMPLES, read_folder, submission_folders
from .judge import Judge, looks_at_gold
from .metadata import Metadata
from .parsing import BROKEN, UNSEEN, Problem, Refused, model_problems, quote, refuse, refuse_if, strict_json
from .records import read_records

TOLERANCE = 1e-6
UNCHECKED = ("environment", "timing")
"""Parts of results.json that only the submitter knows; their form is checked, and they are not shown."""
MAX_SPEC = 16 * KIB


class Submission(NamedTuple):
    """A submission that was accepted: its words, and results computed here."""

    folder: str
    metadata: Metadata
    spec: RunSpec
    results: Results
    samples: list[Sample]
    fingerprint: Fingerprint


def validate(folder: Path, judge: Judge, others: Mapping[str, Fingerprint] | None = None) -> Submission:
    """Check a submission against our data, and ``others``: the fingerprints on the board, by folder name.

    `Refused` with every problem of the first stage that finds one: files, metadata, results, samples, scores, copies.
    """
    files = read_folder(folder)
    metadata = Metadata.from_yaml(files[METADATA])
    if not folder.name.startswith(metadata.date):
        refuse(METADATA, "date is not the folder's", f"folder: {folder.name[:10]}", value=metadata.date)
    claimed = read_claimed(files[RESULTS])
    spec = judge.check_spec(claimed["spec"])
    if metadata.kind != "ceiling" and looks_at_gold(spec.method):
        what = "spec.method looks at gold data"
        refuse(RESULTS, what, "set `kind: ceiling`", value=quote(spec.method.get("rules", "solver")))
    records = read_records(files[SAMPLES])
    samples = judge.samples(spec, records)
    results = judge.results(spec, samples, claimed["method"])
    refuse_if(differences(claimed, results))
    if metadata.kind != "ceiling":
        refuse_if(gold_copies(samples))
    fingerprint = Fingerprint.of(metadata, spec.to_dict(), records.values())
    others = {name: other for name, other in (others or {}).items() if name != folder.name}
    refuse_if([*duplicates(fingerprint, others), *impostors(fingerprint, others)])
    results["environment"], results["timing"] = claimed["environment"], claimed["timing"]
    return Submission(folder.name, metadata, spec, results, samples, fingerprint)


def check_all(
    folders: Iterable[Path], judge: Judge, known: Mapping[str, Fingerprint] | None = None
) -> dict[str, Submission | Refused]:
    """Return each submission, or why it is refused, by folder name; copies of each other or of ``known`` are."""
    known = dict(known or {})
    found: dict[str, Submission | Refused] = {}
    for path in folders:
        try:
            submission = found[path.name] = validate(path, judge, known)
            known[path.name] = submission.fingerprint
        except Refused as error:
            found[path.name] = error
        except (
            BROKEN
        ) as error:  # a check that breaks refuses this folder, and never ends the checks of others
            if isinstance(error, FileNotFoundError) and not os.path.lexists(path):
                raise  # not a submission's fault: there is none
            what = f"cannot be checked ({type(error).__name__}: {quote(str(error))[1:-1]})"
            found[path.name] = Refused(Problem(quote(path.name), what, HOW_TO_WRITE))
    return found


def fingerprints(board: Path) -> dict[str, Fingerprint]:
    """Return the fingerprints of submissions on the board, by folder name; unreadable ones are left out."""
    found = {}
    for path in submission_folders(board):
        try:
            files = read_folder(path)
            spec = strict_json(files[RESULTS], RESULTS)["spec"]
            records = read_records(files[SAMPLES]).values()
            found[path.name] = Fingerprint.of(Metadata.from_yaml(files[METADATA]), spec, records)
        except BROKEN:
            continue
    return found


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
    """Yield where words of results.json could be more than plain text to a terminal or a browser."""
    text = canonical_json(claimed)
    # What is left of backslashes escapes a control character.
    plain = text.replace(r"\\", " ").replace(r"\"", " ")
    wrong = re.search(r"[<>\\]", plain) or UNSEEN.search(plain)
    at = wrong.start() if wrong else next((n for n, sign in enumerate(plain) if not sign.isprintable()), None)
    if at is not None:
        what = "must be plain text without <, >, control and invisible characters"
        fix = "leave it out or write plain text"
        yield Problem(RESULTS, what, fix, value=quote(plain[max(at - 30, 0) : at + 40]))
    if len(canonical_json(claimed["spec"])) > MAX_SPEC:
        yield Problem(RESULTS, f"spec has more than {MAX_SPEC // KIB} KiB", HOW_TO_WRITE)
    for name, value, form in (
        ("method.key", claimed["method"]["key"], r"[a-z0-9][a-z0-9#+._-]{0,59}"),
        (
            "timing.finished",
            claimed["timing"]["finished"],
            r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?([+-]\d\d:\d\d|Z)",
        ),
    ):
        if not re.fullmatch(form, value, re.ASCII):
            yield Problem(RESULTS, f"{name} must match {form}", HOW_TO_WRITE, value=quote(value))


def differences(claimed: Mapping[str, Any], ours: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield a problem for every field in which submitted results are not the recomputed ones."""
    left, right = ({k: v for k, v in side.items() if k not in UNCHECKED} for side in (claimed, ours))
    for path, (theirs, found) in spec_differences(left, right).items():
        if not _same(theirs, found):
            yield Problem(
                RESULTS,
                f"{quote(path)} is not what the samples give",
                f"recomputed: {quote(found)}",
                value=quote(theirs),
            )


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    if isinstance(left, int | float) and isinstance(right, int | float):
        return abs(left - right) <= TOLERANCE
    return bool(left == right)
