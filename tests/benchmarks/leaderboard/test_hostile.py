"""Hostile submissions: each refused for the right reason, nothing run, nothing written."""

import json
import os
import tomllib
from contextlib import suppress
from functools import reduce
from pathlib import Path

import pytest
from confusable_homoglyphs.confusables import confusables_data
from pydantic import TypeAdapter
from rwbench.leaderboard import files, records
from rwbench.leaderboard.files import ENTRY, SAMPLES, Name, Refused, skeleton
from rwbench.leaderboard.submissions import check_all, read_folder
from rwbench.methods import Method

from ..command import rwbench

DEEP = reduce(lambda inner, _: {"a": inner}, range(900))
NAIVE = "2026-11-28_naive"
TEXTS = tomllib.loads(Path(__file__).with_name("attacks.toml").read_text(encoding="utf-8"))


def word(name, value):
    return lambda entry: entry.word(name, value)


def spec(**changes):
    return lambda entry: entry.word("spec", entry.words["spec"] | changes)


def line(number, **fields):
    return lambda entry: entry.change(number, **fields)


def lines(change):
    def attack(entry):
        entry.lines = change(entry.lines)

    return attack


def in_line(number, old, new):
    return lines(lambda all: [*all[: number - 1], all[number - 1].replace(old, new, 1), *all[number:]])


def raw(file, change):
    return lambda entry: entry.path(file).write_bytes(change(entry.path(file).read_bytes()))


def rename(name):
    return lambda entry: entry.rename(name)


def dated(day):
    def attack(entry):
        entry.word("date", day)
        entry.rename(f"{day}_bm25")

    return attack


def link(entry):
    entry.path(ENTRY).symlink_to(entry.path(ENTRY).rename(entry.folder.parent / "secret"))


def pipe(entry):
    entry.path(SAMPLES).unlink()
    os.mkfifo(entry.path(SAMPLES))


def submission_that_is_a_link(entry):
    real = entry.folder.rename(entry.folder.with_name("real"))
    entry.folder.symlink_to(real)


def best_of_two(entry):
    """Each question's record of one of two submissions of the board."""
    other = type(entry)(entry.board / NAIVE).lines
    entry.lines = [pair[number % 2] for number, pair in enumerate(zip(entry.lines, other, strict=True))]
    entry.word("name", "Best of both")
    entry.rename("2026-11-28_best")


def as_ones_own(**changes):
    """Another's records, as one's own for another setting."""

    def attack(entry):
        spec(**changes)(entry)
        entry.word("name", "Mine")
        entry.word("submitter", "Somebody")
        entry.rename("2026-11-28_mine")

    return attack


IN_SAMPLES = {
    # questions and gold
    "a hard question left out": (lines(lambda all: all[:-1]), ": 1 of 50 questions are missing"),
    "a second try": (lines(lambda all: [*all, all[0]]), ", line 51: an id occurs twice"),
    "out of the average": (line(4, retrieved=None), ", line 4: retrieved is null on some questions only"),
    "more than K rules": (spec(top_k=10), ", line 1: a search returns more than spec.top_k = 10"),
    "a copy": (rename("2026-11-28_better"), ": all records are those of other submissions, got 2026-11-28_bm25;"),
    "a best of two others": (best_of_two, ": all records are those of other"),
    "another's of the other form": (as_ones_own(representation="fol"), ": all records are those of other"),
    # numbers and formats
    "NaN": (in_line(1, '"usage":{}', '"usage":{"calls":NaN}'), ", line 1: usage.calls: Input should be a valid int"),
    "half a character": (in_line(3, '"output":null', '"output":"\\ud800"'), ", line 3: : Invalid JSON"),
    "a zip bomb": (lines(lambda all: [text + " " * 900_000 for text in all]), ": expands to more than 4 MiB"),
    "millions of lines": (lines(lambda all: all * 2), ": has more than 60 lines"),
    "cut off": (raw(SAMPLES, lambda body: body[:-20]), ": is not whole zstd data"),
    "a novel as output": (line(2, output="a" * 300_000), ", line 2: output: String should have at most"),
    "a pipe": (pipe, ": is not a regular file"),
}  # fmt: skip
IN_ENTRY = {
    "a novel in the spec": (spec(method={"name": "x", "n": "a" * 20_000}), "spec must be plain text of at most 16"),
    "a deep method": (spec(method={"name": "x", "y": DEEP}), ": Invalid JSON"),
    "a date before the data": (dated("2026-11-27"), "date must be the folder's, from 2026-11-28"),
    "a date to come": (dated("2999-01-01"), "date must be the folder's, from 2026-11-28"),
    "Latin-1": (raw(ENTRY, lambda body: body.replace(b"BM25", b"M\xfcller")), ": Invalid JSON"),
    "a hundred thousand lists": (raw(ENTRY, lambda _: b"[" * 30_000), ": Invalid JSON: recursion limit"),
    "a large file": (raw(ENTRY, lambda body: body + b" " * files.MIB), "is larger than"),
    "a link": (link, "is not a regular file"),
}  # fmt: skip
IN_SAMPLES |= {name: (line(at, **fields), f", line {at}: {told}") for name, at, fields, told in TEXTS["line"]}
IN_ENTRY |= {name: (word(key, value), told) for name, key, value, told in TEXTS["word"]}
IN_ENTRY |= {name: (spec(**changes), told) for name, changes, told in TEXTS["spec"]}
UNSEEN = "ВМ25,ꓐꓟ2Ƽ,n\u0251if,na\u0131f,\u3164,\u2800A,A\ufe0fB,A\u200bB,\xad,\x1b[2J,\u202e52MB,B\u0334\u0337,a\u017fb"
for unseen in UNSEEN.split(","):
    IN_ENTRY[f"a name of {unseen!a}"] = (word("name", unseen), "must be in Latin letters")
