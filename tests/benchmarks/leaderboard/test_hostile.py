"""Hostile submissions: each refused for the right reason, nothing run, nothing written."""

import json
import os
import tracemalloc

import pytest
from rwbench.cli.app import app
from rwbench.leaderboard import files, records
from rwbench.leaderboard.copies import alike
from rwbench.leaderboard.files import ENTRY, SAMPLES, packed
from rwbench.leaderboard.problems import MAX_PROBLEMS, Refused
from rwbench.leaderboard.submissions import check_all, fingerprints, validate
from typer.testing import CliRunner

HTML = "<img src=x onerror=alert(1)>"
NAIVE = "2026-11-28_naive"


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


def samples(body):
    return raw(SAMPLES, lambda _: packed(body))


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


def copy_with_ranks_swapped_in_a_third(entry):
    def swap(record):
        if record["id"] in spoilt:
            record["retrieved"][0][8:10] = record["retrieved"][0][8:10][::-1]

    spoilt = {json.loads(text)["id"] for text in entry.lines[:20]}
    entry.change_all(swap)
    entry.rename("2026-11-28_better")


def deep(depth):
    value: dict = {}
    for _ in range(depth):
        value = {"a": value}
    return value


IN_SAMPLES = {
    # questions and gold
    "gold beside the answers": (line(3, gold_answers=["8"]), ", line 3: gold_answers is an unknown field"),
    "a question of the train split": (line(2, id="multi_hop_2-train-0000001"), ", line 2: is not the id of"),
    "html in an id": (line(1, id=HTML), ", line 1: is not the id of a question asked"),
    "a hard question left out": (lines(lambda all: all[:-1]), ": 1 of 50 questions are missing"),
    "a second try": (lines(lambda all: [*all, all[0]]), ", line 51: an id occurs twice"),
    "out of the average": (line(4, retrieved=None), ", line 4: retrieved is null on some questions only"),
    "a failed question": (line(5, outcome="failed"), ", line 5: outcome must be 'ok'"),
    "a rule from elsewhere": (line(2, retrieved=[[10**9]]), ", line 2: a rule is not in the question's pool"),
    "a rule twice": (line(2, retrieved=[[5, 5]]), ", line 2: retrieved.0 must name each rule once"),
    "more than K rules": (spec(top_k=10), ", line 1: a search returns more than spec.top_k = 10"),
    "answers that no output has": (
        line(1, answers=["8"], output=r"so \boxed{9}"),
        ", line 1: content answers are not what the scorer reads in output",
    ),
    "a copy": (rename("2026-11-28_better"), ": 100% of the records, rankings included, are those of other"),
    "a copy, a third of it spoilt": (copy_with_ranks_swapped_in_a_third, ": 60% of the records, rankings"),
    # numbers
    "NaN": (in_line(1, '"usage":{', '"usage":{"calls":NaN,'), ", line 1: is not strict JSON (NaN is no JSON)"),
    "an overflow": (in_line(1, '"usage":{}', '"usage":{"cost_usd":1e999}'), ", line 1: usage.cost_usd must be less"),
    "ten thousand digits": (
        in_line(1, '"usage":{', '"usage":{"calls":' + "9" * 10_000 + ","),
        ", line 1: is not strict JSON (Exceeds the limit",
    ),
    "a negative count": (line(7, usage={"calls": -1}), ", line 7: usage.calls must be greater than or equal"),
    "a cost of its own": (line(1, usage={HTML: 1}), f", line 1: 'usage.{HTML}' is an unknown field"),
    "true and false as rules": (line(7, retrieved=[[True, False]]), ", line 7: retrieved.0.0 must be a valid"),
    # formats
    "half a character": (in_line(3, '"output":null', '"output":"\\ud800"'), ", line 3: output must be a valid"),
    "a key twice": (in_line(1, '"id":', '"id":"x","id":'), ", line 1: is not strict JSON (a key occurs twice)"),
    "a zip bomb": (lines(lambda all: [text + " " * 900_000 for text in all]), ", line 5: expands to more than 4"),
    "a bomb of one line": (samples(b"a" * 3 * files.MIB), ", line 1: a line has more than 1 MiB"),
    "millions of lines": (lines(lambda all: all * 2), ", line 61: has more than 60 lines"),
    "lines that are no samples": (samples(b"[]\n" * 1_300_000), ", line 1: content must be a valid dictionary"),
    "a hundred thousand rules": (line(2, retrieved=[[*range(100_000)]]), ", line 2: retrieved.0 must have at most"),
    "gzip": (raw(SAMPLES, lambda _: b"\x1f\x8b\x08"), ": is not whole zstd data"),
    "cut off": (raw(SAMPLES, lambda body: body[:-20]), ": is not whole zstd data"),
    "no end": (samples(b"{"), ", line 1: has no line break, so the file is cut off"),
    "an empty line": (lines(lambda all: [all[0], "", *all[1:]]), ", line 2: is not strict JSON (Expecting value"),
    "a novel as output": (line(2, output="a" * 300_000), ", line 2: output must have at most 200000 characters"),
    "a pipe": (pipe, ": is not a regular file"),
}  # fmt: skip
IN_ENTRY = {
    # the run's spec
    "gold as a contender": (spec(method={"name": "prompting", "rules": "gold"}), "spec.method looks at gold data"),
    "a seed that is no number": (spec(pool_seed=0.0), "spec is not a run's"),
    "a sealed world": (spec(world_seed=7), "spec.world_seed is not on the board"),
    "another split": (spec(split="train"), "spec.split is not on the board"),
    "a few questions": (spec(limit=3, limit_by="fold"), "spec.limit is not on the board"),
    "a pool of its own": (spec(pool_size=7), "spec is not a run's (the board has pools of"),
    "an easier pool": (spec(pool_scope="batch"), "spec.pool_scope is not on the board"),
    "long lists": (spec(top_k=101), "spec.top_k is not on the board"),
    "sub-tasks twice": (spec(subtasks=["multi_hop_2"] * 2), "spec.subtasks is not on the board"),
    "other data": (spec(data="0.0"), "spec.data is not on the board"),
    "html in the spec": (spec(method={"name": "x", "note": HTML}), "spec must be plain text"),
    "a terminal's codes in the spec": (spec(method={"name": "\x1b[2J"}), "spec must be plain text"),
    "a novel in the spec": (spec(method={"name": "x", "n": "a" * 20_000}), "spec must have at most 16 KiB"),
    # words
    "html in a link": (word("paper", 'https://a.example/"><script>'), "paper must match pattern"),
    "a line break after a link": (word("paper", "https://a.example/\n"), "paper must match pattern"),
    "a tower of accents": (word("name", "B" + "\u0334\u0337\u0338\u0336" * 5), "name must be one line without"),
    "letters in pieces": (word("name", "a\u0308"), "name must have composed characters"),
    "a ligature of a sentence": (word("name", "\ufdfa" * 10), "name must have 1 to 60 characters spelt out"),
    "an endless name": (word("name", "a" * 5_000), "name must have 1 to 60 characters"),
    "a name of dots": (word("name", "..."), "name must have a letter or a digit"),
    "a date to come": (dated("2999-01-01"), "date must lie between 2026-11-28"),
    "a date of old": (dated("0001-01-01"), "date must lie between 2026-11-28"),
    "a date before the data": (dated("2026-11-27"), "date must lie between 2026-11-28, when data 1.1.0 came out"),
    "a date that is none": (word("date", "2026-02-30"), "date day is out of range for month"),
    "another date": (word("date", "2026-01-30"), "date is not the folder's"),
    "a rank": (word("rank", "1"), "rank is an unknown field"),
    "another's name": (word("name", "BM25, Naive Tokens"), f"name reads like 'BM25, naive tokens' of {NAIVE}"),
    "another's name in Cyrillic": (word("name", "ВМ25, nаivе tоkеns"), "name reads like 'BM25, naive tokens'"),
    "another's name in Lisu and digits": (word("name", "ꓐꓟ2Ƽ, ոaive tokens"), "name reads like 'BM25, naive tokens'"),
    "another's name in small capitals": (word("name", "ʙᴍ25 ɴᴀɪᴠᴇ ᴛᴏᴋᴇɴꜱ"), "name reads like 'BM25, naive tokens'"),
    "another's name in wide letters": (word("name", "ＢＭ２５，ｎａｉｖｅ tokens"), "name reads like"),
    "a submitter like another": (word("submitter", "The teѕters"), "submitter reads like"),
    # formats
    "Latin-1": (raw(ENTRY, lambda body: body.replace(b"BM25", b"M\xfcller")), "is not strict JSON ('utf-8' codec"),
    "a byte order mark": (raw(ENTRY, lambda body: b"\xef\xbb\xbf" + body), "is not strict JSON (Unexpected UTF-8 BOM"),
    "a hundred thousand lists": (raw(ENTRY, lambda _: b"[" * 30_000), "is not strict JSON (maximum recursion"),
    "a large file": (raw(ENTRY, lambda body: body + b" " * files.MIB), "is larger than"),
    "a link": (link, "is not a regular file"),
    "a file left out": (lambda entry: entry.path(ENTRY).unlink(), "is missing"),
}  # fmt: skip
for field in ("name", "submitter", "description", "model", "hardware"):
    IN_ENTRY[f"html in {field}"] = (word(field, HTML), f"{field} must be plain text")
