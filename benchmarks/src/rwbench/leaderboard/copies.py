"""Copied gold, and copies of other submissions: what an honest run cannot look like."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

from ..samples import Sample
from ..spec import canonical_json
from .files import SAMPLES
from .records import Record
from .refusals import Problem

MIN_QUESTIONS = 20
"""Below so many, perfection can be luck."""
SHARE = 0.95
"""Share of the questions that must look copied: a copier may spoil a few."""


def copied_gold(samples: Sequence[Sample]) -> list[Problem]:
    """Return what looks like gold handed in as a contender's work.

    Two signs, each only if it holds for nearly every question (`SHARE`): answers that are the gold texts letter by
    letter, with no output that they were read from beyond the box itself; and a search that returned the gold rules in
    the proof's order and nothing more. A perfect system shows its outputs, and its searches return more than the proof.
    """
    if len(samples) < MIN_QUESTIONS:
        return []
    problems = []
    if _nearly_all(_bare(sample) and sample["answers"] == sample["gold_answers"] for sample in samples):
        problems.append(
            Problem(
                SAMPLES,
                f"{SHARE:.0%} of the answers are the gold answers letter by letter, "
                "and no output shows where they come from",
                "hand in the model's whole output, or set `kind: ceiling` if the method looks at gold data",
            )
        )
    if _nearly_all(_proof(sample) for sample in samples):
        problems.append(
            Problem(
                SAMPLES,
                f"{SHARE:.0%} of the searches return exactly the gold rules in the order of the proof",
                "hand in the whole ranking, or set `kind: ceiling` if the method looks at gold data",
            )
        )
    return problems


def content_sha256(records: Iterable[Record]) -> str:
    """Return a hash of what is scored, by question: two submissions with equal hashes are the same work."""
    digest = hashlib.sha256()
    for record in sorted(records, key=lambda record: record["id"]):
        kept = {name: record[name] for name in ("id", "output", "answers", "retrieved")}
        digest.update(canonical_json(kept).encode() + b"\n")
    return digest.hexdigest()


def twin(own: str, content: str, others: Mapping[str, str]) -> list[Problem]:
    """Return a problem if another submission has the same content.

    Parameters
    ----------
    own : str
        Name of this submission.
    content : str
        Its `content_sha256`, with its setting.
    others : mapping of str to str
        The same of the others, by name.
    """
    same = sorted(name for name, found in others.items() if found == content and name != own)
    if not same:
        return []
    return [
        Problem(
            SAMPLES,
            "every output is that of another submission",
            "a result is on the board once; hand in a run of your own",
            value=same[0],
        )
    ]


def _nearly_all(signs: Iterable[bool]) -> bool:
    found = list(signs)
    return sum(found) >= SHARE * len(found)


def _bare(sample: Sample) -> bool:
    output = sample["output"]
    return output is None or len(output) <= len(r"\boxed{}") + 2 + sum(
        len(answer) + 2 for answer in sample["gold_answers"]
    )


def _proof(sample: Sample) -> bool:
    if not sample["retrieved"]:
        return False
    flat = list(dict.fromkeys(rule for found in sample["retrieved"] for rule in found))
    return flat == list(dict.fromkeys(rule for step in sample["gold_rules"] for rule in step))
