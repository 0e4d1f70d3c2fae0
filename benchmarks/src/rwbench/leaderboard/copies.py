"""Copies of other submissions, and names like another's.

Only what cannot be an honest run is refused: two runs that find the same rules may well give the same answers in the
same words, and whether outputs are a model's own no check can tell. That is what the board's badges say.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from confusable_homoglyphs.confusables import confusables_data

from ..spec import canonical_json
from .entry import Entry
from .files import ENTRY, SAMPLES
from .problems import quote
from .records import Record

CELL = ("scale", "split", "subtasks", "representation", "pool_size", "data")
"""Fields of a spec that submissions share if they are compared."""
COPIED = 0.5
"""Share of questions whose whole record, with a ranking of at least `LONG` rules, may be another's."""
LONG = 10
"""Rules of a ranking, or words of an output, that two runs do not have in common by chance."""

SAME = str.maketrans("01i|", "olll")
"""Signs that fonts do not tell apart once case is folded, beside those of UTS 39."""


class Fingerprint(NamedTuple):
    """What of a submission is compared with others.

    Attributes
    ----------
    cell : tuple
        `cell_of` its spec.
    name, submitter, kind : str
    size : int
        Number of questions.
    answers : frozenset of str
        A hash per question of its answers; none of a method that only finds rules.
    outputs : frozenset of str
        A hash per question of its answers and the words of its output, of those with at least `LONG` words.
    rankings : frozenset of str
        A hash per question of all that it holds, of those with a ranking of at least `LONG` rules.
    """

    cell: tuple[Any, ...]
    name: str
    submitter: str
    kind: str
    size: int
    answers: frozenset[str]
    outputs: frozenset[str]
    rankings: frozenset[str]


def fingerprint(entry: Entry, records: Iterable[Record]) -> Fingerprint:
    """Return the fingerprint of a submission: case, blanks and punctuation of outputs make no other record."""
    records = [record.model_copy(update={"output": _words(record.output)}) for record in records]
    answering = [record for record in records if record.answers is not None]
    worded = [record for record in answering if len((record.output or "").split()) >= LONG]
    ranking = [record for record in records if any(len(ids) >= LONG for ids in record.retrieved or ())]
    return Fingerprint(
        cell_of(entry.spec),
        entry.name,
        entry.submitter,
        entry.kind,
        len(records),
        frozenset(content_sha256([record], {"id", "answers"}) for record in answering),
        frozenset(content_sha256([record], {"id", "output", "answers"}) for record in worded),
        frozenset(content_sha256([record]) for record in ranking),
    )


def cell_of(values: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what a spec or a row shares with those that it is compared with; the order of sub-tasks is none of it."""
    return tuple(tuple(sorted(values[name])) if name == "subtasks" else values[name] for name in CELL)


def alike(first: str, second: str) -> bool:
    """Whether two names look the same to who reads them in passing, as written or without their case."""
    return bool({*map(skeleton, (first, first.casefold()))} & {*map(skeleton, (second, second.casefold()))})


@lru_cache(maxsize=1 << 16)
def skeleton(text: str) -> str:
    """Return what is left of a name that is read in passing: no case, accents, blanks, punctuation or lookalikes."""
    text = re.sub(r"(?<=\d)[.\uff0e\u2024](?=\d)", "dot", text)  # version 1.5 is not 15
    for form in ("NFD", "NFKD"):  # a lunate sigma looks like c, and is a sigma to NFKD
        text = "".join(map(_prototype, unicodedata.normalize(form, text)))
    plain = "".join(re.findall(r"\w|[+#*|]", text.casefold())).replace("_", "")
    return plain.translate(SAME).replace("rn", "m").replace("vv", "w")


def _prototype(letter: str) -> str:
    """Return what a letter looks like by UTS 39: Latin if it, its capital or its small capital's letter does."""
    small = unicodedata.name(letter, "").rpartition("LETTER SMALL CAPITAL ")[2]
    looks = [_lookalike(form) for form in (letter, letter.upper(), small) if len(form) == 1]
    return next((look for look in looks if look.isascii()), looks[0])


def _lookalike(letter: str) -> str:
    # The table goes both ways: a prototype lists all that look like it, all else its one prototype.
    listed = confusables_data.get(letter, ())
    if len(listed) != 1:
        return letter
    other: str = listed[0]["c"]
    return other if len(other) > 1 or len(confusables_data[other]) > 1 else min(letter, other)


def _words(output: str | None) -> str:
    return " ".join(re.findall(r"\w+", (output or "").casefold()))


def copied(own: Fingerprint, others: Mapping[str, Fingerprint]) -> Iterator[str]:
    """Yield a problem if results or a name are those of other submissions, given by folder name."""
    others = dict(sorted(others.items()))
    if own.kind == "contender":  # a floor without rules is the same in every form and pool
        yield from _copied_results(own, others)
    for folder, other in others.items():
        for field in ("name", "submitter"):
            mine, theirs = getattr(own, field), getattr(other, field)
            taken = field == "name" and own.cell == other.cell
            if alike(mine, theirs) and (taken or mine != theirs):
                what = f"{field} reads like {quote(theirs)} of {folder}, got {quote(mine)}"
                fix = "choose a name that differs" if taken else "choose another, or write it the same"
                yield f"{ENTRY}: {what}; {fix}"
                return


def _copied_results(own: Fingerprint, others: Mapping[str, Fingerprint]) -> Iterator[str]:
    """Yield a problem if all answers are those of other submissions, or most rankings.

    Others of every form and pool size count, since their pools are nested, and of outputs and rankings all of them
    together, since a best-of is made from several. All answers must be another's: two honest methods of one model
    share up to 94 %, with those of all others up to 98 %. Right answers are nobody's: a ceiling has them all.
    """
    fix = "a result is on the board once; submit a run of your own"
    right = any(own.answers <= other.answers for other in others.values() if other.kind == "ceiling")
    worded = len(own.outputs) >= COPIED * own.size
    for name, other in others.items():
        same_words = worded and own.outputs <= other.outputs
        if own.answers and (same_words or (own.answers <= other.answers and not right)):
            yield f"{SAMPLES}: all answers are those of another submission, got {name}; {fix}"
            return
    if worded and own.outputs <= frozenset().union(*(other.outputs for other in others.values())):
        yield f"{SAMPLES}: all answers are those of several other submissions; {fix}"
        return
    known = frozenset().union(*(other.rankings for other in others.values()))
    share = len(own.rankings & known) / max(own.size, 1)
    if share >= COPIED:
        what = f"{share:.0%} of the records, rankings included, are those of other submissions"
        yield f"{SAMPLES}: {what}; {fix}"


SCORED = frozenset({"id", "output", "answers", "retrieved"})
"""Fields of a record that decide its scores."""


def content_sha256(records: Iterable[Record], fields: Iterable[str] = SCORED) -> str:
    """Return a hash of what is scored, by question: it names predictions that were made elsewhere."""
    digest = hashlib.sha256()
    for record in sorted(records, key=lambda record: record.id):
        digest.update(canonical_json(record.model_dump(include=set(fields))).encode() + b"\n")
    return digest.hexdigest()
