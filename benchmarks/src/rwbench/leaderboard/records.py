"""samples.jsonl.zst: what a submission says of each question, without a word of gold.

A line is one JSON object with exactly these keys: ``id``; ``output``, the raw text that the answers were read from, or
null if the method writes none; ``answers``, a list of texts or null; ``retrieved``, lists of rule ids, one per search,
best first, or null; ``outcome`` (`rwbench.run.samples.OUTCOMES`); ``usage``, name -> number; ``seconds``. Questions,
gold and scores are joined when it is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ruleworld_data.scoring import parse_boxed, split_answers

from ..methods import Output
from ..run.data import Question
from ..run.samples import OUTCOMES, VOLATILE_USAGE, Sample, check_sample
from ..score.scoring import score
from ..spec import RunSpec, canonical_json
from .files import SAMPLES, sample_lines
from .parsing import strict_json
from .refusals import Problem, Refused, few, shown

Record = dict[str, Any]

KEYS = ("id", "output", "answers", "retrieved", "outcome", "usage", "seconds")
GOLD_KEYS = ("gold_answers", "gold_rules", "scores", "world_id", "subtask", "fold")
ALLOWED_OUTCOMES = tuple(name for name in OUTCOMES if name != "failed")
MAX_OUTPUT = 200_000
MAX_ANSWERS, MAX_ANSWER = 64, 200
MAX_SEARCHES, MAX_FOUND = 32, 100
MAX_RECORDS = 20_000
MAX_AMOUNT = 1e9
USAGE_NAME = re.compile("[a-z][a-z_]{0,30}")
FINISH = re.compile(r"finish\[(.*)\]", re.DOTALL)


def record_of(sample: Sample) -> Record:
    """Return what a submission keeps of a run's sample."""
    usage = {name: value for name, value in sample["usage"].items() if name not in VOLATILE_USAGE}
    kept = {name: sample.get(name) for name in KEYS}
    searches = sample["retrieved"]
    # No question has so many steps, and recall looks at no search beyond them: the scores are the same.
    retrieved = None if searches is None else searches[:MAX_SEARCHES]
    return {**kept, "retrieved": retrieved, "outcome": sample.get("outcome", "ok"), "usage": usage}


def lines_of(records: Sequence[Record]) -> bytes:
    """Return records as lines."""
    return "".join(canonical_json(record) + "\n" for record in records).encode()


def read_records(body: bytes) -> dict[int, Record]:
    """Return the records of a compressed file by line number; `Refused` names lines.

    Only form is looked at here: `rwbench.leaderboard.rescore` knows the questions.
    """
    records: dict[int, Record] = {}
    if problems := few(_read_into(records, body)):
        raise Refused(*problems)
    return records


def _read_into(records: dict[int, Record], body: bytes) -> Iterator[Problem]:
    """Fill ``records`` and yield what is wrong with the other lines, line by line."""
    for number, line in sample_lines(body):
        if number > MAX_RECORDS:
            raise Refused(
                Problem(SAMPLES, f"has more than {MAX_RECORDS:,} lines", "one line per question", number)
            )
        record = strict_json(line, SAMPLES, number)
        if found := record_problem(record):
            what, mend, value = found
            yield Problem(SAMPLES, what, mend, number, None if value is None else shown(value))
        else:
            records[number] = record


def record_problem(record: Any) -> tuple[str, str, Any] | None:
    """Return (what is wrong, how to mend it, the value) with the form of a record, None if nothing is."""
    if not isinstance(record, dict):
        return "is not an object", f"keys: {', '.join(KEYS)}", record
    gold = [name for name in GOLD_KEYS if name in record]
    if gold:
        return "carries gold or scores", "remove them: both are joined from our data", gold[0]
    if set(record) != set(KEYS):
        odd = sorted(set(record) ^ set(KEYS))
        return "has missing or unknown keys", f"exactly these: {', '.join(KEYS)}", odd[0]
    checks = (_id, _output, _answers, _retrieved, _usage)
    for check in checks:
        if found := check(record):
            return found
    if record["outcome"] not in ALLOWED_OUTCOMES:
        return "unknown outcome", f"one of {', '.join(ALLOWED_OUTCOMES)}", record["outcome"]
    return None


def read_output(text: str) -> list[str]:
    r"""Return the answers that an output gives: in its last ``\boxed{}``, or as ReAct's whole ``finish[...]``."""
    box = parse_boxed(text)
    if box is not None:
        return split_answers(box)
    done = FINISH.fullmatch(text)
    return split_answers(done[1]) if done else []


def join(record: Record, question: Question, spec: RunSpec) -> Sample:
    """Return the sample of a record: gold from our data, scores computed."""
    output = Output(question.id, retrieved=record["retrieved"], answers=record["answers"])
    sample = {
        **record,
        "subtask": question.subtask,
        "world_id": question.world_id,
        "fold": question.fold,
        "gold_answers": list(question.answers),
        "gold_rules": [list(step) for step in question.gold_steps],
        "scores": score(output, question, spec.pool_size),
        "trace": [],
        "measures": {},
        "error": None,
    }
    return check_sample(sample)


Found = tuple[str, str, Any] | None


def _id(record: Mapping[str, Any]) -> Found:
    name = record["id"]
    return (
        None if isinstance(name, str) and len(name) <= 80 else ("id must be text", "the question's id", name)
    )


def _output(record: Mapping[str, Any]) -> Found:
    text = record["output"]
    if text is None or (isinstance(text, str) and len(text) <= MAX_OUTPUT):
        return None
    return f"output must be text of at most {MAX_OUTPUT:,} characters, or null", "the model's own text", text


def _answers(record: Mapping[str, Any]) -> Found:
    answers = record["answers"]
    if answers is None:
        return None
    if not isinstance(answers, list) or len(answers) > MAX_ANSWERS:
        return f"answers must be a list of at most {MAX_ANSWERS}, or null", "one per sub-question", answers
    for answer in answers:
        if not isinstance(answer, str) or len(answer) > MAX_ANSWER:
            return f"an answer must be text of at most {MAX_ANSWER} characters", "counts too are text", answer
    if record["output"] is not None and answers != (read := read_output(record["output"])):
        return "answers are not what the scorer reads in output", f"there it reads {shown(read)}", answers
    return None


def _retrieved(record: Mapping[str, Any]) -> Found:
    searches = record["retrieved"]
    if searches is None:
        return None
    if not isinstance(searches, list) or len(searches) > MAX_SEARCHES:
        return (
            f"retrieved must be a list of at most {MAX_SEARCHES} searches, or null",
            "one per step",
            searches,
        )
    for found in searches:
        if not isinstance(found, list) or any(type(rule) is not int for rule in found):
            return "a search must be a list of rule ids", "whole numbers, best first", found
        if len(found) > MAX_FOUND:
            return (
                f"a search returns more than {MAX_FOUND} rules",
                "cut it: no metric looks further",
                len(found),
            )
        if len(set(found)) != len(found):
            return "a search finds a rule twice", "name each rule once", found
    return None


def _usage(record: Mapping[str, Any]) -> Found:
    usage = record["usage"]
    if not isinstance(usage, dict) or len(usage) > 20:
        return "usage must be an object of at most 20 numbers", 'for example {"calls": 1}', usage
    for name, value in (*usage.items(), ("seconds", record["seconds"])):
        if not USAGE_NAME.fullmatch(name):
            return "unknown cost", "names of a-z and _", name
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_AMOUNT:
            return f"{name} must be a number from 0 to {MAX_AMOUNT:,.0f}", "write what was measured", value
    return None
