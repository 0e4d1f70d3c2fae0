"""Sizes: how many terms and rules a world has, and the named scales (the paper's two count tables)."""

from dataclasses import dataclass, field, replace
from typing import Self

from .dials import PAPER_POINT, Dials
from .names import EXTRA_TYPES, SUBTASKS, check_count

MAX_ATTRIBUTES, MAX_STATES = 4096, 1664
"""Attributes and states that the vocabulary has."""
FIXED_SHARE, MAX_THRESHOLDS = 8, 16
"""Rules of a conjunctive premise or a threshold's state where no crowd is given; most attributes with thresholds."""
MAX_GUARDS = 8
"""Most kinds of creature that one rule has exceptions for."""
MIN_CHAINS = 64
"""Chains of each path that a world needs, so that every split has some."""


def left_out(rules: int) -> int:
    """Return how many rules of a type are left out of a world of unknowns: a tenth, and one at least."""
    return -(-rules // 10)


def _by_subtask(*counts: int) -> dict[str, int]:
    return dict(zip(SUBTASKS, counts, strict=True))


@dataclass(frozen=True)
class WorldSizes:
    """How many terms a world uses and how many rules of each open type it holds.

    Actions and environments fix the counts of the other four types: one environment per action, one attribute effect
    and one state per action and role, one state per environment.

    What changes attributes is kept apart by *colours*: the drivers are cut into ``colours`` parts, one for the states
    of places, one for those of actions, one each for conjunctive premises, for rules that have exceptions and for
    thresholds where dials ask for them. The other attributes follow in ``levels - 1`` levels, each driven by one
    attribute of the level above.
    """

    entities: int = 960
    attributes: int = 4096
    states: int = 1664
    actions: int = 100
    environments: int = 100
    entity2attr: int = 1_877_380
    attrchange2attr: int = 4_021
    state2attr: int = 3_054_112
    place_state2attr: int = 0
    count2state: int = 0
    exceptions: int = 0  # levels of exceptions to rules about the states of places
    levels: int = 2
    colours: int = 2
    crowd: int | None = None  # state2attr rules of every state that is led to; None: as it falls
    unknown: bool = False  # whether rules of the paper's types are left out of the world once it is drawn

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if name not in ("crowd", "unknown"):
                check_count(name, value)
        plain = self.levels == self.colours == 2 and not self.count2state
        if self.entities < 2 or self.attributes < 4 or (plain and self.attributes % 4):
            raise ValueError(
                "a world needs at least 2 entities and a multiple of 4 attributes (drivers and responses, in two "
                f"halves), got {self.entities} entities and {self.attributes} attributes"
            )
        if self.environments != self.actions or self.actions < 1:
            raise ValueError(
                "every action leads to an environment of its own, so environments must equal actions and be at least "
                f"1, got {self.actions} actions and {self.environments} environments"
            )
        if self.states < self.reachable_states:
            raise ValueError(
                f"states must be at least environments + 2 * actions = {self.reachable_states}, got {self.states}"
            )
        for name, slots in self.slots().items():
            if getattr(self, name) > slots:
                raise ValueError(
                    f"{name}={getattr(self, name)} rules do not fit: this world has room for {slots}; "
                    "ask for fewer rules or more terms"
                )

    @property
    def reachable_states(self) -> int:
        """States that an environment or an action leads to."""
        return self.environments + 2 * self.actions

    @property
    def threshold_attributes(self) -> int:
        """Attributes whose count decides on a state; nothing changes them."""
        return self.count2state // 2

    @property
    def share(self) -> int:
        """Rules of every premise that has a fixed number of them: true conjunctive premises, states of thresholds."""
        return self.crowd or FIXED_SHARE

    @property
    def fixed_rules(self) -> int:
        """``state2attr`` rules of states that have a fixed number of them."""
        return self.excepted + self.share * (self.count2state + (self.reachable_states if self.crowd else 0))

    @property
    def excepted(self) -> int:
        """``state2attr`` rules that have exceptions: as many of each state that an environment leads to."""
        return self.share * self.environments if self.exceptions else 0

    @property
    def guards(self) -> int:
        """Kinds of creature that a rule has exceptions for; twice as many surely have the attribute."""
        return min(MAX_GUARDS, self.entities // 2)

    @property
    def exception(self) -> int:
        """Exceptions: half of the rules have one for each of some kinds, half one for the place; then one to each."""
        kinds = (self.excepted + 1) // 2
        first = kinds * self.guards + self.excepted - kinds
        return first + (self.excepted * self.guards if self.exceptions > 1 else 0)

    @property
    def fixed_counts(self) -> int:
        """``entity2attr`` rules that are there whatever is drawn: of thresholds and of what has exceptions."""
        trees = self.colour_sizes()[0] * self.levels if self.exceptions else 0
        return self.entities * self.threshold_attributes + 2 * self.guards * trees

    def colour_sizes(self) -> list[int]:
        """Return the number of drivers of each colour."""
        drivers = _parts(self.attributes - self.threshold_attributes, self.levels)[0]
        return _parts(drivers, self.colours)

    def slots(self) -> dict[str, int]:
        """Room for each open rule type under the constraints (a lower bound for ``state2attr``)."""
        places, actions, *others = self.colour_sizes()
        drivers = places + actions + sum(others)
        open_ = (self.states - self.reachable_states - self.count2state) * (places + actions)
        if not self.crowd:
            open_ += self.environments * places + 2 * self.actions * actions - 3 * self.actions
        return {
            "entity2attr": self.entities * self.attributes,
            "attrchange2attr": 2 * (self.attributes - self.threshold_attributes - drivers),
            "state2attr": open_ + self.fixed_rules,
        }

    def rule_counts(self, subset: dict[str, int] | None = None) -> dict[str, int]:
        """Return the number of rules by type, in the order of `RULE_TYPES` and, where there are any, `EXTRA_TYPES`.

        ``subset`` has the rules of the types of which a part is taken, before any are left out.
        """
        counts = {
            "entity2attr": self.entity2attr,
            "attrchange2attr": self.attrchange2attr,
            "action2env": self.actions,
            "action2attr": 2 * self.actions,
            "action2state": 2 * self.actions,
            "env2state": self.environments,
            "state2attr": self.state2attr,
        }
        counts |= subset or {}
        if self.unknown:
            counts = {name: count - left_out(count) for name, count in counts.items()}
        return counts | {name: count for name in EXTRA_TYPES if (count := getattr(self, name))}

    def turned(self, dials: Dials) -> Self:
        """Return the sizes of a world with these dials, each open rule type as dense as it was.

        In more than two levels every change has a consequence, or long chains would be rare. A small world gets more
        attributes where they are cut into more classes, as far as the vocabulary goes.

        Raises
        ------
        ValueError
            If a dial is out of what this size allows.
        """
        if dials.structure == PAPER_POINT:
            return self
        colours = 2 + (dials.conjunction > 1) + dials.thresholds + (dials.exceptions > 0)
        cut = self.attributes * dials.levels * colours // 4
        shape = replace(
            self,
            attributes=max(self.attributes, min(cut, MAX_ATTRIBUTES)),
            levels=dials.levels,
            colours=colours,
            crowd=dials.crowd,
            exceptions=dials.exceptions,
            unknown=dials.unknown,
            **dict.fromkeys(("entity2attr", "attrchange2attr", "state2attr"), 0),
        )
        least, most = -(-MIN_CHAINS // self.actions), min(shape.colour_sizes()) - 2
        if (dials.crowd or colours > 2) and not least <= shape.share <= most:
            given = dials.crowd or f"{shape.share}, what rules of other dials take without it"
            raise ValueError(
                f"crowd must be from {least} to {most} in a world of {self.actions} actions and {shape.attributes} "
                f"attributes in {dials.levels} levels and {colours} colours, got {given}; use a larger scale or turn "
                "other dials back"
            )
        if dials.exceptions and self.actions < 2:
            raise ValueError(f"exceptions need a world of at least 2 actions, got {self.actions}")
        if dials.conjunction > 1 and self.actions < 3:
            raise ValueError(f"conjunction needs a world of at least 3 actions, got {self.actions}")
        if dials.conjunction > 1:  # as many decoys as rules that can fire
            shape = replace(shape, place_state2attr=2 * self.actions * shape.share)
        if dials.thresholds:
            owners = max(1, min(MAX_THRESHOLDS, most // shape.share))
            states = min(MAX_STATES, self.states + 2 * owners)
            shape = replace(shape, states=states, count2state=2 * owners)
        room, before = shape.slots(), self.slots()
        return replace(
            shape,
            entity2attr=shape.fixed_counts
            + self.entity2attr * (room["entity2attr"] - shape.fixed_counts) // before["entity2attr"],
            attrchange2attr=room["attrchange2attr"]
            if dials.levels > 2
            else self.attrchange2attr * room["attrchange2attr"] // before["attrchange2attr"],
            state2attr=shape.fixed_rules
            + self.state2attr * (room["state2attr"] - shape.fixed_rules) // before["state2attr"],
        )


def _parts(whole: int, parts: int) -> list[int]:
    """Sizes of nearly equal parts, the larger ones first, as `numpy.array_split` cuts."""
    return [whole // parts + (i < whole % parts) for i in range(parts)]


@dataclass(frozen=True)
class Scale:
    """A named size of the benchmark."""

    sizes: WorldSizes  # the world that rules are drawn in
    # Rules kept per open type, if the scale uses a part of its world; ids are those of the whole world.
    subset: dict[str, int] | None
    train: dict[str, int]  # questions by sub-task; one that only dials bring has as many as the last
    # Questions per sub-task of the other splits.
    evaluation: dict[str, int] = field(
        default_factory=lambda: {"validation": 500, "test": 500, "mini": 50, "heldout": 500, "unseen": 500}
    )
    unit_pool: int = 8_192  # most sub-questions of each width that a block of parallel questions combines
    reserved: int = 8  # one in so many of the rules that give counts is kept for ``unseen``, from data 1.2 on

    def rule_count(self) -> int:
        """Return the number of rules of the scale."""
        return sum(self.sizes.rule_counts(self.subset).values())

    def turned(self, dials: Dials) -> Self:
        """Return the scale with these dials.

        A subset keeps as many rules of a kind or a state as it had, and all attribute changes in more than two levels.
        """
        if dials.structure == PAPER_POINT:
            return self
        old, new, subset = self.sizes, self.sizes.turned(dials), None
        if self.subset is not None:
            states = new.states - new.count2state - (new.reachable_states if new.crowd else 0)
            changes = self.subset["attrchange2attr"] if new.levels == 2 else new.attrchange2attr
            subset = {
                "entity2attr": min(new.entity2attr, self.subset["entity2attr"] + new.fixed_counts),
                "attrchange2attr": min(new.attrchange2attr, changes),
                "state2attr": min(
                    new.state2attr, self.subset["state2attr"] * states // old.states + new.fixed_rules
                ),
            }
        return replace(self, sizes=new, subset=subset)

    def room(self, subtask: str, share: float) -> int:
        """Return how many questions of one path a split surely has in a sub-task of chains.

        ``share`` is the split's part of all chains. A chain begins with an environment and goes through its state; it
        has one question for every kind that has the attribute at its end, or that its rule has exceptions for. Three
        standard deviations are left to chance.
        """
        sizes, counts = self.sizes, self.sizes.rule_counts(self.subset)
        if subtask.startswith("exceptions"):
            chains, kinds = float(sizes.excepted), float(sizes.guards)
        else:
            crowd = (
                sizes.crowd or counts["state2attr"] * min(sizes.colour_sizes()) / sizes.slots()["state2attr"]
            )
            stays = 0.9**2 if sizes.unknown else 1  # the rules of an action's and an environment's route
            chains, kinds = sizes.actions * crowd * stays, 0.8 * counts["entity2attr"] / sizes.attributes
        chains *= 0.9 * share
        return int(max(0.0, chains - 3 * chains**0.5) * kinds)


SCALES: dict[str, Scale] = {
    "tiny": Scale(
        sizes=WorldSizes(
            entities=40,
            attributes=64,
            states=60,
            actions=16,
            environments=16,
            entity2attr=1_000,
            attrchange2attr=60,
            state2attr=828,
        ),
        subset=None,
        train=dict.fromkeys(SUBTASKS, 100),
        evaluation={"validation": 20, "test": 50, "mini": 50, "heldout": 20, "unseen": 20},
        unit_pool=300,
        reserved=4,
    ),
    "paper": Scale(
        sizes=WorldSizes(),
        subset={"entity2attr": 74_888, "attrchange2attr": 3_772, "state2attr": 20_975},
        train=_by_subtask(25_000, 6_702, 8_696, 12_384, 10_924, 6_824, 2_863, 807, 19_500, 12_500, 5_000),
    ),
    "full": Scale(
        sizes=WorldSizes(),
        subset=None,
        train=_by_subtask(
            50_000, 154_167, 381_116, 839_755, 886_455, 618_577, 289_761, 80_169, 37_737, 30_000, 10_000
        ),
    ),
}
