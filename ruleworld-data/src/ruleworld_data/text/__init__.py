"""Rules as text, and back: logic and English, rendered column-wise and parsed without the renderer."""

from .fol import Fact, Query, parse_facts, parse_query, parse_state
from .paragraphs import paragraphs
from .parser import parse_rule

__all__ = ["Fact", "Query", "paragraphs", "parse_facts", "parse_query", "parse_rule", "parse_state"]
