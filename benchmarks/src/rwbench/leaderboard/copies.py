"""Copied gold, copies of other submissions, and names like another's: what an honest run cannot look like."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ruleworld_data.scoring import normalise

from ..score.samples import Sample
from ..spec import canonical_json
from .files import METADATA, SAMPLES
from .metadata import Metadata
from .parsing import Problem, quote
from .records import Record

MIN_QUESTIONS = 20
"""Below so many, perfection can be luck."""
SHARE = 0.95
"""Share of the questions that must look copied: a copier may change some."""
ALIKE = 0.8
"""Share of words, or of rules found, that two submissions have in common if one is made from the other."""
FIRST = 10
"""Rules of a search that are compared, in any order."""
SKETCH = 4
"""Words and rules that are kept of a question: those with the smallest hashes, which the same ones in two texts are."""
CELL = ("scale", "split", "subtasks", "representation", "pool_size")
"""Fields of a spec that submissions share if they are compared."""

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
    answers : frozenset of int
        A hash per question of the normalised answers, or of None.
    words, rules : frozenset of int
        Hashes of `SKETCH` words of each output and `SKETCH` rules of each question's searches, without their order.
    """

    cell: tuple[Any, ...]
    name: str
    submitter: str
    answers: frozenset[int]
    words: frozenset[int]
    rules: frozenset[int]

    @classmethod
    def of(cls, metadata: Metadata, spec: Mapping[str, Any], records: Iterable[Record]) -> Fingerprint:
        """Return the fingerprint of a submission."""
        answers, words, rules = set(), set(), set()
        for record in records:
            told = None if record.answers is None else [normalise(answer) for answer in record.answers]
            answers.add(_hash(record.id, told))
            if record.output is not None:
                words |= _sketch(record.id, _words(record.output))
            if record.retrieved is not None:
                found = enumerate(record.retrieved)
                rules |= _sketch(record.id, {(step, rule) for step, ids in found for rule in ids[:FIRST]})
        kept = map(frozenset, (answers, words, rules))
        return cls(cell_of(spec), metadata.name, metadata.submitter, *kept)

    def shared(self, other: Fingerprint) -> float:
        """Return the share of the work that is another's: 1 if it is a copy, though spoilt."""
        (scale, _, _, *how), (other_scale, _, _, *other_how) = self.cell, other.cell
        shares = [len(self.answers & other.answers) / len(self.answers)]
        if (scale, how) != (other_scale, other_how) or shares[0] < SHARE:
            return 0.0
        for mine, known in ((self.words, other.words), (self.rules, other.rules)):
            if mine and known:  # what only the other has, a copier may have left out
                shares.append(len(mine & known) / min(len(mine), len(known)))
        unlike = 0.0 if self.words or self.rules else 1.0
        return min(shares) if min(shares[1:], default=unlike) >= ALIKE else 0.0


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
                fix = (
                    "choose a name that tells them apart" if taken else "choose another, or write it the same"
                )
                yield Problem(METADATA, what, fix, value=quote(mine))
                return


def gold_copies(samples: Sequence[Sample]) -> Iterator[Problem]:
    """Yield what looks like gold submitted as a contender's work.

    Two signs, each only if it holds for nearly every question (`SHARE`): right answers, whatever their case, blanks and
    periods, in outputs that show no work; and searches that returned the gold rules and nothing more, in whatever
    order. Work is words beside the answers that some other outputs have as well, but not most: what all have is a
    phrase, and what one alone has is a salt. A perfect system shows its outputs, and its searches return more than the
    proof.
    """
    if len(samples) < MIN_QUESTIONS:
        return
    ceiling = "or set `kind: ceiling` if the method looks at gold data"
    told = [_words(sample["output"] or "") - _words(" ".join(sample["answers"] or ())) for sample in samples]
    counts = Counter(word for words in told for word in words)
    work = {word for word, count in counts.items() if 2 <= count <= len(samples) / 2 and word.isalpha()}
    bare = [
        sample["scores"].get("exact_match") == 1.0 and not words & work
        for sample, words in zip(samples, told, strict=True)
    ]
    if sum(bare) >= SHARE * len(samples):
        what = f"{SHARE:.0%} of the answers are the gold answers, and no output shows where from"
        yield Problem(SAMPLES, what, f"submit the model's whole output, {ceiling}")
    if sum(map(_is_proof, samples)) >= SHARE * len(samples):
        what = f"{SHARE:.0%} of the searches return the gold rules and nothing else"
        yield Problem(SAMPLES, what, f"submit the whole ranking, {ceiling}")


def duplicates(own: Fingerprint, others: Mapping[str, Fingerprint]) -> Iterator[Problem]:
    """Yield a problem if the work is that of another submission (`Fingerprint.shared`)."""
    for name, other in sorted(others.items()):
        if share := own.shared(other):
            what = f"{share:.1%} of the work is that of another submission"
            fix = "a result is on the board once; submit a run of your own"
            yield Problem(SAMPLES, what, fix, value=name)
            return


def content_of(record: Record | None) -> dict[str, Any] | None:
    """Return what of a record decides its scores."""
    fields = {"id", "output", "answers", "retrieved"}
    return None if record is None else record.model_dump(include=fields)


def content_sha256(records: Iterable[Record]) -> str:
    """Return a hash of what is scored, by question: it names predictions that were made elsewhere."""
    digest = hashlib.sha256()
    for record in sorted(records, key=lambda record: record.id):
        digest.update(canonical_json(content_of(record)).encode() + b"\n")
    return digest.hexdigest()


def _words(text: str) -> set[str]:
    # Chinese, Japanese and Korean have no blanks between words: a character is one.
    return set(re.findall(r"[^\W\u3040-\ud7af]+|\w", unicodedata.normalize("NFKC", text).casefold()))


def _hash(*parts: Any) -> int:
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "big")


def _sketch(name: str, items: Iterable[Any]) -> set[int]:
    """Return the smallest hashes of a question's items: of two sets, about as many agree as of the sets."""
    return set(sorted(_hash(name, item) for item in items)[:SKETCH]) or {_hash(name)}


def _is_proof(sample: Sample) -> bool:
    found = {rule for search in sample["retrieved"] or () for rule in search}
    return bool(found) and found == {rule for step in sample["gold_rules"] for rule in step}
