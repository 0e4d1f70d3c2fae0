"""Hostile submissions: each refused for the right reason, nothing run, nothing written."""

import json
import os
import tracemalloc

import pytest
from rwbench.cli.app import app
from rwbench.leaderboard import files, records
from rwbench.leaderboard.copies import skeleton
from rwbench.leaderboard.files import ENTRY, SAMPLES, packed
from rwbench.leaderboard.parsing import Refused
from rwbench.leaderboard.submissions import check_all, fingerprints, validate
from typer.testing import CliRunner

HTML = "<img src=x onerror=alert(1)>"
NAIVE = "2026-01-31_naive"


def word(name, value):
    return lambda entry: entry.word(name, value)


def spec(**changes):
    return lambda entry: entry.spec(**changes)


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


def link(file, to=None):
    def attack(entry):
        secret = to or entry.folder.parent / "secret"
        entry.path(file).rename(entry.folder.parent / "secret")
        entry.path(file).symlink_to(secret)

    return attack


def pipe(entry):
    entry.path(SAMPLES).unlink()
    os.mkfifo(entry.path(SAMPLES))


def submission_that_is_a_link(entry):
    real = entry.folder.rename(entry.folder.with_name("real"))
    entry.folder.symlink_to(real)


def swap_ranks(entry):
    def swap(record):
        record["retrieved"][0][8:10] = record["retrieved"][0][8:10][::-1]

    spoilt = {json.loads(text)["id"] for text in entry.lines[:20]}
    entry.change_all(lambda record: swap(record) if record["id"] in spoilt else None)


def deep(depth):
    value: dict = {}
    for _ in range(depth):
        value = {"a": value}
    return value


