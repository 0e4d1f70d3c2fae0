"""Hostile submissions: each refused for the right reason, nothing run, nothing written."""

import json
import os
import time
import tracemalloc

import pytest
from rwbench.cli.app import app
from rwbench.leaderboard import files, records
from rwbench.leaderboard.files import METADATA, RESULTS, SAMPLES
from rwbench.leaderboard.parsing import Refused
from rwbench.leaderboard.validate import check_all, fingerprints, validate
from rwbench.score.samples import packed
from typer.testing import CliRunner

HTML = "<img src=x onerror=alert(1)>"
SCRIPT = "</script><script>alert(1)</script>"
CASES = {}
SECONDS = 15
"""Of CPU, to refuse: ten times what the slowest takes; a submission must not keep the checks busy."""


def case(file, line, reason):
    """Register an attack: ``reason`` must be in what is said about ``file`` and ``line`` (None: no line)."""

    def register(attack):
        CASES[attack.__name__] = (attack, file, line, reason)
        return attack

    return register


def set_in(entry, path, value):
    results = entry.results
    *front, last = path
    place = results
    for name in front:
        place = place[name]
    place[last] = value
    entry.results = results


# Scores.


@case(RESULTS, None, "'metrics.recall@1.macro.value' is not what the samples give")
def edited_score(entry):
    set_in(entry, ("metrics", "recall@1", "macro", "value"), 0.99)


@case(RESULTS, None, "'metrics.recall@1.macro.value' is not what the samples give")
def score_edited_just_above_the_tolerance(entry):
    value = entry.results["metrics"]["recall@1"]["macro"]["value"]
    set_in(entry, ("metrics", "recall@1", "macro", "value"), value + 1e-5)


@case(RESULTS, None, "'metrics.recall@1.macro.ci_low' is not what the samples give")
def edited_interval(entry):
    set_in(entry, ("metrics", "recall@1", "macro", "ci_low"), 0.0)


@case(RESULTS, None, "'metrics.exact_match' is not what the samples give")
def invented_metric(entry):
    results = entry.results
    results["metrics"]["exact_match"] = results["metrics"]["recall@1"]
    entry.results = results


@case(RESULTS, None, "macro.value must be less than or equal to 1")
def score_above_one(entry):
    set_in(entry, ("metrics", "recall@1", "macro", "value"), 7)


@case(RESULTS, None, "metrics.magic must match pattern")
def metric_with_a_name_of_its_own(entry):
    results = entry.results
    results["metrics"]["magic"] = results["metrics"]["recall@1"]
    entry.results = results


@case(RESULTS, None, "'samples_sha256' is not what the samples give")
def fingerprint_of_other_samples(entry):
    set_in(entry, ("samples_sha256",), "0" * 64)


@case(RESULTS, None, "'pool_sha256' is not what the samples give")
def fingerprint_of_other_pools(entry):
    set_in(entry, ("pool_sha256",), "0" * 64)


@case(RESULTS, None, "'n.scored' is not what the samples give")
def number_of_questions_edited(entry):
    set_in(entry, ("n", "scored"), 500)


# Questions and gold.


@case(SAMPLES, 3, "gold_answers is an unknown field")
def gold_answers_beside_the_own(entry):
    entry.change(3, lambda record: record.update(gold_answers=["8"]))


@case(SAMPLES, None, "95% of the searches return the gold rules and nothing else")
def gold_rules_copied(entry, judge):
    gold = gold_of(entry, judge)
    entry.change_all(lambda record: record.update(retrieved=[list(gold[record["id"]].gold)]))
    rescore(entry, judge)


@case(SAMPLES, None, "95% of the searches return the gold rules and nothing else")
def gold_rules_copied_backwards(entry, judge):
    gold = gold_of(entry, judge)
    entry.change_all(lambda record: record.update(retrieved=[list(gold[record["id"]].gold)[::-1]]))
    rescore(entry, judge)


@case(SAMPLES, None, "95% of the searches return the gold rules and nothing else")
def gold_rules_copied_one_per_search(entry, judge):
    gold = gold_of(entry, judge)
    entry.change_all(lambda record: record.update(retrieved=[[rule] for rule in gold[record["id"]].gold]))
    rescore(entry, judge)


