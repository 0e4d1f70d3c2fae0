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
from .parsing import Problem, quote
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
    name, submitter : str
    size : int
        Number of questions.
    answers : frozenset of int
        A hash per question of its output and answers; none of a method that only finds rules.
    rankings : frozenset of int
        A hash per question of all that it holds, of those with a ranking of at least `LONG` rules.
    """

    cell: tuple[Any, ...]
    name: str
    submitter: str
    size: int
    answers: frozenset[int]
    rankings: frozenset[int]

    @classmethod
    def of(cls, entry: Entry, records: Iterable[Record]) -> Fingerprint:
        """Return the fingerprint of a submission."""
        records = list(records)
        answers = {
            _digest(content_of(record, "output", "answers"))
            for record in records
            if record.answers is not None
        }
        rankings = {
            _digest(content_of(record))
            for record in records
            if any(len(search) >= LONG for search in record.retrieved or ())
        }
        sets = frozenset(answers), frozenset(rankings)
        return cls(cell_of(entry.spec), entry.name, entry.submitter, len(records), *sets)


def cell_of(values: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what a spec or a row shares with those that it is compared with; the order of sub-tasks is none of it."""
    return tuple(tuple(sorted(values[name])) if name == "subtasks" else values[name] for name in CELL)


def skeleton(text: str) -> str:
    """Return what is left of a name that is read in passing: no case, accents, blanks, punctuation or lookalikes."""
    plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", text).casefold())
    plain = "".join(re.findall(r"\w|(?<=\d)\.(?=\d)|[+#*|]", plain)).replace("_", "").translate(LOOKALIKES)
    return plain.replace("rn", "m").replace("vv", "w")


def impostors(own: Fingerprint, others: Mapping[str, Fingerprint]) -> Iterator[Problem]:
    """Yield a problem if a name is taken on the same setting, or only looks like one that is on the board."""
    for folder, other in sorted(others.items()):
        for field in ("name", "submitter"):
            mine, known = getattr(own, field), getattr(other, field)
            taken = field == "name" and own.cell == other.cell
            if skeleton(mine) == skeleton(known) and (taken or mine != known):
                what = f"{field} reads like {quote(known)} of {folder}"
                fix = "choose a name that differs" if taken else "choose another, or write it the same"
                yield Problem(ENTRY, what, fix, value=quote(mine))
                return


def duplicates(own: Fingerprint, others: Mapping[str, Fingerprint]) -> Iterator[Problem]:
    """Yield a problem if all answers are those of another submission, or most rankings are those of others.

    Others of every form and pool size count, since their pools are nested, and all of them together, since a best-of
    is made from several. Answers alone must all be another's: two honest methods of one model share up to 93 %.
    """
    fix = "a result is on the board once; submit a run of your own"
    for name, other in sorted(others.items()):
        if own.answers and own.answers <= other.answers:
            yield Problem(SAMPLES, "all answers are those of another submission", fix, value=name)
            return
    known = frozenset().union(*(other.rankings for other in others.values()))
    copied = len(own.rankings & known) / max(own.size, 1)
    if copied >= COPIED:
        what = f"{copied:.0%} of the records, rankings included, are those of other submissions"
        yield Problem(SAMPLES, what, fix)


def content_of(record: Record, *fields: str) -> dict[str, Any]:
    """Return what of a record decides its scores, or the part of it that is named."""
    return record.model_dump(include={"id", *(fields or ("output", "answers", "retrieved"))})


def content_sha256(records: Iterable[Record]) -> str:
    """Return a hash of what is scored, by question: it names predictions that were made elsewhere."""
    digest = hashlib.sha256()
    for record in sorted(records, key=lambda record: record.id):
        digest.update(canonical_json(content_of(record)).encode() + b"\n")
    return digest.hexdigest()


def _digest(content: Mapping[str, Any]) -> int:
    body = canonical_json(content).encode()
    return int.from_bytes(hashlib.blake2b(body, digest_size=8).digest(), "big")
