"""Checks of the rules: ids, texts, and the constraints C1 to C8."""

from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from ..io.shards import Shard
from ..spec import ROLES, RULE_SPLITS
from ..world import load_vocabulary
from .report import Report, StageProgress
from .rulebase import TYPE_CODE, RuleBase, TableReader, typed_columns

_BATCH = 150_000
_MOST_UNITS, _LONGEST_CHAIN = 3, 8
"""Units of a change that a question states, and hops of a chain."""


def check_rules(
    folder: Path, shards: list[Shard], report: Report, progress: StageProgress
) -> dict[str, RuleBase]:
    """Read and check the rules of both worlds; by split."""
    reader, worlds = TableReader(), dict[str, RuleBase]()
    for done, split in enumerate(RULE_SPLITS, start=1):
        own = [shard for shard in shards if shard.split == split]
        worlds[split] = base = reader.read(_batches(folder, own, report), report)
        _check_ids(base, split, report)
        check_constraints(base, report)
        progress("rules", done, len(RULE_SPLITS))
    _check_heldout(worlds["train"], worlds["heldout"], report)
    return worlds


def check_constraints(base: RuleBase, report: Report) -> None:
    """Check C1 to C8 on the rules of one world."""
    for number in range(1, 9):
        report[f"C{number}"].checked += len(base)
    for check in _CONSTRAINTS:
        check(base, report)


def _batches(folder: Path, shards: list[Shard], report: Report) -> Iterator[pa.RecordBatch]:
    for shard in shards:
        with pq.ParquetFile(folder / shard.path) as file:
            for batch in file.iter_batches(batch_size=_BATCH):
                for name in ("rule_ids", "rule_fol", "rule_nl", "rule_texts", "rule_halves", "rule_columns"):
                    report[name].checked += len(batch)
                yield batch


def _check_ids(base: RuleBase, split: str, report: Report) -> None:
    ids = report["rule_ids"]
    for row in _repeats(base.rules["id"]).index:
        ids.fail(f"rules/{split}: the id {base['id'][row]} occurs twice")
    if len(base.worlds) != 1:
        ids.fail(f"rules/{split}: one world_id expected, got {', '.join(base.worlds)}")


def _check_heldout(first: RuleBase, heldout: RuleBase, report: Report) -> None:
    """No rule, text for text, is in both worlds."""
    check = report["heldout"]
    check.checked += len(heldout)
    for text in ("fol_key", "nl_key"):
        shared = np.isin(heldout[text], first[text])
        check.fail_rows(np.flatnonzero(shared), lambda row: f"rule {_name(heldout, row)} is in both worlds")


def _name(base: RuleBase, row: int) -> str:
    columns = typed_columns(base.rules.iloc[[row]], base.terms)
    kind, *parts = [f"{name} {value[0]}" for name, value in columns.items() if value[0].is_valid]
    return f"{base['id'][row]} ({kind.removeprefix('type ')}: {', '.join(parts)})"


def _repeats(key: pd.DataFrame | pd.Series) -> pd.Series:
    """Return, for every row whose key occurred before, the row where it first did."""
    clash = pd.DataFrame(key)[key.duplicated(keep=False)]
    first = clash.index.to_series().groupby([clash[name] for name in clash]).transform("first")
    return first[first != first.index]


def _functional(base: RuleBase, report: Report) -> None:
    """C1 and C2: one rule per key, so in particular none that adds and one that takes."""
    key = base.rules[["type", "premise", "mark", "state", "entity", "place", "conclusion"]].copy()
    # A kind, a state, or a place and a state, may have a rule for every attribute; any other premise has one.
    wide = [TYPE_CODE[name] for name in ("entity2attr", "state2attr", "place_state2attr", "exception")]
    key.loc[~key["type"].isin(wide), "conclusion"] = -1
    pairs = list(_repeats(key).items())

    def describe(pair: tuple[int, int]) -> str:
        return f"rules {_name(base, pair[1])} and {_name(base, pair[0])} have the same key"

    operator = base["operator"]
    report["C1"].fail_rows(pairs, describe)
    report["C2"].fail_rows([pair for pair in pairs if operator[[*pair]].sum() == 1], describe)


