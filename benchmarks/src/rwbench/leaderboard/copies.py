"""Copies of other submissions, and names like another's.

Only what cannot be an honest run is refused: two runs that find the same rules may well give the same answers in the
same words, and whether outputs are a model's own no check can tell. That is what the board's badges say.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ..spec import canonical_json
from .entry import Entry
from .files import ENTRY, SAMPLES
from .problems import quote
from .records import Record

CELL = ("scale", "split", "subtasks", "representation", "pool_size")
"""Fields of a spec that submissions share if they are compared."""
COPIED = 0.5
"""Share of questions whose whole record, with a ranking of at least `LONG` rules, may be another's."""
LONG = 10

LOOKALIKES = str.maketrans(
    {
        other: letter
        for letter, others in {
            "a": "аαɑ", "b": "вьβ", "c": "сϲ", "d": "ԁ", "e": "еεє", "g": "ɡց", "h": "һнη", "j": "јϳ", "k": "кκ",
            "l": "1i|іιıӏ", "m": "мμ", "n": "ոп", "o": "0оοօσ", "p": "рρ", "q": "ԛ", "r": "г", "s": "ѕ", "t": "тτ",
            "u": "υս", "v": "νѵ", "w": "ԝω", "x": "хχ", "y": "уγү", "z": "ζ",
        }.items()
        for other in others
    }
)  # fmt: skip
"""Lower-case Cyrillic, Greek and Armenian letters, and digits, that look like a Latin one in either case."""


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
        A hash per question of its output and answers; none of a method that only finds rules.
    rankings : frozenset of str
        A hash per question of all that it holds, of those with a ranking of at least `LONG` rules.
    """

    cell: tuple[Any, ...]
    name: str
    submitter: str
    kind: str
    size: int
    answers: frozenset[str]
    rankings: frozenset[str]


def fingerprint(entry: Entry, records: Iterable[Record]) -> Fingerprint:
    """Return the fingerprint of a submission."""
    records = list(records)
    answering = [record for record in records if record.answers is not None]
    ranking = [record for record in records if any(len(ids) >= LONG for ids in record.retrieved or ())]
    return Fingerprint(
        cell_of(entry.spec),
        entry.name,
        entry.submitter,
        entry.kind,
        len(records),
        frozenset(content_sha256([record], {"id", "output", "answers"}) for record in answering),
        frozenset(content_sha256([record]) for record in ranking),
    )


def cell_of(values: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what a spec or a row shares with those that it is compared with; the order of sub-tasks is none of it."""
    return tuple(tuple(sorted(values[name])) if name == "subtasks" else values[name] for name in CELL)


def skeleton(text: str) -> str:
    """Return what is left of a name that is read in passing: no case, accents, blanks, punctuation or lookalikes."""
    plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", text).casefold())
    plain = "".join(re.findall(r"\w|(?<=\d)\.(?=\d)|[+#*|]", plain)).replace("_", "").translate(LOOKALIKES)
    return plain.replace("rn", "m").replace("vv", "w")


def copied(own: Fingerprint, others: Mapping[str, Fingerprint]) -> Iterator[str]:
    """Yield a problem if results or a name are those of other submissions, given by folder name."""
    others = dict(sorted(others.items()))
    if own.kind == "contender":  # a floor without rules is the same in every form and pool
        yield from _copied_results(own, others)
    for folder, other in others.items():
        for field in ("name", "submitter"):
            mine, theirs = getattr(own, field), getattr(other, field)
            taken = field == "name" and own.cell == other.cell
            if skeleton(mine) == skeleton(theirs) and (taken or mine != theirs):
                what = f"{field} reads like {quote(theirs)} of {folder}, got {quote(mine)}"
                fix = "choose a name that differs" if taken else "choose another, or write it the same"
                yield f"{ENTRY}: {what}; {fix}"
                return


def _copied_results(own: Fingerprint, others: Mapping[str, Fingerprint]) -> Iterator[str]:
    """Yield a problem if all answers are those of another submission, or most rankings are those of others.

    Others of every form and pool size count, since their pools are nested, and all of them together, since a best-of
    is made from several. Answers alone must all be another's: two honest methods of one model share up to 93 %.
    """
    fix = "a result is on the board once; submit a run of your own"
    for name, other in others.items():
        if own.answers and own.answers <= other.answers:
            yield f"{SAMPLES}: all answers are those of another submission, got {name}; {fix}"
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
