"""metadata.yaml: who hands in what. The only words of a submission that the board shows."""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any

from .files import METADATA
from .parsing import Text, plain_text, plain_yaml
from .refusals import Problem, Refused, few, shown

KINDS = ("contender", "floor", "ceiling")
YES_NO = ("yes", "no")
WEIGHTS = ("yes", "no", "none")
URL = re.compile(r"https://[a-z0-9-]+(\.[a-z0-9-]+)+(/[A-Za-z0-9._~%+@:,;=/-]*)?(#[A-Za-z0-9._-]*)?")
MAX_COST = 1e7


@dataclass(frozen=True)
class Metadata:
    """What a submission says about itself.

    Raises
    ------
    Refused
        If a field has a value that is not allowed; every wrong field is named.
    """

    name: str = field(metadata={"help": "the method, up to 60 characters"})
    submitter: str = field(metadata={"help": "person or team, up to 60 characters"})
    date: str = field(metadata={"help": "YYYY-MM-DD"})
    model: str = field(metadata={"help": "language model and revision, or none; up to 80 characters"})
    open_weights: str = field(metadata={"help": "yes, no, or none (no weights at all)"})
    trained: str = field(metadata={"help": "yes if anything was fitted to RuleWorld's train split, else no"})
    description: str = field(metadata={"help": "one or two sentences, up to 400 characters"})
    kind: str = field(
        default="contender", metadata={"help": "contender, floor, or ceiling (it looks at gold data)"}
    )
    code: str | None = field(default=None, metadata={"help": "https link"})
    paper: str | None = field(default=None, metadata={"help": "https link"})
    hardware: str | None = field(default=None, metadata={"help": "what it ran on, up to 80 characters"})
    cost_usd: float | None = field(default=None, metadata={"help": "US dollars for the whole run"})

    def __post_init__(self) -> None:
        if problems := [problem for problem in self._problems({}) if problem]:
            raise Refused(*problems)

    def to_yaml(self) -> str:
        """Return the file's text: a line per field, in order, without those that are None."""
        import yaml

        lines = []
        for item in dataclasses.fields(self):
            value = getattr(self, item.name)
            if value is not None:
                # Quoted where YAML would read anything but this text.
                quoted = yaml.safe_dump(str(value), allow_unicode=True, width=10_000, default_style='"')
                plain = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9 ._/+-]*", str(value)) and str(value).strip()
                lines.append(f"{item.name}: {value if plain else quoted.strip()}\n")
        return "".join(lines)

    @classmethod
    def from_yaml(cls, body: bytes) -> Metadata:
        """Read the file; `Refused` names field and line."""
        entries = plain_yaml(body, METADATA)
        known = {item.name: item for item in dataclasses.fields(cls)}
        problems = []
        for name, entry in entries.items():
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                mend = f"did you mean {near[0]}?" if near else f"known fields: {', '.join(known)}"
                problems.append(Problem(METADATA, "unknown field", mend, entry.line, shown(name)))
        for name, item in known.items():
            if name not in entries and item.default is dataclasses.MISSING:
                problems.append(
                    Problem(METADATA, f"{name} is missing", f"add {name}: {item.metadata['help']}")
                )
        if problems:
            raise Refused(*few(problems))
        values: dict[str, Any] = {name: entry.value for name, entry in entries.items()}
        if "cost_usd" in values:
            values["cost_usd"] = _number(values["cost_usd"])
        made = object.__new__(cls)
        for name, item in known.items():
            object.__setattr__(made, name, values.get(name, item.default))
        if problems := made._problems(entries):
            raise Refused(*problems)
        return made

    def _problems(self, entries: dict[str, Text]) -> list[Problem]:
        wrong: dict[str, str | None] = {
            "name": plain_text(self.name, 60),
            "submitter": plain_text(self.submitter, 60),
            "model": plain_text(self.model, 80),
            "description": plain_text(self.description, 400),
            "hardware": None if self.hardware is None else plain_text(self.hardware, 80),
            "date": _date_problem(self.date),
            "cost_usd": _cost_problem(self.cost_usd),
        }
        for name, allowed in (("kind", KINDS), ("trained", YES_NO), ("open_weights", WEIGHTS)):
            value = getattr(self, name)
            wrong[name] = None if value in allowed else f"must be {', '.join(allowed[:-1])} or {allowed[-1]}"
        for name in ("code", "paper"):
            wrong[name] = _link_problem(getattr(self, name))
        helps = {item.name: item.metadata["help"] for item in dataclasses.fields(self)}
        return [
            Problem(
                METADATA,
                f"{name} {why}",
                f"{name} is: {helps[name]}",
                entries[name].line if name in entries else None,
                shown(entries[name].value if name in entries else getattr(self, name)),
            )
            for name, why in wrong.items()
            if why
        ]


def _number(text: str) -> float:
    """Return a decimal number, NaN for anything else (no exponents, signs or words)."""
    return float(text) if re.fullmatch(r"[0-9]{1,8}(\.[0-9]{1,6})?", text) else math.nan


def _cost_problem(cost: float | None) -> str | None:
    if cost is None or (isinstance(cost, float | int) and 0 <= cost <= MAX_COST):
        return None
    return f"must be a number from 0 to {MAX_COST:,.0f}"


def _date_problem(text: Any) -> str | None:
    try:
        found = date.fromisoformat(text) if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text, re.ASCII) else None
    except (ValueError, TypeError):
        found = None
    if found is None:
        return "must be a day as YYYY-MM-DD"
    # A day's grace: it is already tomorrow somewhere.
    return "must not lie in the future" if found > date.today() + timedelta(days=1) else None


def _link_problem(link: Any) -> str | None:
    if link is None or (isinstance(link, str) and len(link) <= 200 and URL.fullmatch(link)):
        return None
    return "must be an https link without user, port or query"