def _levels(base: RuleBase, report: Report) -> None:
    """C3 and C4: acyclic; what states and actions change has no driver; one driver per response; thresholds apart."""
    names, changes = base.terms.names, base.of_type("attrchange2attr")
    drivers_of: dict[Any, set[int]] = changes.groupby("conclusion")["premise"].agg(set).to_dict()
    try:
        TopologicalSorter(drivers_of).prepare()
    except CycleError as error:
        loop = " -> ".join(names[code] for code in reversed(error.args[1]))
        report["C3"].fail(f"attribute changes run in a circle: {loop}")
    drivers = set(base.of_type("state2attr", "action2attr", "place_state2attr")["conclusion"])
    counted = set(base.of_type("count2state")["premise"])
    fail = report["C4"].fail
    fail(*(f"{names[code]!r} is a driver and a response" for code in sorted(drivers & drivers_of.keys())))
    moved = counted & (drivers | drivers_of.keys())
    fail(*(f"{names[code]!r} has a threshold and is changed" for code in sorted(moved)))
    for code, rivals in drivers_of.items():
        if len(rivals) > 1:
            spelt = ", ".join(repr(names[rival]) for rival in sorted(rivals))
            fail(f"the response {names[code]!r} has {len(rivals)} drivers: {spelt}")


def _routes(base: RuleBase, report: Report) -> None:
    """C5: no attribute is changed along two routes, whatever happens to whom.

    An action changes attributes through its environment's state, through its own, through places and states together,
    and by itself.
    """
    who = ["action", "role"]

    def by_action(rule_type: str, conclusion: str) -> pd.DataFrame:
        return base.of_type(rule_type)[["premise", "mark", "conclusion"]].set_axis([*who, conclusion], axis=1)

    entered, own = by_action("action2env", "place"), by_action("action2state", "state")
    caused = base.of_type("env2state")[["premise", "conclusion"]].set_axis(["place", "state"], axis=1)
    there = entered.merge(caused)
    states = pd.concat([there, own])[[*who, "state"]].drop_duplicates()
    effects = _effects(base, states["state"])
    both = base.of_type("place_state2attr")[["premise", "state", "conclusion"]]
    both = entered.merge(both.set_axis(["place", "state", "attribute"], axis=1)).merge(states)
    routes = pd.concat(
        [
            there.merge(effects).assign(by="its environment's state"),
            own.merge(effects).assign(by="its own state"),
            both.assign(by="place and state together"),
            by_action("action2attr", "attribute").assign(by="its own effect"),
        ]
    )
    shared = routes[routes.duplicated([*who, "attribute"], keep=False)]
    names = base.terms.names
    for _, group in shared.groupby(who):
        action, role, attribute = group[[*who, "attribute"]].to_numpy().min(axis=0).tolist()
        report["C5"].fail(
            f"{names[action]!r} changes {names[attribute]!r} of its {ROLES[role]} by "
            f"{' and by '.join(group['by'].unique())} ({group['attribute'].nunique()} such attributes)"
        )


def _thresholds(base: RuleBase, report: Report) -> None:
    """C5 for counts: no count has two states, and what counts change nothing else does, as they do it always."""
    names, fail, cuts = base.terms.names, report["C5"].fail, base.of_type("count2state")
    bounds = cuts.pivot_table(index="premise", columns="mark", values="threshold", aggfunc="last")
    for attribute, fewer, more in bounds.reindex(columns=[0, 1]).dropna().astype(int).itertuples():
        if fewer > more + 1:
            both = f"more than {more} and fewer than {fewer}"
            fail(f"{names[attribute]!r}: a count can be {both}, and then has two states")
    owned = cuts[["premise", "conclusion"]].set_axis(["owner", "state"], axis=1)
    owned = owned.merge(_effects(base, owned["state"]))[["owner", "attribute"]].drop_duplicates()
    states = base.of_type("state2attr")
    others = [
        base.of_type("action2attr", "place_state2attr"),
        states[~states["premise"].isin(cuts["conclusion"])],
    ]
    free = pd.DataFrame({"owner": -1, "attribute": pd.concat(others)["conclusion"].unique()})
    changed = pd.concat([owned, free])
    shared = changed[changed["attribute"].duplicated(keep=False) & (changed["owner"] >= 0)]
    for _, group in shared.groupby("owner"):
        owner, attribute = group[["owner", "attribute"]].to_numpy().min(axis=0).tolist()
        fail(
            f"the count of {names[owner]!r} changes {names[attribute]!r}, and so does something else "
            f"({len(group)} such attributes)"
        )