# What is spoilt, the file and line that are named (None: no line), and what is said.
ATTACKS = {
    # questions and gold
    "gold beside the answers": (line(3, gold_answers=["8"]), SAMPLES, 3, "gold_answers is an unknown field"),
    "a question of another task": (line(2, id="multi_hop_3-mini-0000001"), SAMPLES, 2, "not the id of"),
    "a question of the train split": (line(2, id="multi_hop_2-train-0000001"), SAMPLES, 2, "not the id of"),
    "html in an id": (line(1, id=HTML), SAMPLES, 1, "not the id of a question asked"),
    "a hard question left out": (lines(lambda all: all[:-1]), SAMPLES, None, "questions are missing"),
    "a second try": (lines(lambda all: [*all, all[0]]), SAMPLES, 51, "an id occurs twice"),
    "no samples": (lines(lambda all: []), SAMPLES, None, "questions are missing"),
    "out of the average": (line(4, retrieved=None), SAMPLES, 4, "retrieved is null on some questions only"),
    "a failed question": (line(5, outcome="failed"), SAMPLES, 5, "outcome must be 'ok'"),
    "a rule from elsewhere": (line(2, retrieved=[[10**9]]), SAMPLES, 2, "not in the question's pool"),
    "a rule twice": (line(2, retrieved=[[5, 5]]), SAMPLES, 2, "retrieved.0 must name each rule once"),
    "more than K rules": (spec(top_k=10), SAMPLES, 1, "more than spec.top_k = 10"),
    "answers that no output has": (
        line(1, answers=["8"], output=r"so \boxed{9}"),
        SAMPLES,
        1,
        "answers are not what the scorer reads in output",
    ),
    "a copy": (
        lambda entry: entry.rename("2026-01-31_better"),
        SAMPLES,
        None,
        "100% of the records, rankings included, are those of other submissions",
    ),
    "a copy, half of it spoilt": (
        lambda entry: (swap_ranks(entry), entry.rename("2026-01-31_better")),
        SAMPLES,
        None,
        "of the records, rankings included, are those of other submissions",
    ),
    # the run's spec
    "gold as a contender": (
        spec(method={"name": "prompting", "rules": "gold"}),
        ENTRY,
        None,
        "spec.method looks at gold data, got 'gold'",
    ),
    "a seed that is no number": (spec(pool_seed=0.0), ENTRY, None, "spec is not a run's"),
    "a sealed world": (spec(world_seed=7), ENTRY, None, "spec.world_seed is not on the board"),
    "another split": (spec(split="train"), ENTRY, None, "spec.split is not on the board"),
    "a few questions": (spec(limit=3, limit_by="fold"), ENTRY, None, "spec.limit is not on the board"),
    "a pool of its own": (spec(pool_size=7), ENTRY, None, "the board has pools of"),
    "an easier pool": (spec(pool_scope="batch"), ENTRY, None, "spec.pool_scope is not on the board"),
    "sub-tasks twice": (spec(subtasks=["multi_hop_2"] * 2), ENTRY, None, "spec"),
    "other data": (spec(data="0.0"), ENTRY, None, "spec.data is not on the board"),
    "html in the spec": (spec(method={"name": "x", "note": HTML}), ENTRY, None, "spec must be plain text"),
    "a novel in the spec": (spec(method={"name": "x", "n": "a" * 20_000}), ENTRY, None, "at most 16 KiB"),
    "a spec that is a list": (word("spec", []), ENTRY, None, "spec must be a valid dictionary"),
    # numbers
    "NaN": (in_line(1, '"usage":{', '"usage":{"calls":NaN,'), SAMPLES, 1, "NaN and infinity are no JSON"),
    "an overflow": (in_line(1, '"usage":{', '"usage":{"calls":1e999,'), SAMPLES, 1, "out of range"),
    "ten thousand digits": (
        in_line(1, '"usage":{', '"usage":{"calls":' + "9" * 10_000 + ","),
        SAMPLES,
        1,
        "more than 15 digits",
    ),
    "a negative count": (line(7, usage={"calls": -1}), SAMPLES, 7, "calls must be greater than or equal"),
    "half a token": (line(2, usage={"prompt_tokens": 1.5}), SAMPLES, 2, "must be a valid integer"),
    "a cost of its own": (line(1, usage={HTML: 1}), SAMPLES, 1, "unknown field"),
    "true and false as rules": (line(7, retrieved=[[True, False]]), SAMPLES, 7, "must be a valid integer"),
    "a cost that is a word": (word("cost_usd", "free"), ENTRY, None, "cost_usd must be a valid number"),
    # words
    "a script as a link": (word("code", "javascript:alert(1)"), ENTRY, None, "code must be an https link"),
    "html in a link": (
        word("paper", 'https://a.example/"><script>'),
        ENTRY,
        None,
        "paper must be an https link",
    ),
    "a tower of accents": (word("name", "B" + "\u0334\u0337\u0338\u0336" * 5), ENTRY, None, "two accents"),
    "a ligature of a sentence": (word("name", "\ufdfa" * 10), ENTRY, None, "60 characters spelt out"),
    "an endless name": (word("name", "a" * 5_000), ENTRY, None, "1 to 60 characters"),
    "a name of dots": (word("name", "..."), ENTRY, None, "must have a letter or a digit"),
    "a date to come": (word("date", "2999-01-01"), ENTRY, None, "must not lie in the future"),
    "a date of old": (word("date", "0001-01-01"), ENTRY, None, "must not lie in the future or before"),
    "a date that is none": (word("date", "2026-02-30"), ENTRY, None, "must be a day as YYYY-MM-DD"),
    "another date": (word("date", "2026-01-30"), ENTRY, None, "date is not the folder's"),
    "a kind of its own": (word("kind", "winner"), ENTRY, None, "kind must be"),
    "a rank": (word("rank", "1"), ENTRY, None, "rank is an unknown field"),
    "another's name": (
        word("name", "BM25, Naive Tokens"),
        ENTRY,
        None,
        f"name reads like 'BM25, naive tokens' of {NAIVE}",
    ),
    "another's name in Cyrillic": (
        word("name", "ВМ25, nаivе tоkеns"),
        ENTRY,
        None,
        "name reads like 'BM25, naive tokens'",
    ),
    "a submitter like another": (word("submitter", "The teѕters"), ENTRY, None, "submitter reads like"),
    # files and formats
    "Latin-1": (raw(ENTRY, lambda body: body.replace(b"BM25", b"M\xfcller")), ENTRY, 2, "is not UTF-8"),
    "UTF-16": (raw(ENTRY, lambda body: body.decode().encode("utf-16")), ENTRY, 1, "is not UTF-8"),
    "a byte order mark": (raw(ENTRY, lambda body: b"\xef\xbb\xbf" + body), ENTRY, None, "byte order mark"),
    "half a character": (in_line(3, '"output":null', '"output":"\\ud800"'), SAMPLES, 3, "half a surrogate"),
    "a key twice": (in_line(1, '"id":', '"id":"x","id":'), SAMPLES, 1, "a key occurs twice"),
    "a hundred thousand lists": (raw(ENTRY, lambda _: b"[" * 30_000), ENTRY, None, "is nested too deep"),
    "a deep method": (spec(method={"name": "x", "y": deep(900)}), ENTRY, None, ""),
    "Python": (raw(ENTRY, lambda _: b"__import__('os')"), ENTRY, 1, "is not JSON"),
    "a list": (raw(ENTRY, lambda _: b"[]"), ENTRY, None, "content must be a valid dictionary"),
    "a zip bomb": (lines(lambda all: [text + " " * 900_000 for text in all]), SAMPLES, None, "expands to"),
    "a bomb of one line": (
        raw(SAMPLES, lambda _: packed(b"a" * 3 * files.MIB)),
        SAMPLES,
        1,
        "more than 1 MiB",
    ),
    "millions of lines": (lines(lambda all: all * 2), SAMPLES, 61, "has more than 60 lines"),
    "lines that are no samples": (
        raw(SAMPLES, lambda _: packed(b"[]\n" * 1_500_000)),
        SAMPLES,
        1,
        "content must be a valid dictionary",
    ),
    "a hundred thousand rules": (
        line(2, retrieved=[[*range(100_000)]]),
        SAMPLES,
        2,
        "retrieved.0 must have at most 100 items",
    ),
    "gzip": (raw(SAMPLES, lambda _: b"\x1f\x8b\x08"), SAMPLES, None, "is not whole zstd data"),
    "cut off": (raw(SAMPLES, lambda body: body[:-20]), SAMPLES, None, "is not whole zstd data"),
    "no end": (raw(SAMPLES, lambda _: packed(b"{")), SAMPLES, 1, "the last line has no line break"),
    "an empty line": (lines(lambda all: [all[0], "", *all[1:]]), SAMPLES, 2, "is not JSON"),
    "a novel as output": (line(2, output="a" * 300_000), SAMPLES, 2, "at most 200000 characters"),
    "a large file": (raw(ENTRY, lambda body: body + b" " * files.MIB), ENTRY, None, "is larger than"),
    "a link": (link(ENTRY), ENTRY, None, "is not a regular file"),
    "a link to nowhere": (link(ENTRY, "/nowhere"), ENTRY, None, "is not a regular file"),
    "a pipe": (pipe, SAMPLES, None, "is not a regular file"),
    "a folder as a link": (submission_that_is_a_link, "'2026-01-31_bm25'", None, "is not a folder"),
    "a script beside the data": (
        lambda entry: entry.path("run.py").write_text("import os\n"),
        "'run.py'",
        None,
        "is not a file of a submission",
    ),
    "a file left out": (lambda entry: entry.path(ENTRY).unlink(), ENTRY, None, "is missing"),
    "an option as a name": (lambda entry: entry.rename("--help"), "folder", None, "its name must be a date"),
    "html as a folder": (lambda entry: entry.rename("2026-01-31_<b>"), "folder", None, "its name must be"),
}
for field in ("name", "submitter", "description", "model", "hardware"):
    ATTACKS[f"html in {field}"] = (word(field, HTML), ENTRY, None, f"{field} must be plain text")
