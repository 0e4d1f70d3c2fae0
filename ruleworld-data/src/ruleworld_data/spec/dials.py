"""Dials: where a world departs from the paper's."""

import hashlib
import json
from dataclasses import dataclass, fields, replace
from typing import Any, Self

from .names import check_count, check_name, check_share

_RANGES = {"hops": (1, 8), "parts": (1, 8), "crowd": (1, 64), "conjunction": (1, 2), "exceptions": (0, 2)}


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
        for name, (least, most) in _RANGES.items():
            if name != "crowd" or self.crowd is not None:
                check_count(name, getattr(self, name), least, most)
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

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Return every dial with its values, the paper's and this one."""
        values = {name: f"{least} to {most}" for name, (least, most) in _RANGES.items()} | {"words": "0 to 1"}
        here, paper = (
            {
                name: "as it falls" if value is None else json.dumps(value)
                for name, value in vars(dials).items()
            }
            for dials in (self, PAPER_POINT)
        )
        return [(name, values.get(name, "false, true"), paper[name], here[name]) for name in here]

    def to_dict(self) -> dict[str, Any]:
        """Return the dials that are not at the paper's point."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return {name: value for name, value in values.items() if value != getattr(PAPER_POINT, name)}

    @classmethod
    def parse(cls, text: str) -> Self:
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

    def reaching(self, config: str) -> Self:
        """Return these dials, turned as far as a configuration needs where they leave it open.

        Examples
        --------
        >>> str(Dials(crowd=16).reaching("multi_hop_6"))
        'hops=6,crowd=16'
        """
        needed: dict[str, Any] = {
            name: 2 if name == "exceptions" else max(least, getattr(PAPER_POINT, name))
            for name, least in (_NEEDED[config] if config in ALL_SUBTASKS else {}).items()
            if getattr(self, name) == getattr(PAPER_POINT, name)
        }
        return replace(self, **needed)

    def __str__(self) -> str:
        return ",".join(f"{name}={json.dumps(value)}" for name, value in self.to_dict().items())

    @property
    def structure(self) -> Self:
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
_NEEDED: dict[str, dict[str, int]] = {
    "single_rule": {},
    **{f"multi_rule_{n}": {"parts": max(2, -(-n // 2))} for n in range(2, 17)},
    **{f"multi_hop_{n}": {"hops": n} for n in range(2, 9)},
    **{f"compare_{n}": {"compare": True, "parts": n} for n in range(2, 9)},
    **{f"exceptions_{n}": {"exceptions": 1, "hops": n} for n in range(1, 9)},
    **{f"unknown_{n}": {"unknown": True, "hops": n} for n in range(1, 9)},
}
"""The least that dials must be for each sub-task."""
ALL_SUBTASKS = tuple(_NEEDED)
"""The paper's sub-tasks, and those that only dials bring."""


def subtasks_of(dials: Dials) -> tuple[str, ...]:
    """Return the sub-tasks of a world with these dials: `SUBTASKS` at the paper's point."""
    return tuple(name for name in ALL_SUBTASKS if not _lacking(name, dials))


def check_subtask(kind: str, config: object, dials: Dials, *others: str) -> None:
    """Check that dials have a sub-task, or that it is one of others; else a ValueError names the dial to turn."""
    for name, least in _lacking(config, dials).items() if config in ALL_SUBTASKS else ():
        more = "" if least is True else " or more"
        seen = json.dumps(getattr(dials, name))
        raise ValueError(f"{config} needs {name}={json.dumps(least)}{more}, got {name}={seen}")
    check_name(kind, config, (*ALL_SUBTASKS, *others))


def _lacking(subtask: object, dials: Dials) -> dict[str, int]:
    """Return the dials that are less than a sub-task needs, and what it needs."""
    return {name: least for name, least in _NEEDED[str(subtask)].items() if getattr(dials, name) < least}
