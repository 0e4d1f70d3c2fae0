"""Rules as text, and back: logic, English and code, rendered column-wise and parsed without the renderer."""

from .code import code_of, parse_rule_code
from .fol import Fact, Query, parse_facts, parse_query
from .parser import ParsedRule, halves_fol, halves_nl, parse_rule_fol, parse_rule_nl

__all__ = [
    "Fact",
    "ParsedRule",
    "Query",
    "code_of",
    "halves_fol",
    "halves_nl",
    "parse_facts",
    "parse_query",
    "parse_rule_code",
    "parse_rule_fol",
    "parse_rule_nl",
]