for unseen in (
    "\u3164,A\U0001d159B,A\u115f,\u2800A,A\ufe0fB,A\u034fB,A\u200bB,A\u2066B,A\xadB,\x1b[2J,\u202e52MB".split(
        ","
    )
):
    IN_ENTRY[f"unseen {unseen!a}"] = (word("submitter", unseen), "submitter must be one line without control")
OF_THE_FOLDER = {
    "a folder as a link": (submission_that_is_a_link, "2026-11-28_bm25: is not a folder"),
    "a script beside the data": (lambda entry: entry.path("run.py").write_text("import os\n"), "'run.py': is not a"),
    "html as a folder": (rename("2026-11-28_<b>"), "folder: its name must be"),
    "a deep method": (spec(method={"name": "x", "y": deep(900)}), ""),
}  # fmt: skip
ATTACKS = (
    {name: (attack, f"{SAMPLES}{reason}") for name, (attack, reason) in IN_SAMPLES.items()}
    | {name: (attack, f"{ENTRY}: {reason}") for name, (attack, reason) in IN_ENTRY.items()}
    | OF_THE_FOLDER
)


def state(folder):
    """Every path below a folder with what would change if it were written to."""
    entries = {path: path.lstat() for path in sorted(folder.rglob("*"))}
    return {str(path): (info.st_mode, info.st_size, info.st_mtime_ns) for path, info in entries.items()}


