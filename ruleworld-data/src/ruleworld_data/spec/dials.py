"""Dials: where a world departs from the paper's."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, fields, replace
from typing import Any

from .names import CONFIGS, SUBTASKS, check_count, check_name, check_share


@dataclass(frozen=True)
class Dials:
    """How a world and its questions depart from the paper's; the defaults are the paper's point.

    Attributes
    ----------
    hops : int
        Hops of the longest chain, 1 to 8. Every hop above four is one more level of attributes.
    parts : int
        Most sub-questions that a parallel question merges, 1 to 8; each is of one or two rules. 1: no such questions.
    crowd : int or None
        Rules that share the premise of a chain's ``state2attr`` hop, 1 to 64: exactly so many for every state that an
        action or an environment leads to. None: as it falls (the paper).
    conjunction : int
        Most atoms of a premise, 1 or 2; with 2 there are rules of type ``place_state2attr``.
    thresholds : bool
        Whether there are rules of type ``count2state``: "If A has more than 12 strong horns, ...".
    compare : bool
        Whether there are questions about several counts together, ``compare_2`` to ``compare_<parts>``. It adds them
        alone: rules and all other questions are those of false.
    exceptions : int
        Levels of rules that set others aside, 0 to 2: "If A is deeply hungry but is a tiny cat, ...", and exceptions to
        those; with them there are sub-tasks ``exceptions_1`` to ``exceptions_<hops>``.
    unknown : bool
        Whether a tenth of the rules is left out of the world, and sub-tasks ``unknown_1``, ... ask what half of their
        questions need one of those rules for.
    words : float
        How often a word of a rule or a question is another one that means the same, 0 to 1. It changes texts alone:
        rules, questions, answers and ids are those of 0.

    Raises
    ------
    ValueError
        For a value outside its range.
    """

    hops: int = 4
    parts: int = 4
    crowd: int | None = None
    conjunction: int = 1
    thresholds: bool = False
    compare: bool = False
    exceptions: int = 0
    unknown: bool = False
    words: float = 0.0

    def __post_init__(self) -> None:
        for name, most in {"hops": 8, "parts": 8, "crowd": 64, "conjunction": 2, "exceptions": 2}.items():
            if name != "crowd" or self.crowd is not None:
                check_count(name, getattr(self, name), int(name != "exceptions"), most)
        for name in ("thresholds", "compare", "unknown"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} must be true or false, got {getattr(self, name)!r}")
        if self.exceptions and self.unknown:
            raise ValueError(
                "exceptions and unknown are not combined: a rule that is left out could be what sets another aside; "
                f"turn one of them back, got exceptions={self.exceptions} and unknown=true"
            )
        if self.compare and self.parts < 2:
            raise ValueError(f"compare needs two parts or more, got parts={self.parts}")
        check_share("words", self.words)
        object.__setattr__(self, "words", float(self.words))  # 1 and 1.0 name one world

    def to_dict(self) -> dict[str, Any]:
        """Return the dials that are not at the paper's point."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return {name: value for name, value in values.items() if value != getattr(PAPER_POINT, name)}

    @classmethod
    def parse(cls, text: str) -> Dials:
        """Read `str` of dials, e.g. "hops=6,crowd=16,thresholds=true"; empty: the paper's point.

        Raises
        ------
        ValueError
            For anything else; the text says what to type.
        """
        if not isinstance(text, str):
            raise ValueError(f"dials must be a text, as in hops=6,crowd=16, empty for none; got {text!r:.80}")
        values: dict[str, Any] = {}
        for part in filter(None, text.replace(" ", "").split(",")):
            name, _, value = part.partition("=")
            check_name("dial", name, [item.name for item in fields(cls)])
            if name in values:
                raise ValueError(f"dial {name} is given twice, got {text!r:.80}; keep one")
            try:
                values[name] = json.loads(value)
            except (ValueError, RecursionError):
                raise ValueError(
                    f"dials are written as in hops=6,crowd=16,thresholds=true; got {part!r:.80}"
                ) from None
        return cls(**values)

    def reaching(self, config: str) -> Dials:
        """Return these dials, turned as far as a configuration needs where they leave it open.

        Examples
        --------
        >>> str(Dials(crowd=16).reaching("multi_hop_6"))
        'hops=6,crowd=16'
        """
        if config in CONFIGS or config not in ALL_SUBTASKS:
            return self
        kind, _, size = config.rpartition("_")
        needed: dict[str, dict[str, Any]] = {
            "multi_hop": {"hops": int(size)},
            "multi_rule": {"parts": -(-int(size) // 2)},
            "compare": {"compare": True, "parts": max(int(size), PAPER_POINT.parts)},
            "exceptions": {"exceptions": 2, "hops": max(int(size), PAPER_POINT.hops)},
            "unknown": {"unknown": True, "hops": max(int(size), PAPER_POINT.hops)},
        }
        turned = needed[kind].items()
        return replace(self, **{k: v for k, v in turned if getattr(self, k) == getattr(PAPER_POINT, k)})

    def __str__(self) -> str:
        return ",".join(f"{name}={json.dumps(value)}" for name, value in self.to_dict().items())

    @property
    def structure(self) -> Dials:
        """These dials without those that change texts or add sub-tasks alone: what rules and questions depend on."""
        return replace(self, words=PAPER_POINT.words, compare=PAPER_POINT.compare)

    @property
    def tag(self) -> str:
        """Eight hex digits that name this point's structure in world ids and streams; empty at the paper's point."""
        turned = self.structure.to_dict()
        if not turned:
            return ""
        return hashlib.blake2b(json.dumps(turned, sort_keys=True).encode(), digest_size=4).hexdigest()

    @property
    def levels(self) -> int:
        """Levels of attributes: drivers, their responses, and for deeper chains what those drive in turn."""
        return max(2, self.hops - 2)


PAPER_POINT = Dials()


def subtasks_of(dials: Dials) -> tuple[str, ...]:
    """Return the sub-tasks of a world with these dials: `SUBTASKS` at the paper's point."""
    most = 2 * dials.parts if dials.parts > 1 else 0
    widths = (f"multi_rule_{width}" for width in range(2, most + 1))
    chains = (f"multi_hop_{hops}" for hops in range(2, dials.hops + 1))
    compared = (f"compare_{parts}" for parts in range(2, dials.parts + 1) if dials.compare)
    excepted = (f"exceptions_{hops}" for hops in range(1, dials.hops + 1) if dials.exceptions)
    gaps = (f"unknown_{hops}" for hops in range(1, dials.hops + 1) if dials.unknown)
    return ("single_rule", *widths, *chains, *compared, *excepted, *gaps)


_FURTHEST = (Dials(hops=8, parts=8, compare=True, exceptions=2), Dials(hops=8, unknown=True))
ALL_SUBTASKS = tuple(dict.fromkeys((*SUBTASKS, *subtasks_of(_FURTHEST[0]), *subtasks_of(_FURTHEST[1]))))
"""The paper's sub-tasks, and those that only dials bring."""