for (
    unseen
) in "\u3164 A\u115f \u2800A A\ufe0fB A\u034fB A\u200bB A\u2066B A\u200fB A\xadB \x1b[2J \u202e52MB".split(
    " "
):
    ATTACKS[f"unseen {unseen!a}"] = (word("submitter", unseen), ENTRY, None, "control or invisible")


def state(folder):
    """Every path below a folder with what would change if it were written to."""
    entries = {path: path.lstat() for path in sorted(folder.rglob("*"))}
    return {str(path): (about.st_mode, about.st_size, about.st_mtime_ns) for path, about in entries.items()}


def test_the_good_one_is_accepted(entry, judge, submissions):
    accepted = validate(entry.folder, judge, fingerprints(submissions))
    assert accepted.entry.name == "BM25"
    assert accepted.results["metrics"]["recall@1"]["macro"]["value"] > 0


@pytest.mark.parametrize("name", ATTACKS)
def test_it_is_refused_and_nothing_is_written(name, entry, judge, submissions, tmp_path, monkeypatch):
    attack, file, number, reason = ATTACKS[name]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(files, "MAX_EXPANDED", 4 * files.MIB)
    monkeypatch.setattr(records, "MAX_RECORDS", 60)
    attack(entry)
    before = state(tmp_path)
    refused = check_all([entry.folder], judge, fingerprints(submissions))[entry.folder.name]
    assert isinstance(refused, Refused)
    said = [problem for problem in refused.problems if reason in str(problem)]
    assert said, str(refused)
    if reason:
        assert said[0].file == file and number in (None, said[0].line), str(refused)
    assert all(problem.fix and str(problem).isascii() for problem in refused.problems)
    assert max(len(str(problem)) for problem in refused.problems) < 1_200
    assert state(tmp_path) == before


def test_what_expands_is_refused_before_it_is_there(entry):
    """At the real limit: 58 KB took 37 seconds of CPU and 2.5 GB once."""
    body = packed((b" " * 999_999 + b"\n") * 70)
    assert len(body) < 58_000
    tracemalloc.start()
    with pytest.raises(Refused, match="expands to more than 64 MiB"):
        for _ in files.sample_lines(body):
            pass
    assert tracemalloc.get_traced_memory()[1] < 16 * files.MIB
    tracemalloc.stop()


