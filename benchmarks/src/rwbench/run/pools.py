"""Which rules a question's retriever sees.

A pool is computed, never stored: a pure function of the spec and the data. Four scopes:

``question``  one pool per question: its gold rules and distractors;
``fold``      one pool shared by a fold, ten questions of every sub-task (110 in all);
``batch``     one pool shared by fifty questions of every sub-task (split mini is one batch, test is ten);
``world``     all rules of the questions' own world, in the order of their ids: a rule book's, which nobody draws.

Pools are drawn for the whole split, so neither ``limit`` nor a choice of sub-tasks changes what a question
sees. With ``pool_within`` the distractors come from the batch's larger pool: sizes are then nested, a curve
over pool sizes is not blurred by other distractors, and an encoder reads only the rules of the largest pool.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from ruleworld_data.pools import shared_pool
from ruleworld_data.spec import MINI_FOLD_SIZE, MINI_FOLDS

from ..spec import RunSpec, canonical_json
from .data import DataSource, Ids, Question, RuleTable, select

FOLD_SIZE = MINI_FOLD_SIZE
BATCH_SIZE = MINI_FOLD_SIZE * MINI_FOLDS


@dataclass(frozen=True, eq=False)
class Pool:
    """The rules of one pool, ids (M,) in shuffled order, and the questions asked on it.

    ``rules`` are the world's, for typed parts and other representations; ``representation`` is ``"fol"`` or ``"nl"``.
    Methods share a pool, so nothing in it can be written to.
    """

    ids: Ids
    rules: RuleTable
    representation: str
    questions: tuple[Question, ...]

    def __post_init__(self) -> None:
        self.ids.flags.writeable = False

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """Rule texts in the pool's representation, in the order of ``ids``."""
        return tuple(self.rules.texts(self.ids, self.representation))


def pools_of(spec: RunSpec, source: DataSource) -> list[Pool]:
    """Return the pools of a run, which methods that are compared share; a ValueError if it belongs to other data."""
    world = {"scale": source.scale, "world_seed": source.seed, "data": source.data}
    for name, ours in (world | {"dials": str(source.dials) or None}).items():
        if getattr(spec, name) != ours:
            raise ValueError(
                f"run {spec.run_id} asks for {name}={getattr(spec, name)!r}, this source has {ours!r}; "
                "make the spec anew from this source"
            )
    return _pools(canonical_json(spec.to_dict() | {"method": {"name": "any"}}), source)


@lru_cache(maxsize=32)
def _pools(design: str, source: DataSource) -> list[Pool]:
    spec = RunSpec.from_dict(json.loads(design))
    # A pool of one question needs only the sub-tasks asked; a shared pool holds the gold rules of all.
    alone = spec.pool_scope in ("question", "world") and spec.pool_within is None
    names = spec.subtasks if alone else source.subtasks
    split = {name: source.questions(name, spec.split) for name in names}
    return list(build_pools(spec, split, source.rules(spec.split)))


def build_pools(spec: RunSpec, split: Mapping[str, Sequence[Question]], rules: RuleTable) -> Iterator[Pool]:
    """Yield the pools of a run in a fixed order; a ValueError if one cannot hold its questions' gold rules.

    ``split`` holds all questions of the spec's split by sub-task: also those that the spec does not ask.
    """
    chosen = {q.id for name in spec.subtasks for q in select(split[name], spec.limit)}
    everything = [question for questions in split.values() for question in questions]
    universes: dict[int | str, Ids] = {}
    if spec.pool_within is not None:
        for key, members in _grouped(everything, "batch", spec.split).items():
            universes[key] = np.sort(_draw(rules.ids, members, spec.pool_within, spec, "batch", key))
    for key, members in _grouped(everything, spec.pool_scope, spec.split).items():
        wanted = tuple(question for question in members if question.id in chosen)
        if wanted:
            if spec.pool_scope == "world":
                ids = rules.ids[rules.table["world_id"].to_numpy(zero_copy_only=False) == key]
            else:
                universe = universes[_key(members[0], "batch", spec.split)] if universes else rules.ids
                ids = _draw(universe, members, spec.pool_size, spec, spec.pool_scope, key)
            yield Pool(ids, rules, spec.representation, wanted)


def pools_sha256(pools: Iterable[Pool]) -> str:
    """Return a hash of the pools' rule ids in order: equal hashes, equal pools."""
    digest = hashlib.sha256()
    for pool in pools:
        digest.update(len(pool.ids).to_bytes(8, "little") + pool.ids.astype("<i4").tobytes())
    return digest.hexdigest()


def _grouped(questions: Sequence[Question], scope: str, split: str) -> dict[int | str, list[Question]]:
    """Return the questions by who shares a pool, in order of first appearance."""
    groups: dict[int | str, list[Question]] = defaultdict(list)
    for question in questions:
        groups[_key(question, scope, split)].append(question)
    return groups


def _key(question: Question, scope: str, split: str) -> int | str:
    if scope == "question":
        return question.id
    if scope == "world":
        return question.world_id
    if scope == "batch":
        return question.index // BATCH_SIZE
    # Only mini names its folds; elsewhere ten questions in table order make one.
    return question.fold if split == "mini" else question.index // FOLD_SIZE


def _draw(
    universe: Ids, members: Sequence[Question], size: int, spec: RunSpec, scope: str, key: int | str
) -> Ids:
    gold = np.unique(np.asarray([rule for question in members for rule in question.gold], dtype=np.int32))
    # The seed, 63 bits, is a hash of the draw's name: no two draws share a stream by accident.
    name = "\x1f".join(map(str, (spec.pool_seed, spec.world_seed, spec.split, scope, size, key)))
    seed = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little") >> 1
    return shared_pool(universe, gold, size, seed)
