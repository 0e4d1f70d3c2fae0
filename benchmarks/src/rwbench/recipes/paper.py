"""The paper's tables and figures, one name each."""

from __future__ import annotations

from ..methods import Method
from ..methods.confidence import Confidence
from ..methods.dynarule import DynaRule
from ..methods.ircot import IRCoT
from ..methods.prompting import Prompting
from ..methods.react import ReAct
from ..spec import RunSpec
from . import Options, recipe
from .grid import ALL_SIZES, grid, runs
from .rows import IN_SMALL_PROMPT, dynarule, question_answering, retrieval, retrievers, strong_models

STEPWISE = ("single_rule", "multi_rule_2", "multi_hop_2", "multi_hop_3", "multi_hop_4")

grid("paper/table2", help="Main QA: every method on 100, 1,000 and 10,000 rules, FOL and NL.")(
    question_answering
)
grid(
    "paper/table3",
    (1_000,),
    help="Strong models by prompting with 1,000 rules, beside DynaRule; give each with --model.",
)(strong_models)
grid(
    "paper/table4", help="Retrieval: Recall@100, @10 and @1 of every method on 100, 1,000 and 10,000 rules."
)(retrieval)
table8 = grid(
    "paper/table8",
    ALL_SIZES,
    ("fol",),
    help="Detailed QA in FOL: every method on six pool sizes, 100 to 10,000.",
)(question_answering)
table9 = grid(
    "paper/table9",
    ALL_SIZES,
    ("nl",),
    help="Detailed QA in NL: every method on six pool sizes, 100 to 10,000.",
)(question_answering)
grid("paper/table10", ALL_SIZES, help="Retrieval on six pool sizes, 100 to 10,000.")(retrieval)
grid(
    "paper/table12",
    ALL_SIZES,
    help="Seed spread of retrieval: the runs of table 10, whose five folds are the paper's seeds.",
)(retrieval)
grid(
    "paper/table13",
    (100, 500, 1_000),
    help="Strong models by prompting with 100, 500 and 1,000 rules, beside DynaRule; give each with --model.",
)(strong_models)
grid(
    "paper/figure4",
    ALL_SIZES,
    ("fol",),
    help="DynaRule's recall by step, and in parallel and multi-hop questions, in FOL.",
)(dynarule)
grid(
    "paper/figure5a",
    ALL_SIZES,
    held_out=True,
    help="Generalization: DynaRule on its own rules and on held-out rules, all pool sizes.",
)(dynarule)
grid("paper/figure9", ALL_SIZES, help="DynaRule's Recall@100, @10 and @1 by step and pool size, FOL and NL.")(
    dynarule
)
grid(
    "paper/figure10",
    (100,),
    subtasks=STEPWISE,
    help="Attention maps: how much each step of DynaRule weighs the gold rules of each step, on 100 rules.",
)(dynarule)
grid("paper/figure11", ALL_SIZES, help="Retrieval by question type: the runs of table 10.")(retrieval)


@recipe("paper/table11")
def table11(options: Options) -> list[RunSpec]:
    """Seed spread of QA: the runs of tables 8 and 9, whose five folds are the paper's seeds."""
    return [*table8(options), *table9(options)]


@grid("paper/figure5b")
def figure5b(options: Options, form: str, size: int) -> list[Method]:
    """Iterative RAG: IRCoT and ReAct, four rounds of 100 rules, and with 16 in a prompt, beside DynaRule."""
    rows: list[Method] = [
        kind(model=model, retriever=retrievers(options)[2], in_prompt=most)
        for model in options.asked
        for most in (None, IN_SMALL_PROMPT)
        for kind in (IRCoT, ReAct)
    ]
    return rows + dynarule(options, form, size)


@grid("paper/figure5c", (100, 1_000))
def figure5c(options: Options, form: str, size: int) -> list[Method]:
    """Gold rules only, 100 and 1,000 rules: how much of the error is finding rules, how much using them."""
    # The pool does not matter to the second row, so it is asked once.
    kinds = ("pool", "gold") if size == 100 else ("pool",)
    return [Prompting(model=model, rules=rules) for rules in kinds for model in options.asked]


@grid("paper/figure6a", (100,))
def figure6a(options: Options, form: str, size: int) -> list[Method]:
    """Rule dependence: DynaRule on 100 rules, and with the gold rules taken out of every layer."""
    return [
        DynaRule.of(model, form, rules=rules)
        for model in options.local_models
        for rules in ("pool", "without_gold")
    ]


@recipe("paper/figure6b")
def figure6b(options: Options) -> list[RunSpec]:
    """Efficiency has a command of its own: rwbench efficiency --help."""
    return []


@grid("paper/figure8", (100,))
def figure8(options: Options, form: str, size: int) -> list[Method]:
    """Confidence layer of every --model by the entropy of rule attention, on 100 rules, FOL and NL."""
    return [Confidence.of(model, form) for model in options.local_models]


@recipe("paper/figure3")
def figure3(options: Options) -> list[RunSpec]:
    """Confidence layer by entropy, and accuracy with the gold rules in one layer only, on 100 rules."""

    def by_layer(options: Options, form: str, size: int) -> list[Method]:
        return [
            DynaRule.of(model, form, correct_layer=layer)
            for model in options.local_models
            for layer in DynaRule.choosing_layers(model, form)
        ]

    return figure8(options) + runs(options, (100,), by_layer)