def test_the_good_one_is_accepted(entry, judge, submissions):
    accepted = validate(entry.folder, judge, fingerprints(submissions))
    assert accepted.entry.name == "BM25"
    assert accepted.results["metrics"]["recall@1"]["macro"]["value"] > 0


@pytest.mark.parametrize("name", ATTACKS)
def test_it_is_refused_and_nothing_is_written(name, entry, judge, submissions, tmp_path, monkeypatch):
    attack, reason = ATTACKS[name]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(files, "MAX_EXPANDED", 4 * files.MIB)
    monkeypatch.setattr(records, "MAX_RECORDS", 60)
    attack(entry)
    before = state(tmp_path)
    refused = check_all([entry.folder], judge, fingerprints(submissions))[entry.folder.name]
    assert isinstance(refused, Refused)
    problems = str(refused).splitlines()
    assert any(problem.startswith(reason) for problem in problems), str(refused)
    assert all("; " in problem and problem.isascii() and len(problem) < 1_200 for problem in problems)
    assert len(problems) <= MAX_PROBLEMS
    assert state(tmp_path) == before


def test_what_expands_is_refused_before_it_is_there():
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
    entry.rename("2026-11-28_best")
    with pytest.raises(Refused, match="100% of the records, rankings included"):
        validate(entry.folder, judge, fingerprints(submissions))


STEPS = "It is asked what it has, and by the second rule that is"


def answering(number):
    """Give every question an answer and a text of its own, as method ``number`` would, and no rankings."""

    def say(record):
        answer = str((int(record["id"][-2:]) * 7 + number) % 100)
        record |= {"answers": [answer], "output": f"{STEPS} {answer}: \\boxed{{{answer}}}", "retrieved": None}

    return say