@case(SAMPLES, None, "95% of the answers are the gold answers")
def gold_answers_copied(entry, judge):
    gold = gold_of(entry, judge)
    entry.change_all(lambda record: record.update(answers=list(gold[record["id"]].answers)))
    rescore(entry, judge)


def gold_in(text):
    """An attack: the gold answers as the output of a model, in a sentence around ``BOX`` (and ``GOLD``)."""

    def attack(entry, judge):
        gold = gold_of(entry, judge)

        def write(record):
            answers = list(gold[record["id"]].answers)
            said = ", ".join(answers)
            box = r"\boxed{" + said + "}"
            record.update(answers=answers, output=text.replace("BOX", box).replace("GOLD", said))

        entry.change_all(write)
        rescore(entry, judge)

    return attack


for name, text in {
    "gold_answers_in_boxes": "BOX",
    "gold_answers_behind_words": "The answer is: BOX",
    "gold_answers_told_twice": "Surely it is GOLD.\n\nThe final answer is BOX, I checked.",
}.items():
    CASES[name] = (gold_in(text), SAMPLES, None, "95% of the answers are the gold answers")


@case(SAMPLES, None, "95% of the answers are the gold answers")
def gold_answers_copied_but_for_two(entry, judge):
    gold = gold_of(entry, judge)
    entry.change_all(lambda record: record.update(answers=list(gold[record["id"]].answers)))
    entry.change(1, lambda record: record.update(answers=["wrong"]))
    entry.change(2, lambda record: record.update(answers=["wrong"]))
    rescore(entry, judge)


@case(SAMPLES, 2, "not the id of a question asked")
def foreign_id(entry):
    entry.change(2, lambda record: record.update(id="multi_hop_3-mini-0000001"))


@case(SAMPLES, 2, "not the id of a question asked")
def id_of_the_train_split(entry):
    entry.change(2, lambda record: record.update(id="multi_hop_2-train-0000001"))


@case(SAMPLES, 1, "not the id of a question asked")
def html_in_an_id(entry):
    entry.change(1, lambda record: record.update(id=HTML))


@case(SAMPLES, None, "questions are missing")
def hard_question_left_out(entry):
    entry.lines = entry.lines[:-1]


@case(SAMPLES, 51, "an id occurs twice")
def second_try_at_a_question(entry):
    entry.lines = [*entry.lines, entry.lines[0]]


@case(SAMPLES, None, "questions are missing")
def no_samples_at_all(entry):
    entry.lines = []


@case(SAMPLES, 4, "retrieved is null on some questions only")
def bad_question_taken_out_of_the_average(entry):
    entry.change(4, lambda record: record.update(retrieved=None))


@case(SAMPLES, 5, "outcome must be 'ok', 'context_exceeded'")
def failed_question_taken_out_of_the_average(entry):
    entry.change(5, lambda record: record.update(outcome="failed"))


@case(SAMPLES, 2, "not in the question's pool")
def rule_from_outside_the_pool(entry):
    entry.change(2, lambda record: record["retrieved"][0].__setitem__(0, 10**9))


@case(SAMPLES, 2, "retrieved.0 must name each rule once")
def rule_found_twice(entry):
    entry.change(2, lambda record: record["retrieved"][0].__setitem__(1, record["retrieved"][0][0]))


@case(SAMPLES, 6, "more than spec.top_k")
def whole_pool_returned(entry, judge):
    set_in(entry, ("spec", "top_k"), 10)
    entry.change_all(lambda record: record.update(retrieved=[record["retrieved"][0][:10]]))
    entry.change(6, lambda record: record.update(retrieved=[[*range(11)]]))
    # The rule of the pool is looked at first, so take ids that are in it.
    question = json.loads(entry.lines[5])["id"]
    spec = judge.check_spec(entry.results["spec"])
    pool = next(p for p in judge.workspace(spec).pools(spec) if p.questions[0].id == question)
    entry.change(6, lambda record: record.update(retrieved=[pool.ids.tolist()[:11]]))


@case(SAMPLES, 1, "answers are not what the scorer reads in output")
def answers_better_than_the_output(entry):
    entry.change(1, lambda record: record.update(answers=["8"], output=r"so \boxed{9}"))


