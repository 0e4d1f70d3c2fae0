"""Submissions: written from a run, read back, re-scored and compared. Reads data only; runs nothing of a stranger's."""

import json
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from ruleworld_data.io import file_digest, write_whole

from ..report.setting import macro
from ..run.folder import SPEC_FILE, exclusive
from ..score.results import Results, write_results
from ..score.samples import SAMPLES_FILE, Sample
from ..spec import RunSpec, canonical_json, json_bytes, json_line
from .files import (
    ENTRY,
    FOLDER_NAME,
    HOW_TO_WRITE,
    SAMPLES,
    Entry,
    Refused,
    quote,
    read_folder,
    skeleton,
    submission_folders,
    unpacked,
    validated,
)
from .judge import RELEASED, board_spec, cell_of, check_spec, judge, looks_at_gold, read_setting
from .records import Record, pack_records, read_predictions, read_records

TRACKS = {"answers": "exact_match", "retrieval": "recall@1"}
"""Table of the board -> the metric that it is ranked by."""


class Known(NamedTuple):
    """What of a submission others are compared with: its words, its setting, and a hash of each record."""

    entry: Entry
    cell: tuple[Any, ...]
    records: frozenset[int]


class Submission(NamedTuple):
    """A submission that was accepted: its words, and results computed here."""

    folder: str
    entry: Entry
    spec: RunSpec
    results: Results
    samples: list[Sample]
    known: Known

    @property
    def track(self) -> str:
        """The table that it belongs to."""
        return "answers" if macro(self.results, "exact_match") else "retrieval"


def read(folder: Path) -> tuple[Entry, dict[int, Record]]:
    """Return words and records of a submission; `Refused` if it is none."""
    files = read_folder(folder)
    return validated(Entry, files[ENTRY], ENTRY), read_records(unpacked(files[SAMPLES]), SAMPLES)


def validate(folder: Path, others: Mapping[str, Known] | None = None) -> Submission:
    """Check a submission against our data and against ``others``, by folder name.

    `Refused` with the problems of the first stage that finds one: files, words, spec, date, samples, copies.
    """
    entry, records = read(folder)
    spec = check_spec(entry.spec)
    # a clock may be behind, and refuses no row of the day that the latest data came out
    last = max(str(date.today() + timedelta(1)), *RELEASED.values())
    if not folder.name.startswith(entry.date) or not RELEASED[spec.data] <= entry.date <= last:
        what = f"must be the folder's, from {RELEASED[spec.data]}, when data {spec.data} came out, to {last}"
        raise Refused(f"{ENTRY}: date {what}, got {entry.date}; give the day of the pull request")
    if entry.kind != "ceiling" and (gold := looks_at_gold(spec.method)):
        raise Refused(f"{ENTRY}: spec.method looks at gold data, got {gold!r}; set kind to ceiling")
    samples, results = judge(spec, records, entry.name)
    known = _known(entry, records.values())
    if problems := [*_copied(known, {n: o for n, o in (others or {}).items() if n != folder.name})]:
        raise Refused("\n".join(problems))
    return Submission(folder.name, entry, spec, results, samples, known)


def check_all(folders: Iterable[Path], board: Path | None = None) -> dict[str, Submission | Refused]:
    """Return each submission, or why it is refused, by folder name; copies of each other or of a board's are."""
    known = {}
    for path in submission_folders(board) if board is not None else ():
        entry, records = read(path)
        known[path.name] = _known(entry, records.values())
    checked: dict[str, Submission | Refused] = {}
    for path in folders:
        if not os.path.lexists(path):
            raise FileNotFoundError(f"no {path}; to write it type: rwbench submit RUN WORDS.toml")
        try:
            submission = checked[path.name] = validate(path, known)
            known[path.name] = submission.known
        except Refused as error:
            checked[path.name] = error
        except Exception as error:  # a check that breaks never ends the checks of others
            what = f"cannot be checked ({type(error).__name__}: {quote(str(error))[1:-1]})"
            checked[path.name] = Refused(f"{quote(path.name)}: {what}; {HOW_TO_WRITE}")
    return checked


