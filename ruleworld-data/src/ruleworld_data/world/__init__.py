"""What a world is made of: words, keyed random streams, and the index arrays of its terms and rules.

Everything here is numpy and plain Python; a world is a pure function of its seed and sizes.
"""

from .arrays import RuleBlock, World
from .drawing import build_world
from .names import Names
from .streams import Ints, Key, Stream, keyed_integers, mix
from .vocabulary import Place, Verb, Vocabulary, article, load_vocabulary, symbol, term, with_object

__all__ = [
    "Ints",
    "Key",
    "Names",
    "Place",
    "RuleBlock",
    "Stream",
    "Verb",
    "Vocabulary",
    "World",
    "article",
    "build_world",
    "keyed_integers",
    "load_vocabulary",
    "mix",
    "symbol",
    "term",
    "with_object",
]
