"""Questions about a rule book: read, and drafted from chains of its rules for a person to correct."""

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from Stemmer import Stemmer

from ..bank.clauses import split_rule
from ..bank.lexicon import patterns
from ..bank.sources import Rules, read_parquet, read_text

FOLLOWS = 0.7
"""Share of a premise's words, by their weight, that a conclusion must have for the rule to come next."""
LONGEST_CHAIN = 3
_STEMMER = Stemmer("english")
_SMALL = "a an the is are be it its they he she and or of to for in on at by with that this if when".split()
_RE = patterns("questions")


def read_questions(path: Path | None) -> list[dict[str, Any]]:
    """Return the questions of a book, each with a list of ``answers`` and, where it has steps, their ``rule_ids``.

    Raises
    ------
    FileNotFoundError, ValueError
        If there is no such file, or a row is not like that.
    """
    rows = read_rows(path, 'JSON lines with "question" and "answers"')
    for number, row in enumerate(rows, 1):
        answers = row.get("answers")
        if not isinstance(answers, list) or not answers or not all(isinstance(one, str) for one in answers):
            raise ValueError(f'{path} row {number} needs "answers", a list of texts, got {answers!r:.60}')
        if [one.strip().casefold() for one in answers] == ["unknown"]:
            row["answers"] = ["unknown"]  # as it is compared with
        for step in row.get("steps") or []:
            if not isinstance(step, dict) or not isinstance(step.get("rule_ids"), list):
                raise ValueError(f'{path} row {number} has a step without "rule_ids", got {step!r:.60}')
    return rows


def read_rows(path: Path | None, wanted: str = "") -> list[dict[str, Any]]:
    """Return the rows of a file of questions, one at least, each with a text ``question``; else raise.

    It is ``.jsonl``, ``.parquet``, or text with a question per line. None: an error says what is ``wanted`` in one.
    """
    if path is None:
        raise ValueError(f"no questions; give --questions FILE, {wanted}")
    kinds = "expected .jsonl, .parquet, or text with a question per line"
    if not path.is_file():
        raise FileNotFoundError(f"no question file {path}; {kinds}")
    suffix = path.suffix.lower()
    if suffix in (".csv", ".tsv", ".json"):
        raise ValueError(f"{path} is no list of questions; {kinds}")
    rows: list[dict[str, Any]]
    if suffix == ".parquet":
        rows = read_parquet([path]).to_pylist()
    else:
        lines = [line for line in read_text(path).split("\n") if line.strip()]
        try:
            rows = [json.loads(line) if suffix == ".jsonl" else {"question": line.strip()} for line in lines]
            json.dumps(rows, ensure_ascii=False).encode()  # half a surrogate pair is no text
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path} is not JSON lines: {error}") from None
    if not rows:
        raise ValueError(f"{path} is empty; expected one question per row")
    for number, row in enumerate(rows, 1):
        question = row.get("question") if isinstance(row, dict) else None
        if not isinstance(question, str) or not question.strip():
            raise ValueError(f"{path} row {number} has no `question`; expected a text in each")
    return rows


def draft_questions(rules: Rules, count: int = 30) -> list[dict[str, Any]]:
    """Return drafts of questions, those of one rule and of chains in turn, spread over the book.

    A rule comes next in a chain where its premise is said by the words of the last one's conclusion. A question gives
    the first premise and asks what follows in the end; its answer is the last conclusion. Rules without a premise, or
    with one that is no statement ("unless ..."), are left out.
    """
    parts = {row: split_rule(text) for row, text in enumerate(rules.texts)}
    sure = [row for row, clauses in parts.items() if clauses.sure and not _RE.unsaid.search(clauses.premise)]
    words = {row: (_words(parts[row].premise), _words(parts[row].conclusion)) for row in sure}
    counts = Counter(word for premise, _ in words.values() for word in premise)
    weight = {word: math.log(1 + len(sure) / number) for word, number in counts.items()}

    alike: defaultdict[frozenset[str], list[int]] = defaultdict(list)
    index: defaultdict[str, list[frozenset[str]]] = defaultdict(list)
    for row in sure:
        alike[words[row][0]].append(row)
    for premise in alike:  # below its rarest words, one of which must be said: others weigh less than FOLLOWS
        left = total = sum(weight[word] for word in premise)
        for word in sorted(premise, key=lambda word: (-weight[word], word)):
            if left >= FOLLOWS * total:
                index[word].append(premise)
            left -= weight[word]

    def next_rule(row: int, before: Sequence[int]) -> int | None:
        said = words[row][1]
        covered = [
            (sum(weight[w] for w in premise & said) / sum(weight[w] for w in premise), -other)
            for premise in {premise for word in said for premise in index.get(word, ())}
            for other in [next((other for other in alike[premise] if other not in before), None)]
            if other is not None
        ]
        best, other = max(covered, default=(0.0, 0))
        return -other if best >= FOLLOWS else None

    chains = []
    for row in sure:
        chain = [row]
        while len(chain) < LONGEST_CHAIN and (after := next_rule(chain[-1], chain)) is not None:
            chain.append(after)
        chains.append(chain)
    long = [chain for chain in chains if len(chain) > 1]
    single = [[row] for row in sure]
    spread = (some[:: max(1, 2 * len(some) // count)] for some in (single, long))
    drawn = [chain for pair in zip_longest(*spread) for chain in pair if chain]
    drafts = []
    for chain in drawn[:count]:
        given, one = _RE.opens.sub("", parts[chain[0]].premise, count=1), len(chain) == 1
        steps = [{"text": rules.texts[row], "rule_ids": [rules.ids[row]]} for row in chain]
        draft = {
            "question": f"{given[:1].upper()}{given[1:]}. What follows{'' if one else ' in the end'}?",
            "steps": steps,
            "answers": [rules.conclusions[chain[-1]].rstrip(".")],
            "family": "single_rule" if one else "multi_hop",
            "draft": True,
        }
        also = [rules.ids[other] for row in chain for other in alike[words[row][0]] if other != row]
        drafts.append(draft | ({"also": also} if also else {}))
    return drafts


def _words(text: str) -> frozenset[str]:
    """Return the words that say something, by their stems."""
    return frozenset(_STEMMER.stemWords([w for w in re.findall(r"\w+", text.lower()) if w not in _SMALL]))