def _known(entry: Entry, records: Iterable[Record]) -> Known:
    """Return what others are compared with: case, blanks and punctuation of outputs make no other record.

    Nor do other searches beside the same output.
    """
    hashes = []
    for record in records:
        words = re.findall(r"\w+", (record.output or "").casefold())
        fields = {"id", "answers"} if words else {"id", "answers", "retrieved"}
        hashes.append(hash(canonical_json(record.model_dump(include=fields) | {"output": words})))
    return Known(entry, cell_of(entry.spec), frozenset(hashes))


def _copied(own: Known, others: Mapping[str, Known]) -> Iterator[str]:
    """Yield a problem if all records stand in other submissions, or a name is another's.

    Of other settings, such as smaller pools or the other form, those of another submitter count.

    Only what cannot be an honest run is refused: two runs of one model may share nearly all answers, and whether
    outputs are a model's own no check can tell. That is what the board's badges say.
    """
    rivals = {name: other for name, other in others.items() if other.cell == own.cell}
    who = skeleton(own.entry.submitter)
    owned = rivals | {name: o for name, o in others.items() if skeleton(o.entry.submitter) != who}
    sources = [name for name, other in owned.items() if own.records & other.records]
    if own.records <= frozenset().union(*(other.records for other in owned.values())):
        yield f"{SAMPLES}: all records are those of other submissions, got {', '.join(sources)}; submit your own run"
    for name, other in others.items():
        for field in ("name", "submitter"):
            mine, theirs = getattr(own.entry, field), getattr(other.entry, field)
            taken = field == "name" and name in rivals
            if skeleton(mine) == skeleton(theirs) and (taken or mine != theirs):
                yield f"{ENTRY}: {field} reads like {quote(theirs)} of {name}, got {quote(mine)}; choose another"


def import_predictions(kit: Path, path: Path, label: str, representation: str, out: Path) -> Path:
    """Score answers to a kit (`read_predictions`), write them as a run folder below ``out`` and return it.

    ``label`` is the method's name in reports. A ValueError names the line of a row that cannot be used.
    """
    setting, records = read_setting(kit), read_predictions(path)
    method = {"name": "imported", "label": label, "content": file_digest(path)}
    spec = board_spec(method, representation, **setting)
    check_spec(spec.to_dict())
    samples, results = judge(spec, records, label, str(path))
    folder = out / spec.run_id
    folder.mkdir(parents=True, exist_ok=True)
    with exclusive(folder):
        write_whole(folder / SPEC_FILE, json_bytes(spec.to_dict()))
        write_whole(folder / SAMPLES_FILE, b"".join(map(json_line, samples)))
        write_results(folder, results)
    return folder


def submit(results: Results, samples: list[Sample], words: Mapping[str, Any], root: Path, slug: str) -> Path:
    """Write the submission of a run (`finished_run`) and return its folder, after the checks that a pull request gets.

    ``words`` are the fields of `Entry` but the spec; ``slug`` ends the folder's name, after the date. A ValueError if
    questions failed, the folder is taken, or the checks refuse it (`Refused`).
    """
    failed = [sample["id"] for sample in samples if sample["error"] is not None]
    if failed:
        raise ValueError(
            f"{len(failed)} questions of the run failed (first: {failed[0]}); a submission has an answer to every "
            "question: rwbench run RECIPE"
        )
    entry = validated(Entry, json_bytes({**words, "spec": results["spec"]}), ENTRY)
    folder = root / f"{entry.date}_{slug}"
    if not FOLDER_NAME.fullmatch(folder.name):
        raise ValueError(f"a short name has a-z, 0-9, dot and hyphen, got {slug!r}; rename the file")
    if folder.exists():
        raise ValueError(f"{folder} is there already; rename the file of its words, or remove that folder")
    body = pack_records(Record.of_sample(sample) for sample in samples)
    root.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=root) as place:
        part = Path(place, folder.name)
        part.mkdir()
        write_whole(part / ENTRY, json_bytes(entry.model_dump(exclude_none=True)))
        write_whole(part / SAMPLES, body)
        (checked,) = check_all([part], root).values()
        if isinstance(checked, Refused):
            raise checked
        part.rename(folder)
    return folder


def read_words(path: Path) -> dict[str, Any]:
    """Return what a TOML file says of a submission; its date is today where it says none."""
    if not path.is_file():
        raise FileNotFoundError(f'no {path}; it says name = "...", submitter = "...", description = "..."')
    words = {"date": date.today()} | tomllib.loads(path.read_text(encoding="utf-8"))
    return dict(json.loads(json.dumps(words, default=str)))  # dates as texts