@case(SAMPLES, None, "100.0% of the work is that of another submission, got 2026-01-31_bm25")
def copy_of_another_submission(entry):
    entry.folder = entry.folder.rename(entry.folder.with_name("2026-01-31_better-bm25"))


@case(SAMPLES, None, "of the work is that of another submission")
def copy_with_a_line_changed(entry, judge):
    entry.change(3, lambda record: record["retrieved"][0].pop(0))
    rescore(entry, judge)
    entry.folder = entry.folder.rename(entry.folder.with_name("2026-01-31_better-bm25"))


@case(SAMPLES, None, "100.0% of the work is that of another submission")
def copy_with_the_last_rule_cut_everywhere(entry, judge):
    entry.change_all(lambda record: record["retrieved"][0].pop())
    rescore(entry, judge)
    entry.folder = entry.folder.rename(entry.folder.with_name("2026-01-31_better-bm25"))


@case(SAMPLES, None, "of the work is that of another submission, got 2026-01-31_bm25")
def copy_with_two_ranks_swapped(entry, judge):
    def swap(record):
        found = record["retrieved"][0]
        found[8:10] = found[8:10][::-1]

    entry.change_all(swap)
    rescore(entry, judge)
    entry.folder = entry.folder.rename(entry.folder.with_name("2026-01-31_better-bm25"))


@case(METADATA, None, "name reads like 'BM25, naive tokens' of 2026-01-31_naive")
def name_of_another_row(entry):
    entry.word("name", "BM25, Naive Tokens")


@case(METADATA, None, "name reads like 'BM25, naive tokens' of 2026-01-31_naive")
def name_of_another_row_in_cyrillic_letters(entry):
    entry.word("name", "ВМ25, nаivе tоkеns")


@case(METADATA, None, "submitter reads like 'The testers' of")
def submitter_who_looks_like_another(entry):
    entry.word("submitter", "The teѕters")


# The spec.


@case(RESULTS, None, "spec.method looks at gold data, got 'gold'; set `kind: ceiling`")
def gold_ceiling_as_a_contender(entry):
    set_in(entry, ("spec", "method", "rules"), "gold")


@case(RESULTS, None, "spec.pool_seed must be a valid integer, got 0.0")
def pool_seed_that_equals_zero(entry):
    set_in(entry, ("spec", "pool_seed"), 0.0)


@case(RESULTS, None, "spec.pool_seed must be a valid integer, got -0.0")
def pool_seed_below_zero_that_equals_it(entry):
    set_in(entry, ("spec", "pool_seed"), -0.0)


@case(RESULTS, None, "spec.pool_seed must be a valid integer, got False")
def pool_seed_that_is_false(entry):
    set_in(entry, ("spec", "pool_seed"), False)


@case(RESULTS, None, "spec.split is not on the board")
def split_that_was_trained_on(entry):
    set_in(entry, ("spec", "split"), "train")


@case(RESULTS, None, "spec.limit is not on the board, got 5; run it without --limit")
def some_questions_only(entry):
    set_in(entry, ("spec", "limit"), 5)
    set_in(entry, ("spec", "limit_by"), "fold")


@case(RESULTS, None, "spec.pool_seed is not on the board")
def pool_chosen_by_its_seed(entry):
    set_in(entry, ("spec", "pool_seed"), 17)


@case(RESULTS, None, "spec.world_seed is not on the board")
def world_chosen_by_its_seed(entry):
    set_in(entry, ("spec", "world_seed"), 17)


@case(RESULTS, None, "spec is not a run's")
def pool_of_three_rules(entry):
    set_in(entry, ("spec", "pool_size"), 3)


@case(RESULTS, None, "is smaller than pool_size=1000000000")
def pool_of_a_billion_rules(entry):
    set_in(entry, ("spec", "pool_size"), 10**9)


@case(RESULTS, None, "unknown scale")
def scale_that_is_a_path(entry):
    set_in(entry, ("spec", "scale"), "../../etc/passwd")


@case(RESULTS, None, "spec.hook")
def unknown_field_in_the_spec(entry):
    set_in(entry, ("spec", "hook"), "os.system")


