"""Copied gold, and copies of other submissions: what an honest run cannot look like."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ruleworld_data.scoring import parse_boxed

from ..score.samples import Sample
from ..spec import canonical_json
from .files import SAMPLES
from .parsing import Problem
from .records import Record

MIN_QUESTIONS = 20
"""Below so many, perfection can be luck."""
SHARE = 0.95
"""Share of the questions that must look copied: a copier may change some."""
FIRST = 10
"""Rules of a search that are compared: removing those behind them changes no rank that counts."""


@dataclass(frozen=True)
class Fingerprint:
    """What two submissions of a setting have in common if they are the same work.

    Attributes
    ----------
    setting : str
    records : frozenset of str
        A hash per question: its id, output, answers and the `FIRST` rules of each search.
    """

    setting: str
    records: frozenset[str]

    @classmethod
    def of(cls, setting: str, records: Iterable[Record]) -> Fingerprint:
        """Return the fingerprint of a submission's records."""
        return cls(setting, frozenset(map(_record_hash, records)))

    def shared(self, other: Fingerprint) -> float:
        """Return the share of the questions on which another has the same record."""
        if self.setting != other.setting or not self.records:
            return 0.0
        return len(self.records & other.records) / len(self.records)


def gold_copies(samples: Sequence[Sample]) -> Iterator[Problem]:
    """Yield what looks like gold submitted as a contender's work.

    Two signs, each only if it holds for nearly every question (`SHARE`): answers that are the gold texts letter by
    letter, with nothing around them but the same words every time; and searches that returned the gold rules and
    nothing more, in whatever order. A perfect system shows its outputs, and its searches return more than the proof.
    """
    if len(samples) < MIN_QUESTIONS:
        return
    ceiling = "or set `kind: ceiling` if the method looks at gold data"
    right = [sample for sample in samples if sample["answers"] == sample["gold_answers"]]
    around = Counter(map(_around, right)).most_common(1)
    if around and around[0][1] >= SHARE * len(samples):
        what = f"{SHARE:.0%} of the answers are the gold answers letter by letter, and no output shows where from"
        yield Problem(SAMPLES, what, f"submit the model's whole output, {ceiling}")
    if sum(map(_is_proof, samples)) >= SHARE * len(samples):
        what = f"{SHARE:.0%} of the searches return the gold rules and nothing else"
        yield Problem(SAMPLES, what, f"submit the whole ranking, {ceiling}")


def duplicates(own: Fingerprint, others: Mapping[str, Fingerprint]) -> Iterator[Problem]:
    """Yield a problem if another submission has the same record on nearly every question (`SHARE`)."""
    for name, other in sorted(others.items()):
        if (share := own.shared(other)) >= SHARE:
            what = f"{share:.1%} of the lines are those of another submission"
            fix = "a result is on the board once; submit a run of your own"
            yield Problem(SAMPLES, what, fix, value=name)
            return


def content_sha256(records: Iterable[Record]) -> str:
    """Return a hash of what is scored, by question: it names predictions that were made elsewhere."""
    digest = hashlib.sha256()
    for record in sorted(records, key=lambda record: record.id):
        kept = record.model_dump(include={"id", "output", "answers", "retrieved"})
        digest.update(canonical_json(kept).encode() + b"\n")
    return digest.hexdigest()


def _record_hash(record: Record) -> str:
    searches = record.retrieved
    first = None if searches is None else [found[:FIRST] for found in searches]
    text = canonical_json([record.id, record.output, record.answers, first])
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _around(sample: Sample) -> str:
    """Return an output without its answers, wherever they stand in it."""
    text = sample["output"] or ""
    for part in (parse_boxed(text) or "", *sorted(sample["answers"] or (), key=len, reverse=True)):
        text = text.replace(part, "")
    return " ".join(text.split())


def _is_proof(sample: Sample) -> bool:
    found = {rule for search in sample["retrieved"] or () for rule in search}
    return bool(found) and found == {rule for step in sample["gold_rules"] for rule in step}
