"""The verifier: a second opinion on a build, from its parquet files alone.

Nothing of the generator is used: rules, facts and queries are parsed back from the shipped texts, and two solvers that
share only the parser answer every sub-question again. `solve` and `execute` answer questions from any pool of rules.
"""

from .executor import Derivation, Firing, execute, solve
from .index import RuleIndex
from .leaks import leak_report, render_leaks
from .report import CHECKS, Check, Report, render_text
from .rulebase import RuleBase, parse_rule_table
from .run import verify

__all__ = [
    "CHECKS",
    "Check",
    "Derivation",
    "Firing",
    "Report",
    "RuleBase",
    "RuleIndex",
    "execute",
    "leak_report",
    "parse_rule_table",
    "render_leaks",
    "render_text",
    "solve",
    "verify",
]
