"""What verification found: named checks, and how they read."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Self

from ..world import Ints

CHECKS: dict[str, str] = {
    "files": "every shard has the columns and types of the published schema, and as many rows as its scale promises",
    "rule_ids": "rule ids are unique, and a table names one world",
    "rule_fol": "every FOL text parses",
    "rule_nl": "every English text parses, articles, plurals and prepositions included",
    "rule_texts": "both texts of a rule say the same",
    "rule_halves": "premise and conclusion columns are the halves of the texts",
    "rule_columns": "typed columns are what the text says",
    "C1": "at most one rule per key",
    "C2": "no key both adds and takes away",
    "C3": "attribute changes are acyclic",
    "C4": "levels: attributes form a forest, and nothing changes a count that has a threshold",
    "C5": "colours: no attribute is changed along two routes, whatever happens to whom",
    "C6": "no kind starts with fewer of anything than a chain of changes can take",
    "C7": "texts are distinct; terms are the vocabulary's, none of which contains another",
    "C8": "no rule is on the deny list of commonsense pairs",
    "heldout": "the held-out world shares no rule with the first",
    "question_shape": "lists line up: facts, queries, answers, types, steps and gold ids",
    "question_labels": "ids are unique; sub-task, world, skeleton, counts and folds are right",
    "scopes": "facts and queries parse, and answer types fit the queries",
    "gold_rules": "gold rules exist in the split's world (evaluation splits: in the paper's subset)",
    "steps": "steps are the derivation: rule ids in order, FOL, arithmetic, and the state after each",
    "step_texts": "the English of every step names its terms and numbers",
    "needed": "dropping any gold rule changes or removes the answer",
    "question_text": "questions name what the facts state, and no number besides",
    "duplicates": "no question about a world occurs twice, except that mini is a part of test",
    "overlap": "no sub-question of an evaluation split occurs in train, no rule that gives an answer of unseen",
    "C9_gold_executor": "executor, gold rules only: the gold answer",
    "C9_gold_clingo": "clingo, gold rules only: the gold answer",
    "C9_full_executor": "executor, all rules: the gold answer, by the gold rules",
    "C9_full_clingo": "clingo, every rule that bears on the question: the gold answer",
}
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