@case(RESULTS, None, "'run_id' is not what the samples give")
def method_renamed_in_the_spec(entry):
    set_in(entry, ("spec", "method", "name"), "dynarule")


@case(RESULTS, None, "must be plain text without <, >, control and invisible")
def script_in_the_spec(entry):
    set_in(entry, ("spec", "method", "label"), SCRIPT)


@case(RESULTS, None, "must be plain text without <, >, control and invisible")
def html_in_a_key_of_the_spec(entry):
    set_in(entry, ("spec", "method", HTML), 1)


@case(RESULTS, None, "must be plain text without <, >, control and invisible")
def terminal_escape_in_the_spec(entry):
    set_in(entry, ("spec", "method", "name"), "\x1b[2J")


@case(RESULTS, None, "spec has more than 16 KiB")
def novel_in_the_spec(entry):
    set_in(entry, ("spec", "method", "retriever", "note"), "a" * 600_000)


@case(RESULTS, None, "spec has more than 16 KiB")
def novel_in_the_spec_in_pieces(entry):
    set_in(entry, ("spec", "method", "notes"), ["a" * 190] * 3_000)


@case(RESULTS, None, "spec.data is not on the board")
def other_generator_version(entry):
    set_in(entry, ("spec", "data"), "0.0")


# Numbers.


@case(RESULTS, 2, "is not a finite number")
def nan_in_the_results(entry):
    text = entry.path(RESULTS).read_text().replace('"schema_version": 2', '"schema_version": NaN')
    entry.path(RESULTS).write_text(text)


@case(SAMPLES, 1, "is not a finite number")
def infinity_in_a_sample(entry):
    entry.lines = [entry.lines[0].replace('"seconds":', '"seconds":Infinity,"x":'), *entry.lines[1:]]


@case(SAMPLES, 1, "the number is too large")
def number_of_ten_thousand_digits(entry):
    entry.lines = [
        entry.lines[0].replace('"seconds":', '"seconds":' + "9" * 10_000 + ',"x":'),
        *entry.lines[1:],
    ]


@case(SAMPLES, 1, "is not a finite number")
def float_that_overflows(entry):
    entry.lines = [entry.lines[0].replace('"seconds":', '"seconds":1e999,"x":'), *entry.lines[1:]]


@case(SAMPLES, 7, "seconds must be greater than or equal to 0")
def negative_time(entry):
    entry.change(7, lambda record: record.update(seconds=-1))


@case(SAMPLES, 7, "retrieved.0.0 must be a valid integer")
def rule_ids_that_are_true_and_false(entry):
    entry.change(7, lambda record: record.update(retrieved=[[True, False]]))


@case(METADATA, None, "cost_usd must be a valid number")
def cost_that_is_nan(entry):
    entry.word("cost_usd", ".nan")


# Words.


@case(METADATA, None, "name must be plain text")
def script_in_the_name(entry):
    entry.word("name", f'"{SCRIPT}"')


@case(METADATA, None, "submitter must be plain text")
def html_in_the_submitter(entry):
    entry.word("submitter", f'"{HTML}"')


@case(METADATA, None, "description must be plain text")
def html_in_the_description(entry):
    entry.word("description", f'"{HTML}"')


@case(METADATA, None, "model must be plain text")
def html_in_the_model(entry):
    entry.word("model", f'"{HTML}"')


@case(METADATA, None, "hardware must be plain text")
def html_in_the_hardware(entry):
    entry.word("hardware", f'"{HTML}"')


@case(METADATA, None, "code must be an https link")
def link_that_runs_a_script(entry):
    entry.word("code", '"javascript:alert(1)"')


@case(METADATA, None, "paper must be an https link")
def link_with_html(entry):
    entry.word("paper", "'https://a.example/\"><script>'")


@case(METADATA, None, "without control or invisible characters")
def name_that_turns_the_direction_of_writing(entry):
    entry.word("name", '"\\u202e52MB"')


@case(METADATA, None, "without control or invisible characters")
def terminal_escape_in_the_name(entry):
    entry.word("name", '"\\e[2J\\e[31mRank 1"')


def word_is(name, value, reason):
    CASES[f"{name}_that_is_{ascii(value)[1:-1]}"] = (
        lambda e: e.word(name, f'"{value}"'),
        METADATA,
        None,
        reason,
    )


