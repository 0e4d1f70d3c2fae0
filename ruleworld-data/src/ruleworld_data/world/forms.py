"""What things are called: a usual name each, and three more that mean the same.

A *form* picks the name: 0 is the usual one. A name of two words, "tiny cat", has a form for each of them, so sixteen in
all. No two things share a name, in any form, so that every text says one thing.
"""

from collections.abc import Mapping

import numpy as np

from .streams import Ints, Key, keyed_integers

FORMS = 4
"""Names of one word."""
TWO_WORDS = tuple("entity attribute trigger_attribute state subject other stated asked trigger".split())
"""What is called by two words: columns of a rule, and what a question names."""
HERE, THERE, SHAPES = np.array([0, 1]), np.array([2, 3]), np.array([0, 1, 2, 3])
"""Forms of names in premises and in what is asked for, of those in conclusions and facts, and of frames."""
QUESTION_NAMES = dict.fromkeys(
    ("subject", "other", "trigger", "verb", "environment", "state", "action"), THERE
) | dict.fromkeys(("stated", "asked"), HERE)
"""What a question names: two creatures, what happens, and the attributes that it states and asks for."""
FRAMES = ("premise_frame", "conclusion_frame", "join", "mention")
"""What else has four forms: the shapes of sentences."""
_SCALE = 2**30


def draw_forms(key: tuple[Key, ...], words: float, sides: Mapping[str, Ints], rows: Ints) -> dict[str, Ints]:
    """Draw which name, or which frame, each column of ``sides`` has in each row: below 16 for two words, else 4.

    ``words`` is the chance, for each word by itself, of a name drawn anew. With more of it the names that have changed
    stay as they are, and more change. ``sides`` has the forms that a column is drawn from: `HERE`, `THERE` or `SHAPES`.
    What a premise looks for is `HERE` and what can meet it, a conclusion or a question's fact, is `THERE`; so at 1 the
    two never share a name.
    """
    forms = {}
    for column, choice in sides.items():
        form = np.zeros(len(rows), dtype=np.int64)
        for part in range(1 + (column in TWO_WORDS)):
            changed = keyed_integers((*key, column, part, "changed"), _SCALE, rows) < words * _SCALE
            drawn = choice[keyed_integers((*key, column, part, "drawn"), len(choice), rows)]
            form = form * FORMS + np.where(changed, drawn, 0)
        forms[column] = form
    return forms