def test_a_best_of_two_others_is_refused(entry, submissions, judge):
    """Each question's better ranking of two submissions of the board."""
    other = type(entry)(submissions / NAIVE).lines
    entry.lines = [pair[number % 2] for number, pair in enumerate(zip(entry.lines, other, strict=True))]
    entry.word("name", "Best of both")
    entry.rename("2026-01-31_best")
    with pytest.raises(Refused, match="100% of the records, rankings included"):
        validate(entry.folder, judge, fingerprints(submissions))


def test_answers_of_another_without_its_rankings_are_refused(entry, judge):
    """Of another pool or form, too: the fingerprint of answers holds no rules."""

    def say(record):
        record |= {"answers": [record["id"][-2:]], "output": f"so \\boxed{{{record['id'][-2:]}}}"}

    entry.change_all(say)
    theirs = validate(entry.folder, judge).fingerprint
    entry.change_all(lambda record: record.update(retrieved=None))
    entry.word("name", "Mine")
    with pytest.raises(Refused, match="all answers are those of another submission, got 2026-01-31_theirs"):
        validate(entry.folder, judge, {"2026-01-31_theirs": theirs})
    entry.change(1, answers=["0"], output=r"\boxed{0}")
    assert validate(entry.folder, judge, {"2026-01-31_theirs": theirs}).entry.name == "Mine"


@pytest.mark.parametrize(("one", "other"), [("BM25", "вм25"), ("a.b", "A B"), ("rn", "m"), ("v1.5", "v1.5")])
def test_names_that_look_alike_share_a_skeleton(one, other):
    assert skeleton(one) == skeleton(other)
    assert skeleton("v1.5") != skeleton("v15")


@pytest.mark.parametrize("error", [ValueError("a\x1b"), RecursionError(), OSError(5, "disk"), KeyError("a")])
def test_a_check_that_breaks_refuses_its_folder_and_no_other(error, submissions, judge, monkeypatch):
    from rwbench.leaderboard import submissions as module

    real = module.read_folder

    def read(folder):
        if folder.name == NAIVE:
            raise error
        return real(folder)

    monkeypatch.setattr(module, "read_folder", read)
    checked = check_all(files.submission_folders(submissions), judge)
    refused = {name: str(result) for name, result in checked.items() if isinstance(result, Refused)}
    assert list(refused) == [NAIVE] and f"cannot be checked ({type(error).__name__}" in refused[NAIVE]
    assert refused[NAIVE].isascii() and refused[NAIVE].isprintable()
    assert set(fingerprints(submissions)) == set(checked) - {NAIVE}


def test_validation_builds_no_method(entry, judge, monkeypatch):
    """A spec's fields may name folders and servers."""
    from rwbench.methods import Method

    monkeypatch.setattr(Method, "from_dict", None)
    assert validate(entry.folder, judge).folder == entry.folder.name


def test_a_file_that_becomes_a_link_after_the_look_is_not_followed(entry, judge, monkeypatch):
    real, plain = files._lstat, entry.path(SAMPLES).lstat()
    monkeypatch.setattr(files, "_lstat", lambda path: plain if path.name == ENTRY else real(path))
    link(ENTRY)(entry)
    refused = check_all([entry.folder], judge)[entry.folder.name]
    assert isinstance(refused, Refused) and "cannot be checked (OSError" in str(refused)


GOOD = ":000000 100644 0000000 a1b2c3d A\0benchmarks/leaderboard/submissions/2026-01-31_a/submission.json\0"


@pytest.mark.parametrize("torn", [GOOD[:-1], GOOD[:20], GOOD[33:], ":\0a\0", "\0", " \0", GOOD + "x"])
def test_a_damaged_list_of_files_is_refused(torn, tmp_path):
    assert files.added_submissions(GOOD.encode(), tmp_path) == [tmp_path / files.SUBMISSIONS / "2026-01-31_a"]
    with pytest.raises(Refused, match="its list of files is damaged"):
        files.added_submissions(torn.encode(), tmp_path)


def test_the_command_says_so_and_fails(entry, tmp_path):
    entry.word("name", "\x1b[2J<b>")
    run = CliRunner().invoke(app, ["validate", str(entry.folder)])
    assert run.exit_code == 1 and "refused" in run.stdout and "\x1b" not in run.stdout
    run = CliRunner().invoke(app, ["validate", str(entry.folder), "--json"])
    (report,) = json.loads(run.stdout)["submissions"]
    assert report["accepted"] is False and report["problems"][0]["file"] == ENTRY
    run = CliRunner().invoke(app, ["validate", str(tmp_path / "2026-01-31_nothing")])
    assert run.exit_code == 2 and "rwbench submit" in run.stderr