for blank in ("-", "...", "\u2026"):
    word_is("name", blank, "must have a letter or a digit")
for blank in (
    "\u3164",
    "A\u115f",
    "\u2800A",
    "A\ufe0fB",
    "A\u034fB",
    "A\u200bB",
    "A\u2028B",
    "A\u2066B",
    "A\u200fB",
    "A\xadB",
):
    word_is("submitter", blank, "without control or invisible characters")
word_is("name", "\ufdfa" * 10, "have 1 to 60 characters spelt out")


@case(METADATA, None, "two accents")
def letters_with_towers_of_accents(entry):
    entry.word("name", '"B' + "\\u0334\\u0337\\u0338\\u0336" * 5 + 'M25"')


@case(METADATA, None, "1 to 60 characters")
def endless_name(entry):
    entry.word("name", "a" * 5_000)


@case(METADATA, None, "must not lie in the future")
def date_in_the_future(entry):
    entry.word("date", "2999-01-01")


@case(METADATA, None, "kind must be")
def kind_of_its_own(entry):
    entry.word("kind", "winner")


@case(METADATA, None, "unknown field")
def rank_given_by_itself(entry):
    entry.word("rank", "1")


@case(RESULTS, None, "must be plain text without <, >, control and invisible")
def html_in_the_label(entry):
    set_in(entry, ("method", "label"), HTML)


@case(RESULTS, None, "method.key must match")
def html_in_the_key(entry):
    set_in(entry, ("method", "key"), HTML)


@case(RESULTS, None, "must be plain text without <, >, control and invisible")
def html_in_the_environment(entry):
    set_in(entry, ("environment", "platform"), HTML)


@case(RESULTS, None, "must be plain text without <, >, control and invisible")
def html_in_a_key(entry):
    set_in(entry, ("environment", "packages", HTML), "1")


@case(RESULTS, None, "timing.finished must match")
def words_in_place_of_a_time(entry):
    set_in(entry, ("timing", "finished"), "yesterday")


@case(SAMPLES, 1, "must match pattern")
def html_in_the_name_of_a_cost(entry):
    entry.change(1, lambda record: record.update(usage={HTML: 1}))


# Files and formats.


@case(METADATA, None, "is not a flat list")
def yaml_that_builds_an_object(entry):
    entry.word("model", f"!!python/object/apply:os.system ['touch {entry.folder.parent}/pwned']")


@case(METADATA, None, "is not a flat list")
def yaml_of_a_billion_laughs(entry):
    entry.path(METADATA).write_text('a: &a "lol"\nb: &b [*a, *a, *a]\nc: [*b, *b, *b]\n')


@case(METADATA, None, "is not a flat list")
def yaml_with_nested_fields(entry):
    entry.word("model", "{a: {b: c}}")


@case(METADATA, 9, "a key occurs twice")
def yaml_with_a_key_twice(entry):
    with entry.path(METADATA).open("a") as file:
        file.write("name: Another\n")


@case(METADATA, None, "is not a flat list")
def yaml_with_two_documents(entry):
    with entry.path(METADATA).open("a") as file:
        file.write("---\nname: Another\n")


@case(METADATA, None, "is not a flat list")
def yaml_that_is_none(entry):
    entry.path(METADATA).write_text("name: 'BM25\n")


@case(METADATA, 9, "is not UTF-8")
def metadata_in_latin_1(entry):
    with entry.path(METADATA).open("ab") as file:
        file.write("hardware: Müller\n".encode("latin-1"))


@case(RESULTS, 1, "is not UTF-8")
def results_in_utf_16(entry):
    entry.path(RESULTS).write_bytes(entry.path(RESULTS).read_text().encode("utf-16"))


@case(RESULTS, 1, "byte order mark")
def results_with_a_byte_order_mark(entry):
    entry.path(RESULTS).write_bytes(b"\xef\xbb\xbf" + entry.path(RESULTS).read_bytes())


@case(SAMPLES, 2, "is not UTF-8")
def bytes_that_are_no_text(entry):
    lines = [line.encode() for line in entry.lines]
    lines[1] = lines[1].replace(b'"ok"', b'"\xff\xfe"')
    entry.path(SAMPLES).write_bytes(packed(b"".join(line + b"\n" for line in lines)))


