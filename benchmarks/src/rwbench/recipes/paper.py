"""The paper's tables and figures. Those that differ by pool sizes or by form alone are one name.

``--sizes all`` asks the six pool sizes of the appendix, ``--form fol`` or ``--form nl`` one representation; the five
folds of the questions are the paper's seeds. Figure 6b (efficiency) is ``rwbench efficiency``.
"""

from dataclasses import replace

from ..backends.local import Local
from ..methods import Method
from ..methods.ircot import IRCoT
from ..methods.memory import Confidence, DynaRule
from ..methods.prompting import Prompting
from ..methods.rag import RAG
from ..methods.react import ReAct
from ..methods.retrieve import Retrieve
from ..spec import RunSpec
from . import ALL_SIZES, MAIN_SIZES, Cell, Options, recipe
from .arena import retrievers, rule_memory

PROMPTING_UP_TO = 2_000
"""Rules in a prompt at most ("Baselines": memory limits a 7B model to 2,000)."""


def dynarule(cell: Cell) -> list[Method]:
    """DynaRule's recall by step of the proof (also figure 9), and what each step attends to (figure 10)."""
    return cell.memory(DynaRule)


@recipe("paper/table2", MAIN_SIZES)
def table2(cell: Cell) -> list[Method]:
    """Question answering: every method on 100, 1,000 and 10,000 rules (also tables 8, 9 and 11: --sizes all)."""
    rows: list[Method] = [Prompting(model=cell.model)] if cell.size <= PROMPTING_UP_TO else []
    # a hundred rules all fit, so there is nothing to retrieve
    searches = retrievers(cell) if cell.size > 100 else ()
    return [*rows, *(RAG(model=cell.model, retriever=search) for search in searches), *rule_memory(cell)]


@recipe("paper/table4", MAIN_SIZES)
def table4(cell: Cell) -> list[Method]:
    """Retrieval: Recall@100, @10 and @1 of every method (also tables 10 and 12, figure 11: --sizes all)."""
    return [*map(Retrieve, retrievers(cell)), *rule_memory(cell)]


@recipe("paper/figure3", (100,))
def figure3(cell: Cell) -> list[Method]:
    """Confidence layer by entropy (also figure 8), and answers with the gold rules in one layer only, on 100 rules."""
    if not isinstance(cell.model, Local):
        return []
    layers = DynaRule.choosing_layers(cell.model, cell.form)
    in_one = [row for layer in layers for row in cell.memory(DynaRule, correct_layer=layer)]
    return cell.memory(Confidence) + in_one


figure4 = recipe("paper/figure4", ALL_SIZES)(dynarule)


@recipe("paper/figure5a")
def figure5a(options: Options) -> list[RunSpec]:
    """Generalization: DynaRule on its own rules and on held-out rules, all pool sizes."""
    return figure4(options) + figure4(replace(options, split="heldout"))


@recipe("paper/figure5b", MAIN_SIZES)
def figure5b(cell: Cell) -> list[Method]:
    """Iterative RAG: IRCoT and ReAct, four rounds of 100 rules, beside DynaRule."""
    rows: list[Method] = [kind(model=cell.model, retriever=retrievers(cell)[2]) for kind in (IRCoT, ReAct)]
    return rows + dynarule(cell)


@recipe("paper/figure5c", (100, 1_000))
def figure5c(cell: Cell) -> list[Method]:
    """Gold rules only, 100 and 1,000 rules: how much of the error is finding rules, how much using them."""
    rows: list[Method] = [Prompting(model=cell.model)]
    # the pool does not matter to the gold rules, so they are asked once
    return [*rows, Prompting(model=cell.model, rules="gold")] if cell.size == 100 else rows


@recipe("paper/figure6a", (100,))
def figure6a(cell: Cell) -> list[Method]:
    """Rule dependence: DynaRule on 100 rules, and with the gold rules taken out of every layer."""
    return dynarule(cell) + cell.memory(DynaRule, rules="without_gold")
