"""Rules as text, and back: logic and English, rendered column-wise and parsed without the renderer."""

from .fol import Fact, Query, parse_facts, parse_query, parse_state
from .parser import ParsedRule, halves_fol, halves_nl, parse_rule_fol, parse_rule_nl

__all__ = [
    "Fact",
    "ParsedRule",
    "Query",
    "halves_fol",
    "halves_nl",
    "parse_facts",
    "parse_query",
    "parse_rule_fol",
    "parse_rule_nl",
    "parse_state",
]
