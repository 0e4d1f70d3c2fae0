"""A world: which terms exist and which rules hold, as index arrays.

The constraints C1-C8 hold by construction, so nothing is ever generated and thrown away:

- every rule type is a function of its key (C1, C2);
- attributes lie in levels: *drivers*, which states and actions change, and below them what they trigger, each triggered
  by one attribute of the level above; so attribute changes are a forest, and one path leads down to each (C3, C4);
- drivers have *colours*: the states that environments lead to, the states that actions lead to, places and states
  together, counts beyond a threshold, and rules that have exceptions each change drivers of their own, and what an
  action changes itself its states leave alone (C5);
- nothing changes an attribute whose count has a threshold, so that count is the initial one in every pool;
- what has exceptions is asked for where they are looked for, so that all that apply are gold rules;
- initial counts are at least the largest possible loss, ``3 units x 3``: beyond the first response amounts are 1 (C6);
- one term, one name (C7); pairs on the deny list are never drawn (C8).

Hence C9: whatever other rules are in force, a question's answer is the one its gold rules give.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from types import EllipsisType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..spec import PAPER_POINT, Dials
from .forms import FRAMES, HERE, SHAPES, THERE, draw_forms
from .names import Names
from .streams import Ints, keyed_integers

MIN_COUNT, MAX_COUNT = 9, 20
"""Initial values: no chain can take more than ``MAX_UNITS * MAX_EFFECT`` away."""
MIN_CUT, MAX_CUT = 11, 17
"""Where a threshold cuts the initial values: "more than 11" to "more than 17", and "fewer than" one more."""
MAX_EFFECT = 3
MAX_UNITS = 3
MINUS, PLUS = 0, 1
NAMED = ("entity", "action", "environment", "state", "trigger_attribute", "trigger_verb", "attribute", "verb")
"""Columns of a rule that its text names."""
_PREMISE_OF = {
    "entity": ("entity",),
    "attrchange": ("trigger_attribute", "trigger_verb"),
    "action": ("action",),
    "env": ("environment",),
    "state": ("state",),
    "place_state": ("environment", "state"),
    "count": ("trigger_attribute",),
    "exception": ("state", "entity", "environment"),
}
"""Which of them its premise names, by the first half of its type."""


@dataclass(frozen=True)
class RuleBlock:
    """All rules of one type: ids and typed parts, one array each, sorted by key.

    ``columns`` holds term indices (of the world, not of the vocabulary), ``operator`` and ``trigger_operator`` (0
    minus, 1 plus), ``role`` (0 actor, 1 target), ``amount``, and ``verb`` / ``trigger_verb`` (index in the operator's
    lexicon). An exception for creatures of any kind, or in any place, has -1 as its entity or environment.
    """

    type: str
    ids: Ints
    columns: dict[str, Ints]

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, name: str) -> Ints:
        return self.columns[name]

    def __add__(self, other: Self) -> "RuleBlock":
        columns = {name: np.concatenate([values, other[name]]) for name, values in self.columns.items()}
        return RuleBlock(self.type, np.concatenate([self.ids, other.ids]), columns)

    def take(self, rows: Ints | slice | EllipsisType) -> "RuleBlock":
        """Return the block with only some rows."""
        return RuleBlock(self.type, self.ids[rows], {k: v[rows] for k, v in self.columns.items()})


@dataclass(frozen=True)
class World:
    """The terms and rules of one world."""

    world_id: str  # name used in the data
    seed: int
    # For each of entity, attribute, action, environment, state: the vocabulary index of every term.
    terms: dict[str, Ints]
    blocks: dict[str, RuleBlock]  # by rule type
    # For each open rule type the rows of the world's subset; without the types that are in it as a whole.
    subset_rows: dict[str, Ints] = field(default_factory=dict)
    dials: Dials = PAPER_POINT
    # Attributes that thresholds can change, in the whole world also where this is a part of it: of a creature of a kind
    # they are asked along such a path only.
    threshold_driven: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    reserves: int = 0  # one in so many of the rules that give counts is kept for the split `unseen`; 0: none
    # The rules of the same terms that are left out of this world; questions without an answer need one of them.
    left_out: Self | None = None

    def __repr__(self) -> str:
        """Return how many rules it has and how its dials stand, as a table."""
        from ..show import table_text

        head = f"World {self.world_id}: {len(self):,} rules"
        return f"{head}\n\n{table_text(['dial', 'values', 'paper', 'here'], self.dials.rows())}"

    def __len__(self) -> int:
        return sum(len(block) for block in self.blocks.values())

    @property
    def structure_id(self) -> str:
        """The world's name without the dials that change texts alone: names the streams of its questions."""
        return "-".join(part for part in self.world_id.split("-") if not part.startswith("words"))

    def forms(self, block: RuleBlock) -> dict[str, Ints]:
        """Return how rules are worded: a frame and forms of names for each; nothing where all words are the usual."""
        if not self.dials.words:
            return {}
        key = ("words", self.structure_id, block.type)
        premise = _PREMISE_OF[block.type.partition("2")[0]]
        sides = dict.fromkeys(FRAMES, SHAPES)
        sides |= {name: HERE if name in premise else THERE for name in NAMED if name in block.columns}
        forms = draw_forms(key, self.dials.words, sides, block.ids)
        return {name if name in FRAMES else f"{name}_form": drawn for name, drawn in forms.items()}

    def reserved(self, block: RuleBlock) -> NDArray[np.bool_]:
        """Return which rules are kept for the split ``unseen``: one in `reserves` of those that count, by a hash."""
        if not self.reserves or not block.type.endswith("2attr"):
            return np.zeros(len(block), dtype=np.bool_)
        return keyed_integers(("unseen", self.seed), self.reserves, block.ids) == 0

    def restrict(self) -> Self:
        """Return the same world with only the rules of its subset; their ids do not change."""
        blocks = {name: block.take(self.subset_rows.get(name, ...)) for name, block in self.blocks.items()}
        others = self.left_out and self.left_out.restrict()
        return replace(self, blocks=blocks, subset_rows={}, left_out=others)

    @cached_property
    def whole(self) -> Self:
        """The world with what is left out of it: in every block the rows of this world come first."""
        if self.left_out is None:
            return self
        blocks = self.blocks | {
            name: self.blocks[name] + block for name, block in self.left_out.blocks.items()
        }
        return replace(self, blocks=blocks, subset_rows={}, left_out=None)

    @cached_property
    def derived(self) -> dict[Any, Any]:
        """What has been derived from the rules once, under a key of who derived it; gone with the world."""
        return {}

    @cached_property
    def names(self) -> Names:
        """Names of the terms."""
        return Names(self.terms)
