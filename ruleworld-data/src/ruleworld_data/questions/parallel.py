"""Parallel questions: one- and two-rule sub-questions, merged column-wise."""

from math import comb

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..io.schema import QUESTION_SCHEMA, STEP_TYPE
from ..world import Ints
from .skeletons import DOUBLE, shares_of
from .tables import Origin
from .wording import merge_templates

BLOCK_ROWS = 300_000
"""Parallel questions are made in blocks; each block merges sub-questions of its own."""
POOL_PER_QUESTION, SMALLEST_POOL = 4, 50
"""Sub-questions of each width drawn per question of a block, up to the scale's limit, and for a block of a few."""


def block_bounds(rows: int) -> list[tuple[int, int]]:
    """Cut a sub-task's rows into blocks of nearly equal size."""
    count = max(1, -(-rows // BLOCK_ROWS))
    return [(rows * i // count, rows * (i + 1) // count) for i in range(count)]


class ParallelBlock:
    """One block of a parallel sub-task: which sub-questions each question merges, drawn at once.

    It has ``count`` rows from ``first`` on, and at most ``limit`` sub-questions of each width.
    """

    def __init__(self, origin: Origin, block: int, first: int, count: int, limit: int) -> None:
        self.origin, self.first, self.width = origin, first, origin.size
        self.most_parts = origin.world.dials.parts
        self.key = origin.part(f"block {block}")
        self._draw_pool(min(limit, max(SMALLEST_POOL, POOL_PER_QUESTION * count)))
        parts, units = self._compose(int(count * 1.05) + 64)
        keep = self._distinct(parts, units)[:count]
        if len(keep) < count:
            raise ValueError(
                f"{count} different {origin.subtask} questions wanted, only {len(keep)} can be merged"
            )
        self.parts, self.units = parts[keep], units[keep]
        self.merge = self.key.stream("merge").integers(len(merge_templates(origin.version)), count)

    def _draw_pool(self, size: int) -> None:
        """Draw what the block combines: ``size`` sub-questions of one rule, ``size`` of two; each text is kept once."""
        one = shares_of("single_rule", self.origin.world.dials, self.origin.split)
        proofs = self.key.part("one rule").proofs(one, size, clauses=True)
        proofs += self.key.part("two rules").proofs(DOUBLE, size, clauses=True)
        steps, clauses = [proof.steps[0] for proof in proofs], [proof.question for proof in proofs]
        self.size = size
        self.rule_ids = pa.array([step.rule_ids for step in steps], pa.list_(pa.int32()))
        self.id_matrix = np.array([[*step.rule_ids, -1][:2] for step in steps], dtype=np.int32)
        self.clauses = pa.array(clauses + [f"and {clause}" for clause in clauses])
        texts = {
            "nl": [step.nl for step in steps],
            "fol": [step.fol for step in steps],
            "state": [step.state for step in steps],
            "facts": [proof.facts for proof in proofs],
            "queries": [proof.query for proof in proofs],
            "answers": [proof.answer for proof in proofs],
            "answer_types": [proof.answer_type for proof in proofs],
            "skeleton": [proof.skeleton for proof in proofs],
        }
        # Parquet writes a dictionary as it is only if its values are all different.
        self.texts = {name: pa.array(values).dictionary_encode() for name, values in texts.items()}

    def _compose(self, count: int) -> tuple[Ints, Ints]:
        """Draw the number of parts and the parts of each question; unused places hold -1."""
        width, size, most, stream = self.width, self.size, self.most_parts, self.key.stream("parts")
        # Parts are one or two rules with equal chance: a question of `width` rules then has `parts` parts in
        # proportion to the binomial coefficient.
        possible = np.arange(max(2, -(-width // 2)), min(most, width) + 1)
        chance = np.array([comb(p, width - p) / 2.0**p for p in possible])
        cuts = (np.cumsum(chance / chance.sum()) * 2**32).astype(np.int64)
        parts = possible[np.searchsorted(cuts[:-1], stream.integers(2**32 - 1, count), side="right")]
        place = np.arange(most)
        used = place < parts[:, None]
        # Which parts have two rules: the first of a random order of the used places.
        order = stream.words(count * most).reshape(count, most) >> np.uint64(1)
        order[~used] = np.uint64(2**63)
        ranks = np.argsort(np.argsort(order, axis=1, kind="stable"), axis=1, kind="stable")
        double = ranks < (width - parts)[:, None]
        units = stream.integers(size, count * most).reshape(count, most) + size * double
        units[~used] = -1
        if self.origin.split == "unseen":  # the first of each width, each as often as any other
            for width, cells in enumerate((used & ~double, used & double)):
                units[cells] = stream.permutation(cells.sum()) % size + size * width
        return parts, units

    def _distinct(self, parts: Ints, units: Ints) -> Ints:
        """Return rows that use no rule twice, and each set of sub-questions once."""
        ids = self.id_matrix[units].reshape(len(units), -1)
        ids[np.repeat(units < 0, 2, axis=1)] = -1
        ids.sort(axis=1)
        unique_rules = ~((ids[:, 1:] == ids[:, :-1]) & (ids[:, 1:] >= 0)).any(axis=1)
        members = np.sort(units, axis=1).T
        order = np.lexsort(members)
        repeat = np.zeros(len(units), dtype=bool)
        repeat[order[1:]] = (members[:, order[1:]] == members[:, order[:-1]]).all(axis=0)
        return np.flatnonzero(unique_rules & ~repeat)

    def table(self, start: int, stop: int) -> pa.Table:
        """Render the block's rows ``[start, stop)``; strings of the pool are dictionary-encoded."""
        rows = stop - start
        parts, units = self.parts[start:stop], self.units[start:stop]
        flat = units[units >= 0].astype(np.int32)
        ends = np.cumsum(parts)
        offsets = pa.array(np.concatenate([[0], ends]).astype(np.int32))
        indices = pa.array(flat)
        short = len(flat) < 2 * self.size

        def encoded(name: str) -> pa.Array:
            column = self.texts[name].take(indices)
            # A short slice does not carry the whole pool along.
            return column.dictionary_decode().dictionary_encode() if short else column

        def joined(texts: pa.Array, where: pa.Array, separator: str) -> pa.Array:
            flat_texts = texts.take(where)
            if pa.types.is_dictionary(flat_texts.type):
                flat_texts = flat_texts.dictionary_decode()
            return pc.binary_join(pa.ListArray.from_arrays(offsets, flat_texts), separator)

        last = flat.copy()
        last[ends - 1] += 2 * self.size  # "and ..."
        merges = merge_templates(self.origin.version)
        before, after = zip(*(merge.text.split("{parts}") for merge in merges), strict=True)
        merge = pa.array(self.merge[start:stop].astype(np.int32))
        rule_ids = self.rule_ids.take(indices)
        steps = pa.StructArray.from_arrays(
            [rule_ids, encoded("nl"), encoded("fol"), encoded("state")], names=[f.name for f in STEP_TYPE]
        )
        columns = {
            **self.origin.identity(self.first + start, self.first + stop),
            "question": pc.binary_join_element_wise(
                pa.array(before).take(merge),
                joined(self.clauses, pa.array(last), "; "),
                pa.array(after).take(merge),
                "",
            ),
            "answers": pa.ListArray.from_arrays(offsets, encoded("answers")),
            "answer_types": pa.ListArray.from_arrays(offsets, encoded("answer_types")),
            "steps": pa.ListArray.from_arrays(offsets, steps),
            "gold_rule_ids": pa.ListArray.from_arrays(
                pa.array(np.arange(0, rows * self.width + 1, self.width, dtype=np.int32)), rule_ids.flatten()
            ),
            "facts": pa.ListArray.from_arrays(offsets, encoded("facts")),
            "queries": pa.ListArray.from_arrays(offsets, encoded("queries")),
            "skeleton": joined(self.texts["skeleton"], indices, " & "),
            "template_id": pa.DictionaryArray.from_arrays(merge, [template.id for template in merges]),
            "n_rules": pa.array(np.full(rows, self.width, dtype=np.int8)),
            "n_hops": pa.array(np.ones(rows, dtype=np.int8)),
            "fold": pa.array(np.zeros(rows, dtype=np.int8)),
        }
        return pa.table({name: columns[name] for name in QUESTION_SCHEMA.names})
