"""The verifier: a second opinion on a build, from its parquet files alone.

Nothing of the generator is used: rules, facts and queries are parsed back from the shipped texts, and two solvers that
share only the parser answer every sub-question again. `solve` and `execute` answer questions from any pool of rules.
"""

from typing import TYPE_CHECKING

from .._lazy import attach

if TYPE_CHECKING:  # what type checkers and editors see
    from .executor import *
    from .index import *
    from .leaks import *
    from .report import *
    from .rulebase import *
    from .run import *

__getattr__, __dir__, __all__ = attach(
    __name__,
    executor="Derivation Firing execute solve",
    index="RuleIndex",
    leaks="leak_report render_leaks",
    report="CHECKS Check Report render_text",
    rulebase="RuleBase parse_rule_table",
    run="verify",
)