@case(SAMPLES, 3, "half a surrogate pair")
def half_a_character(entry):
    lines = entry.lines
    lines[2] = lines[2].replace('"output":null', '"output":"\\ud800"')
    entry.lines = lines


@case(RESULTS, None, "a key occurs twice")
def results_with_a_key_twice(entry):
    text = entry.path(RESULTS).read_text().rstrip()[:-1] + ', "metrics": {}}'
    entry.path(RESULTS).write_text(text)


@case(SAMPLES, 1, "a key occurs twice")
def sample_with_a_key_twice(entry):
    entry.lines = [entry.lines[0].replace('"id":', '"id":"x","id":'), *entry.lines[1:]]


@case(RESULTS, None, "is nested too deep")
def results_nested_a_hundred_thousand_deep(entry):
    entry.path(RESULTS).write_text("[" * 100_000)


@case(RESULTS, None, "is nested too deep")
def method_nested_a_hundred_deep(entry):
    deep: dict = {}
    for _ in range(100):
        deep = {"a": deep}
    set_in(entry, ("spec", "method", "x"), deep)


@case(RESULTS, 1, "is not JSON")
def results_that_are_python(entry):
    entry.path(RESULTS).write_text("__import__('os').system('touch pwned')")


@case(RESULTS, None, "content must be a valid dictionary")
def results_that_are_a_list(entry):
    entry.path(RESULTS).write_text("[]")


@case(SAMPLES, None, "expands to more than")
def zip_bomb(entry):
    # Samples of the right form, each behind nearly a megabyte of blanks, in a few kilobytes.
    blanks = " " * 900_000
    entry.lines = [line + blanks for line in entry.lines]
    assert entry.path(SAMPLES).stat().st_size < 50_000


@case(SAMPLES, 21, "has more than 20 lines")
def millions_of_samples(entry):
    entry.lines = entry.lines * 2


@case(SAMPLES, 1, "content must be a valid dictionary")
def millions_of_lines_that_are_no_samples(entry):
    entry.path(SAMPLES).write_bytes(packed(b"[]\n" * 1_500_000))


@case(RESULTS, None, "is not what the samples give")
def thirty_thousand_outcomes(entry):
    set_in(entry, ("outcomes",), entry.results["outcomes"] | {f"o{n}": 1 for n in range(30_000)})


@case(RESULTS, None, "is not what the samples give")
def cost_with_a_name_of_dots(entry):
    set_in(entry, ("usage", "." * 30_000), {"total": 1, "mean": 1})


@case(SAMPLES, 2, "retrieved.0 must have at most 100 items")
def hundred_thousand_rules_found(entry):
    entry.change(2, lambda record: record.update(retrieved=[[*range(100_000)]]))


@case(SAMPLES, 1, "a line has more than")
def zip_bomb_of_one_line(entry):
    entry.path(SAMPLES).write_bytes(packed(b"a" * (3 * files.MIB)))


@case(SAMPLES, None, "is not whole zstd data")
def samples_that_are_gzip(entry):
    import gzip

    entry.path(SAMPLES).write_bytes(gzip.compress(b"{}\n"))


@case(SAMPLES, None, "is not whole zstd data")
def samples_cut_off(entry):
    entry.path(SAMPLES).write_bytes(entry.path(SAMPLES).read_bytes()[:-20])


@case(SAMPLES, 51, "the last line has no line break")
def samples_without_an_end(entry):
    entry.path(SAMPLES).write_bytes(packed("\n".join([*entry.lines, "{"]).encode()))


@case(SAMPLES, 2, "content must be a valid dictionary")
def sample_that_is_a_list(entry):
    entry.lines = [entry.lines[0], "[]", *entry.lines[2:]]


@case(SAMPLES, 2, "is not JSON")
def empty_line_between(entry):
    entry.lines = [entry.lines[0], "", *entry.lines[1:]]


@case(SAMPLES, 2, "output must have at most 200000 characters")
def output_of_a_novel(entry):
    entry.change(2, lambda record: record.update(output="a" * 300_000))