@pytest.mark.parametrize(
    "text",
    [
        STEPS + " {0}: {box}",
        STEPS.upper() + " {0} {box}",
        STEPS.replace(" ", "\n ") + "{0}: {box}",
        "So {box}",
        None,
    ],
    ids=["as it is", "other case", "blanks", "other words", "answers alone"],
)
def test_answers_of_another_are_refused_however_they_are_retold(text, entry, judge):
    """Of another pool or form, too: the fingerprint of answers holds no rules."""

    def retell(record):
        (answer,) = record["answers"]
        record["output"] = text and text.format(answer, box=f"\\boxed{{{answer}}}")

    entry.change_all(answering(0))
    theirs = validate(entry.folder, judge).fingerprint._replace(cell=("nl", 500))
    others = {"2026-11-28_theirs": theirs}
    entry.word("name", "Mine")
    entry.change_all(retell)
    with pytest.raises(Refused, match="all answers are those of another submission, got 2026-11-28_theirs"):
        validate(entry.folder, judge, others)
    # right answers are nobody's: a ceiling has the same, and so may two who write no more than them
    ceiling = {"2026-11-28_solver": theirs._replace(kind="ceiling", outputs=frozenset())}
    outputs = theirs._replace(outputs=frozenset())
    copies = ceiling | {"2026-11-28_theirs": theirs}
    if text is None or text.startswith("So"):
        assert validate(entry.folder, judge, copies).entry.name == "Mine"
    assert validate(entry.folder, judge, ceiling | {"2026-11-28_theirs": outputs}).entry.name == "Mine"
    entry.change(1, answers=["0"], output=f"{STEPS} another: \\boxed{{0}}")
    assert validate(entry.folder, judge, others).entry.name == "Mine"


def test_a_best_of_two_others_answers_is_refused(entry, judge):
    others, lines = {}, []
    for number in range(2):
        entry.change_all(answering(number))
        others[f"2026-11-28_m{number}"] = validate(entry.folder, judge).fingerprint
        lines.append(entry.lines)
    entry.lines = [pair[number % 2] for number, pair in enumerate(zip(*lines, strict=True))]
    entry.word("name", "Best of both")
    with pytest.raises(Refused, match="all answers are those of several other submissions"):
        validate(entry.folder, judge, others)


def test_a_pull_request_names_no_day_to_come_and_the_board_needs_no_clock(
    submissions, judge, monkeypatch, entry
):
    dated("2027-11-29")(entry)
    with pytest.raises(Refused, match="and 2027-11-28, got 2027-11-29; give the day of the pull request"):
        validate(entry.folder, judge, latest="2027-11-28")
    assert validate(entry.folder, judge).entry.date == "2027-11-29"
    monkeypatch.setattr("rwbench.leaderboard.submissions.date", None)
    assert not any(
        isinstance(c, Refused) for c in check_all(files.submission_folders(submissions), judge).values()
    )


def test_names_that_look_alike():
    pairs = [
        "BM25 вм25",
        "BM25 ＢＭ２５",
        "a.b AB",
        "rn m",
        "ΝΑΙ ναι",
        "OpenAI 0penAl",
        "v1.5 v1．5",
        "Google Ꮐoogle",
    ]
    assert [pair for pair in pairs if not alike(*pair.split())] == []
    assert not alike("v1.5", "v15") and not alike("C#", "C")


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


def test_the_command_says_so_and_fails(entry, tmp_path):
    entry.word("name", "\x1b[2J<b>")
    run = CliRunner().invoke(app, ["validate", str(entry.folder)])
    assert run.exit_code == 1 and "refused" in run.stdout and "\x1b" not in run.stdout
    run = CliRunner().invoke(app, ["validate", str(entry.folder), "--json"])
    (report,) = json.loads(run.stdout)["submissions"]
    assert report["accepted"] is False and report["problems"][0].startswith(ENTRY)
    run = CliRunner().invoke(app, ["validate", str(tmp_path / "2026-11-28_nothing")])
    assert run.exit_code == 2 and "rwbench submit" in run.stderr
