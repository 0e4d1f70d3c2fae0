"""What verification found: named checks, and how they read."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Self

from .._lazy import read_toml
from ..world import Ints

CHECKS: dict[str, str] = read_toml(__package__, "checks.toml")
"""Every check and what it claims, in the order of the report."""
_PLACE = {name: place for place, name in enumerate(CHECKS)}

MAX_EXAMPLES = 5
StageProgress = Callable[[str, int, int], None]
"""Called with a stage, the number of its parts done, and their total."""


@dataclass
class Check:
    """One claim about the data and how it fared."""

    name: str  # key of `CHECKS`
    checked: int = 0  # things looked at: rows, rules, distinct sub-questions
    failures: int = 0  # those that contradict the claim
    examples: list[str] = field(default_factory=list)  # the first few failures in words
    skipped: str = ""  # why the check did not run; empty if it did

    @property
    def status(self) -> Literal["pass", "fail", "skip"]:
        """The outcome in one word."""
        if self.failures:
            return "fail"
        return "skip" if self.skipped else "pass"

    def fail(self, *messages: str) -> None:
        """Count one failure per message."""
        self.fail_rows(messages, str)

    def fail_rows(self, rows: Sequence[Any] | Ints, describe: Callable[..., str]) -> None:
        """Count one failure per row; put the first few in words."""
        self.failures += len(rows)
        self.examples += [describe(row) for row in rows[: MAX_EXAMPLES - len(self.examples)]]


@dataclass
class Report:
    """What a verification of a build finds."""

    folder: str = ""
    scale: str = ""
    generator_version: str = ""
    seed: int = 0
    checks: list[Check] = field(default_factory=lambda: [*map(Check, CHECKS)])  # in the order of `CHECKS`
    counts: dict[str, int] = field(default_factory=dict)  # of rules, questions and sub-questions looked at

    def __getitem__(self, name: str) -> Check:
        return self.checks[_PLACE[name]]

    @property
    def ok(self) -> bool:
        """True if no check failed."""
        return not any(check.failures for check in self.checks)

    def merge(self, other: Self) -> None:
        """Add what another run of the same checks found."""
        for mine, check in zip(self.checks, other.checks, strict=True):
            mine.checked += check.checked
            mine.failures += check.failures
            mine.examples = (mine.examples + check.examples)[:MAX_EXAMPLES]

    def skip(self, reason: str) -> None:
        """Mark all checks as not run that have looked at nothing so far."""
        for check in self.checks:
            if not (check.checked or check.failures or check.skipped):
                check.skipped = reason

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain JSON values."""
        checks = [asdict(c) | {"status": c.status, "claim": CHECKS[c.name]} for c in self.checks]
        return asdict(self) | {"ok": self.ok, "checks": checks}


def render_text(report: Report) -> str:
    """Render a report for a terminal: one line per check, examples below the failed ones."""
    counts = ", ".join(f"{value:,} {name.replace('_', ' ')}" for name, value in report.counts.items())
    lines = [f"{report.folder}: scale {report.scale}, seed {report.seed}, {counts}", ""]
    width = max(map(len, CHECKS))
    for check in report.checks:
        note = f"{check.checked:,} checked" if check.status == "pass" else check.skipped
        if check.status == "fail":
            note = f"{check.failures:,} of {check.checked:,}"
        lines.append(f"{check.status:4}  {check.name:{width}}  {CHECKS[check.name]} ({note})")
        lines += [f"      - {example}" for example in check.examples]
        if hidden := check.failures - len(check.examples):
            lines.append(f"      - and {hidden:,} more")
    tally = Counter(check.status for check in report.checks)
    verdict = "FAILED" if tally["fail"] else "incomplete" if tally["skip"] else "verified"
    lines += ["", f"{verdict}: {tally['pass']} passed, {tally['fail']} failed, {tally['skip']} skipped"]
    return "\n".join(map(printable, lines))


def printable(text: str) -> str:
    """Return a line with everything that a terminal would act on escaped: a build's files may be anyone's."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