@case(SAMPLES, 2, "usage must be as it is logged (prompt_tokens: ")
def half_a_token(entry):
    entry.change(2, lambda record: record.update(usage={"prompt_tokens": 1.5}))


@case(SAMPLES, 2, "usage must be as it is logged (seconds: ")
def time_as_a_number(entry):
    entry.change(2, lambda record: record.update(usage={"seconds": 3.5}))


@case(METADATA, None, "is larger than")
def metadata_of_a_megabyte(entry):
    with entry.path(METADATA).open("a") as file:
        file.write("# " + "a" * files.MIB + "\n")


@case(RESULTS, None, "is not a regular file")
def results_that_are_a_link(entry):
    secret = entry.folder.parent / "secret.json"
    entry.path(RESULTS).rename(secret)
    entry.path(RESULTS).symlink_to(secret)


@case(METADATA, None, "is not a regular file")
def metadata_that_is_a_link_to_nowhere(entry):
    entry.path(METADATA).unlink()
    entry.path(METADATA).symlink_to("/nowhere")


@case(SAMPLES, None, "is not a regular file")
def samples_that_are_a_pipe(entry):
    entry.path(SAMPLES).unlink()
    os.mkfifo(entry.path(SAMPLES))


@case(SAMPLES, None, "is not a regular file")
def samples_that_are_a_folder(entry):
    entry.path(SAMPLES).unlink()
    entry.path(SAMPLES).mkdir()


@case("'2026-01-31_bm25'", None, "is not a folder")
def submission_that_is_a_link(entry):
    real = entry.folder.rename(entry.folder.with_name("real"))
    entry.folder.symlink_to(real)


@case("'run.py'", None, "is not a file of a submission")
def script_beside_the_data(entry):
    entry.path("run.py").write_text("import os\n")


@case("'samples.pkl'", None, "is not a file of a submission")
def pickle_beside_the_data(entry):
    import pickle

    entry.path("samples.pkl").write_bytes(pickle.dumps({"a": 1}))


@case(RESULTS, None, "is missing")
def results_left_out(entry):
    entry.path(RESULTS).unlink()


@case("folder", None, "its name must be a date")
def name_that_is_an_option(entry):
    entry.folder = entry.folder.rename(entry.folder.with_name("--help"))


@case("folder", None, "its name must be a date")
def name_with_dots(entry):
    entry.folder = entry.folder.rename(entry.folder.with_name("2026-01-31_..%2f..%2fmain"))


@case("folder", None, "its name must be a date")
def name_with_html(entry):
    entry.folder = entry.folder.rename(entry.folder.with_name("2026-01-31_<script>"))


@case(METADATA, None, "date is not the folder's")
def date_that_is_not_the_folders(entry):
    entry.word("date", "2026-01-30")


def gold_of(entry, judge):
    world = judge.workspace(judge.check_spec(entry.results["spec"]))
    return {question.id: question for question in world.questions("multi_hop_2", "mini")}


def rescore(entry, judge):
    """Make the results fit the spoilt samples, as a careful attacker would."""
    from rwbench.leaderboard.records import read_records

    claimed = entry.results
    spec = judge.check_spec(claimed["spec"])
    samples = judge.samples(spec, read_records(entry.path(SAMPLES).read_bytes()))
    ours = judge.results(spec, samples, claimed["method"])
    entry.results = ours | {"environment": claimed["environment"], "timing": claimed["timing"]}


def state(folder):
    """Every path below a folder with what would change if it were written to."""
    found = {}
    for path in sorted(folder.rglob("*")):
        about = path.lstat()
        found[str(path)] = (about.st_mode, about.st_size, about.st_mtime_ns)
    return found


def test_the_good_one_is_accepted(entry, judge, submissions):
    accepted = validate(entry.folder, judge, fingerprints(submissions))
    assert accepted.metadata.name == "BM25"
    assert accepted.results["metrics"] == entry.results["metrics"]


def test_there_are_enough():
    assert len(CASES) >= 40


