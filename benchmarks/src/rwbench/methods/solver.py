"""The ceiling: closed-world forward chaining over the pool's rules."""

from collections.abc import Iterator

from ..run.pools import Pool
from . import Batch, Method, Output, component


@component
class Solver(Method):
    """Read the question's facts and queries instead of its words, and chain the pool's rules in FOL.

    A ceiling, not a competitor: it skips understanding the question, and shows that the pool determines the
    answer. What it retrieves is its proof: the rules that fired, in firing order.
    """

    name = "solver"
    title = "Symbolic solver (ceiling)"

    def answer(self, batch: Batch, top_k: int) -> Iterator[Output]:
        """Yield the answers and the proof of every question."""
        from ruleworld_data.verify import RuleIndex, execute

        read: Pool | None = None
        for pool, question in batch:
            if pool is not read:
                read, index = pool, RuleIndex.from_table(pool.rules.take(pool.ids).select(["id", "fol"]))
            scopes = zip(question.row["facts"], question.row["queries"], strict=True)
            proofs = [execute(facts, query, index) for facts, query in scopes]
            fired = dict.fromkeys(int(rule) for proof in proofs for rule in proof.rule_ids)
            answers = [proof.answer or "" for proof in proofs]
            yield Output(question.id, retrieved=[[*fired][:top_k]], answers=answers)