OF_THE_FOLDER = {
    "a folder as a link": (submission_that_is_a_link, "'2026-11-28_bm25': must be a folder, no link"),
    "a script beside the data": (
        lambda entry: entry.path("run.py").write_text(""),
        "2026-11-28_bm25: must hold",
    ),
    "a file left out": (lambda entry: entry.path(ENTRY).unlink(), "2026-11-28_bm25: must hold"),
    "html as a folder": (rename("2026-11-28_<b>"), "'2026-11-28_<b>': must be a folder"),
}
ATTACKS = (
    {name: (attack, f"{SAMPLES}{reason}") for name, (attack, reason) in IN_SAMPLES.items()}
    | {name: (attack, f"{ENTRY}: {reason}") for name, (attack, reason) in IN_ENTRY.items()}
    | OF_THE_FOLDER
)


def state(folder):
    """Every path below a folder with what would change if it were written to."""
    entries = {path: path.lstat() for path in sorted(folder.rglob("*"))}
    return {str(path): (info.st_mode, info.st_size, info.st_mtime_ns) for path, info in entries.items()}


@pytest.mark.parametrize("name", ATTACKS)
def test_it_is_refused_and_nothing_is_written(name, entry, submissions, tmp_path, monkeypatch):
    attack, reason = ATTACKS[name]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(files, "MAX_EXPANDED", 4 * files.MIB)
    monkeypatch.setattr(records, "MAX_RECORDS", 60)
    entry.board = submissions
    attack(entry)
    before = state(tmp_path)
    refused = check_all([entry.folder], submissions)[entry.folder.name]
    assert isinstance(refused, Refused)
    problems = str(refused).splitlines()
    assert any(problem.startswith(reason) for problem in problems), str(refused)
    assert all("; " in problem and problem.isascii() and len(problem) < 1_200 for problem in problems)
    assert state(tmp_path) == before


def test_names_that_uts_39_calls_confusable_are_one():
    """Of all that a name may hold; `confusable_homoglyphs` has Unicode's table."""
    allowed = set()
    for sign in confusables_data:
        with suppress(ValueError):
            allowed.add(TypeAdapter(Name).validate_python(f"a{sign}b")[1:-1])
    alike = {
        tuple(sorted((sign, other["c"])))
        for sign in allowed
        for other in confusables_data.get(sign, ())
        if allowed >= {*other["c"]}
    }
    assert {("1", "l"), ("I", "l"), ("l", "|"), ("0", "O"), ("m", "rn")} <= alike
    assert not [pair for pair in alike if len({*map(skeleton, pair)}) > 1]


def test_another_s_answers_to_smaller_pools_are_refused(entry, hand_in, runs, tmp_path):
    hand_in(runs["solver"], tmp_path / "board", "solver", kind="ceiling")
    known = type(entry)(next((tmp_path / "board").iterdir()))
    known.change_all(lambda record: record.update(output=rf"So \boxed{{{record['answers'][0]}}}"))
    entry.lines = known.lines
    entry.change_all(lambda record: record.update(retrieved=None))
    as_ones_own(pool_size=500)(entry)
    refused = check_all([entry.folder], tmp_path / "board")[entry.folder.name]
    assert f"{SAMPLES}: all records are those of other submissions" in str(refused)


def test_what_is_like_another_in_part_is_accepted(entry, submissions, monkeypatch):
    """And its spec builds no method, since its fields may name folders and servers."""
    monkeypatch.setattr(Method, "from_dict", None)
    records = [json.loads(text)["retrieved"][0] for text in entry.lines]
    entry.change(1, retrieved=[records[0][::-1]])
    entry.rename("2026-11-28_mine")
    entry.word("name", "Mine")
    checked = check_all([submissions / "2026-11-28_bm25", entry.folder], submissions)
    assert not any(isinstance(result, Refused) for result in checked.values())


@pytest.mark.parametrize("error", [ValueError("a\x1b"), RecursionError(), OSError(5, "disk"), KeyError("a")])
def test_a_check_that_breaks_refuses_its_folder_and_no_other(error, submissions, monkeypatch):
    def read(folder):
        if folder.name == NAIVE:
            raise error
        return read_folder(folder)

    monkeypatch.setattr("rwbench.leaderboard.submissions.read_folder", read)
    checked = check_all(files.submission_folders(submissions))
    refused = {name: str(result) for name, result in checked.items() if isinstance(result, Refused)}
    assert list(refused) == [NAIVE] and f"cannot be checked ({type(error).__name__}" in refused[NAIVE]
    assert refused[NAIVE].isascii() and refused[NAIVE].isprintable()


def test_the_command_says_so_and_fails(entry, tmp_path):
    entry.word("name", "\x1b[2J<b>")
    run = rwbench("validate", entry.folder)
    assert run.exit_code == 1 and "refused" in run.stdout and "\x1b" not in run.stdout
    run = rwbench("validate", entry.folder, "--json")
    (report,) = json.loads(run.stdout)["submissions"]
    assert report["accepted"] is False and report["problems"][0].startswith(ENTRY)
    run = rwbench("validate", tmp_path / "2026-11-28_nothing")
    assert run.exit_code == 2 and "rwbench submit" in run.stderr