def _exceptions(base: RuleBase, report: Report) -> None:
    """C5 for exceptions: each sets aside one rule, of one condition less, and has its sign and another amount."""
    about = ["premise", "conclusion", "entity", "place"]
    rules = base.of_type("state2attr", "exception")[[*about, "operator", "amount"]]
    own = rules[(rules["entity"] >= 0) | (rules["place"] >= 0)]
    both = (own["entity"] >= 0) & (own["place"] >= 0)
    plain = own.assign(row=own.index, entity=-1, place=-1)[~both]
    outer = [plain, *(own.assign(row=own.index, **{name: -1})[both] for name in ("entity", "place"))]
    found = pd.concat(outer).merge(rules, on=about, suffixes=("", "_aside"))
    good = found[found["operator"].eq(found["operator_aside"]) & found["amount"].ne(found["amount_aside"])]
    times = good["row"].value_counts().reindex(own.index, fill_value=0)
    report["C5"].fail_rows(
        own.index[times != 1].to_numpy(),
        lambda row: f"the exception {_name(base, row)} sets {times[row]} rules aside, not one",
    )
    kinds, places = (
        own[~both & (own[name] >= 0)][about[:2]].drop_duplicates() for name in ("entity", "place")
    )
    report["C5"].fail_rows(
        kinds.reset_index().merge(places)["index"].to_numpy(),
        lambda row: f"two exceptions like {_name(base, row)} can apply, for a kind and for a place",
    )


def _effects(base: RuleBase, states: pd.Series) -> pd.DataFrame:
    """Return the attributes that some states change."""
    rules = base.of_type("state2attr")
    rules = rules[rules["premise"].isin(states)]
    return rules[["premise", "conclusion"]].set_axis(["state", "attribute"], axis=1).drop_duplicates()


def _losses(base: RuleBase, report: Report) -> None:
    """C6: no kind starts with fewer of an attribute than one chain of changes can take."""
    changes = base.of_type("attrchange2attr")
    effects = base.of_type("state2attr", "action2attr", "place_state2attr", "exception")
    most = effects.groupby("conclusion")["amount"].max()
    stated = pd.Series(_MOST_UNITS, changes["premise"].unique())
    most = pd.concat([most, stated]).groupby(level=0).max()
    for _ in range(_LONGEST_CHAIN):
        passed = changes["amount"] * changes["premise"].map(most)
        most = pd.concat([most, passed.groupby(changes["conclusion"]).max()]).groupby(level=0).max()
    least = base.of_type("entity2attr").groupby("conclusion")["amount"].min()
    loss = most.reindex(least.index, fill_value=0)
    for code in least.index[least < loss]:
        spelt = f"{base.terms.names[code]!r} starts at {least[code]} and can lose {int(loss[code])}"
        report["C6"].fail(spelt)


def _distinct_texts(base: RuleBase, report: Report) -> None:
    for text, key in (("FOL", "fol_key"), ("English", "nl_key")):
        report["C7"].fail_rows(
            list(_repeats(base.rules[key]).items()),
            lambda pair, text=text: (
                f"rules {base['id'][pair[1]]} and {_name(base, pair[0])} have the same {text} text"
            ),
        )


def _denied(base: RuleBase, report: Report) -> None:
    """C8: no rule links a pair of words that readers would link without it."""
    denied = set(load_vocabulary().denied)
    kinds = {"env2state": "env_state", "action2state": "action_state", "action2env": "action_env"}
    for rule_type, kind in kinds.items():
        rules = base.of_type(rule_type)
        for row, premise, conclusion in zip(rules.index, rules["premise"], rules["conclusion"], strict=True):
            # The list has words of place names, verbs, and the adjectives of states.
            left, right = base.terms.names[premise], base.terms.names[conclusion]
            right = right if kind == "action_env" else right.rsplit(" ", 1)[-1]
            for word in left.split() if kind == "env_state" else [left]:
                if (kind, word, right) in denied:
                    report["C8"].fail(f"rule {_name(base, row)} is common sense: {word}, {right}")


_CONSTRAINTS = (
    *(_functional, _levels, _routes, _thresholds, _exceptions, _losses, _distinct_texts, _denied),
)
