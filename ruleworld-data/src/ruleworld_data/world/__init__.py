"""What a world is made of: words, keyed random streams, and the index arrays of its terms and rules.

Everything here is numpy and plain Python; a world is a pure function of its seed and sizes.
"""

from typing import TYPE_CHECKING

from .._lazy import attach

if TYPE_CHECKING:  # what type checkers and editors see
    from .arrays import *
    from .drawing import *
    from .names import *
    from .streams import *
    from .vocabulary import *

__getattr__, __dir__, __all__ = attach(
    __name__,
    arrays="RuleBlock World",
    drawing="build_world",
    names="Names",
    streams="Ints Key Stream keyed_integers mix",
    vocabulary="Place Verb Vocabulary article load_vocabulary symbol term with_object",
)