@pytest.mark.parametrize("name", CASES)
def test_it_is_refused_and_nothing_is_written(name, entry, judge, submissions, tmp_path, monkeypatch):
    attack, file, line, reason = CASES[name]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(files, "MAX_EXPANDED", 4 * files.MIB)
    if name == "millions_of_samples":
        monkeypatch.setattr(records, "MAX_RECORDS", 20)
    attack(*([entry, judge] if "judge" in attack.__code__.co_varnames else [entry]))
    before = state(tmp_path)
    known = fingerprints(submissions)
    start = time.process_time()
    with pytest.raises(Refused) as refused:
        validate(entry.folder, judge, known)
    assert time.process_time() - start < SECONDS
    told = [problem for problem in refused.value.problems if problem.file == file and reason in str(problem)]
    assert told, str(refused.value)
    if line is not None:
        assert told[0].line == line, str(refused.value)
    assert all(problem.fix and str(problem).isascii() for problem in refused.value.problems)
    assert max(len(str(problem)) for problem in refused.value.problems) < 1_200
    assert state(tmp_path) == before
    assert not list(tmp_path.rglob("pwned"))


def test_what_expands_is_refused_before_it_is_there(entry, judge):
    """At the real limit: 58 KB took 37 seconds of CPU and 2.5 GB once."""
    entry.path(SAMPLES).write_bytes(packed((b" " * 999_999 + b"\n") * 70))
    assert entry.path(SAMPLES).stat().st_size < 58_000
    tracemalloc.start()
    start = time.process_time()
    with pytest.raises(Refused, match="expands to more than 64 MiB"):
        for _ in files.sample_lines(entry.path(SAMPLES).read_bytes()):
            pass
    assert time.process_time() - start < 4
    assert tracemalloc.get_traced_memory()[1] < 16 * files.MIB
    tracemalloc.stop()


BREAKS = (
    ValueError("a\x1b"),
    UnicodeDecodeError("utf-8", b"a", 0, 1, "x"),
    RecursionError(),
    OSError(5, "disk"),
    KeyError("a"),
)


@pytest.mark.parametrize("error", BREAKS)
def test_a_check_that_breaks_refuses_its_folder_and_no_other(error, submissions, judge, monkeypatch):
    """Whichever stage it is, and though no such folder is known."""
    from rwbench.leaderboard import validate as module

    real, bad = module.read_folder, "2026-01-31_naive"

    def read(folder):
        if folder.name == bad:
            raise error
        return real(folder)

    monkeypatch.setattr(module, "read_folder", read)
    checked = check_all(files.submission_folders(submissions), judge)
    refused = {name: str(found) for name, found in checked.items() if isinstance(found, Refused)}
    assert list(refused) == [bad] and f"cannot be checked ({type(error).__name__}" in refused[bad]
    assert refused[bad].isascii() and refused[bad].isprintable()
    assert set(fingerprints(submissions)) == set(checked) - {bad}


GOOD = ":000000 100644 0000000 a1b2c3d A\0benchmarks/leaderboard/submissions/2026-01-31_a/results.json\0"


@pytest.mark.parametrize(
    "torn", [GOOD[:-1], GOOD[:20], GOOD[33:], ":\0a\0", ":000000 100644\0a\0", "\0", " \0", GOOD + "x"]
)
def test_a_damaged_list_of_files_is_refused(torn, tmp_path):
    assert files.added_submissions(GOOD.encode(), tmp_path) == [tmp_path / files.SUBMISSIONS / "2026-01-31_a"]
    with pytest.raises(Refused, match="its list of files is damaged"):
        files.added_submissions(torn.encode(), tmp_path)


def test_the_command_tells_and_fails(entry, tmp_path, monkeypatch):
    entry.word("name", '"\\e[2J<b>"')
    before = state(tmp_path)
    run = CliRunner().invoke(app, ["validate", str(entry.folder)])
    assert run.exit_code == 1
    assert "refused" in run.stdout
    assert "\x1b" not in run.stdout
    run = CliRunner().invoke(app, ["validate", str(entry.folder), "--json"])
    (report,) = json.loads(run.stdout)["submissions"]
    assert report["accepted"] is False
    assert report["problems"][0]["file"] == METADATA
    assert report["problems"][0]["fix"]
    assert state(tmp_path) == before
    run = CliRunner().invoke(app, ["validate", str(tmp_path / "2026-01-31_nothing")])
    assert run.exit_code == 2
    assert "rwbench submit" in run.stderr
