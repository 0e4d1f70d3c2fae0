"""The paper's tables and figures. Those that differ by pool sizes or by form alone are one name.

``--sizes all`` asks the six pool sizes of the appendix, ``--form fol`` or ``--form nl`` one representation; the five
folds of the questions are the paper's seeds. Figure 6b (efficiency) is ``rwbench efficiency``.
"""

from __future__ import annotations

from dataclasses import replace

from ..methods import Method
from ..methods.ircot import IRCoT
from ..methods.memory import Confidence, DynaRule
from ..methods.prompting import Prompting
from ..methods.rag import RAG
from ..methods.react import ReAct
from ..methods.retrieve import Retrieve
from ..spec import RunSpec
from . import ALL_SIZES, MAIN_SIZES, Options, recipe, runs
from .arena import IN_PROMPT, retrievers, rule_memory

PROMPTING_UP_TO = 2_000
"""Rules in a prompt at most ("Baselines": memory limits a 7B model to 2,000)."""
STEPWISE = ("single_rule", "multi_rule_2", "multi_hop_2", "multi_hop_3", "multi_hop_4")


def dynarule(options: Options, form: str, size: int) -> list[Method]:
    """DynaRule's Recall@100, @10 and @1 by step, in parallel and multi-hop questions (also figure 9)."""
    return [DynaRule.of(model, form) for model in options.local_models]


@recipe("paper/table2", MAIN_SIZES)
def table2(options: Options, form: str, size: int) -> list[Method]:
    """Question answering: every method on 100, 1,000 and 10,000 rules (also tables 8, 9 and 11: --sizes all)."""
    rows: list[Method] = []
    for model in options.all_models:
        rows += [Prompting(model=model)] if size <= PROMPTING_UP_TO else []
        # a hundred rules all fit, so there is nothing to retrieve
        rows += [RAG(model=model, retriever=search) for search in retrievers(options)] if size > 100 else []
    return rows + rule_memory(options, form, size)


@recipe("paper/table3", (1_000,))
def table3(options: Options, form: str, size: int) -> list[Method]:
    """Strong models (each with --model) by prompting, and DynaRule (also table 13: --sizes 100,500,1000)."""
    return [*(Prompting(model=model) for model in options.all_models), *dynarule(options, form, size)]


@recipe("paper/table4", MAIN_SIZES)
def table4(options: Options, form: str, size: int) -> list[Method]:
    """Retrieval: Recall@100, @10 and @1 of every method (also tables 10 and 12, figure 11: --sizes all)."""
    return [*map(Retrieve, retrievers(options)), *rule_memory(options, form, size)]


@recipe("paper/figure3", (100,))
def figure3(options: Options, form: str, size: int) -> list[Method]:
    """Confidence layer by entropy (also figure 8), and answers with the gold rules in one layer only, on 100 rules."""
    rows: list[Method] = []
    for model in options.local_models:
        layers = DynaRule.choosing_layers(model, form)
        rows += [Confidence.of(model, form)]
        rows += [DynaRule.of(model, form, correct_layer=layer) for layer in layers]
    return rows


figure4 = recipe("paper/figure4", ALL_SIZES)(dynarule)


@recipe("paper/figure5a")
def figure5a(options: Options) -> list[RunSpec]:
    """Generalization: DynaRule on its own rules and on held-out rules, all pool sizes."""
    return figure4(options) + figure4(replace(options, split="heldout"))


@recipe("paper/figure5b", MAIN_SIZES)
def figure5b(options: Options, form: str, size: int) -> list[Method]:
    """Iterative RAG: IRCoT and ReAct, four rounds of 100 rules, and with 16 in a prompt, beside DynaRule."""
    rows: list[Method] = [
        kind(model=model, retriever=retrievers(options)[2], in_prompt=most)
        for model in options.all_models
        for most in (None, IN_PROMPT)
        for kind in (IRCoT, ReAct)
    ]
    return rows + dynarule(options, form, size)


@recipe("paper/figure5c", (100, 1_000))
def figure5c(options: Options, form: str, size: int) -> list[Method]:
    """Gold rules only, 100 and 1,000 rules: how much of the error is finding rules, how much using them."""
    # the pool does not matter to the second row, so it is asked once
    kinds = ("pool", "gold") if size == 100 else ("pool",)
    return [Prompting(model=model, rules=rules) for rules in kinds for model in options.all_models]


@recipe("paper/figure6a", (100,))
def figure6a(options: Options, form: str, size: int) -> list[Method]:
    """Rule dependence: DynaRule on 100 rules, and with the gold rules taken out of every layer."""
    return [
        DynaRule.of(model, form, rules=rules)
        for model in options.local_models
        for rules in ("pool", "without_gold")
    ]


@recipe("paper/figure10")
def figure10(options: Options) -> list[RunSpec]:
    """Attention maps: how much each step of DynaRule weighs the gold rules of each step, on 100 rules."""
    return [replace(spec, subtasks=STEPWISE) for spec in runs(options, (100,), dynarule)]
