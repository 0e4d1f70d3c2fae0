"""The paper's analyses: confidence layers, held-out rules, iterative RAG, gold rules, rule removal, attention."""

from __future__ import annotations

from dataclasses import replace

from ..backends.local import Local
from ..methods import Method
from ..methods.confidence import Confidence
from ..methods.dynarule import DynaRule
from ..methods.ircot import IRCoT
from ..methods.kblam import KBLaM
from ..methods.prompting import Prompting
from ..methods.react import ReAct
from ..spec import RunSpec
from ..zoo.models import adapter_folder
from . import Options, recipe
from .settings import ALL_SIZES, IN_SMALL_PROMPT, MAIN_SIZES, hybrid, memory_methods, runs

STEPWISE = ("single_rule", "multi_rule_2", "multi_hop_2", "multi_hop_3", "multi_hop_4")


@recipe("paper/figure3")
def figure3(options: Options) -> list[RunSpec]:
    """Confidence layer by entropy, and accuracy with the gold rules in one layer only, on 100 rules."""
    return figure8(options) + runs(options, (100,), lambda form, size: _by_layer(options, form))


@recipe("paper/figure5a")
def figure5a(options: Options) -> list[RunSpec]:
    """Generalization: DynaRule on its own rules and on held-out rules, all pool sizes."""
    return [
        spec
        for each in _own_and_held_out(options)
        for spec in runs(each, ALL_SIZES, lambda form, size: _dynarule(options, form))
    ]


@recipe("memory")
def memory(options: Options) -> list[RunSpec]:
    """KBLaM, SR-KI and DynaRule on their own rules and on held-out ones; 100, 1,000 and 10,000 rules."""
    return [
        spec
        for each in _own_and_held_out(options)
        for spec in runs(each, MAIN_SIZES, lambda form, size: memory_methods(options, form))
    ]


def _own_and_held_out(options: Options) -> list[Options]:
    return [replace(options, split=split) for split in (options.split, "heldout")]


@recipe("paper/figure5b")
def figure5b(options: Options) -> list[RunSpec]:
    """Iterative RAG: IRCoT and ReAct, four rounds of 100 rules, and with 16 in a prompt, beside DynaRule."""

    def rows(form: str, size: int) -> list[Method]:
        asked: list[Method] = []
        for model in options.asked:
            asked += [
                kind(model=model, retriever=hybrid(options), in_prompt=most)
                for most in (None, IN_SMALL_PROMPT)
                for kind in (IRCoT, ReAct)
            ]
        return asked + _dynarule(options, form)

    return runs(options, MAIN_SIZES, rows)


@recipe("ablation/aggregation")
def aggregation(options: Options) -> list[RunSpec]:
    """IRCoT by how rounds become one list, and with every sentence as a query; 10,000 rules."""

    def rows(form: str, size: int) -> list[Method]:
        search = hybrid(options)
        return [
            IRCoT(model=model, retriever=search, aggregation=rule, skip_conclusions=skip)
            for model in options.asked
            for rule, skip in (
                ("rrf_rounds", True),
                ("first_come", True),
                ("max_score", True),
                ("rrf_rounds", False),
            )
        ]

    return runs(options, (10_000,), rows)


@recipe("ablation/reading")
def reading(options: Options) -> list[RunSpec]:
    """KBLaM, SR-KI and DynaRule with the gold rules alone in memory: what is read when nothing has to be found."""
    return runs(options, (100,), lambda form, size: memory_methods(options, form, rules="gold"))


@recipe("ablation/length_shift")
def length_shift(options: Options) -> list[RunSpec]:
    """KBLaM as it was trained, and with the length shift of its paper (C = 100); 100 to 10,000 rules."""
    return runs(
        options,
        MAIN_SIZES,
        lambda form, size: [
            KBLaM.of(model, form, length_shift=shift)
            for model in options.local_models
            for shift in (None, 100)
        ],
    )


@recipe("paper/figure5c")
def figure5c(options: Options) -> list[RunSpec]:
    """Gold rules only, 100 and 1,000 rules: how much of the error is finding rules, how much using them."""

    def rows(form: str, size: int) -> list[Method]:
        pool: list[Method] = [Prompting(model=model) for model in options.asked]
        # The pool does not matter to this row, so it is asked once.
        return pool + [Prompting(model=model, rules="gold") for model in options.asked if size == 100]

    return runs(options, (100, 1_000), rows)


@recipe("paper/figure6a")
def figure6a(options: Options) -> list[RunSpec]:
    """Rule dependence: DynaRule on 100 rules, and with the gold rules taken out of every layer."""

    def rows(form: str, size: int) -> list[Method]:
        return [
            DynaRule.of(model, form, rules=rules)
            for model in options.local_models
            for rules in ("pool", "without_gold")
        ]

    return runs(options, (100,), rows)


@recipe("paper/figure6b")
def figure6b(options: Options) -> list[RunSpec]:
    """Efficiency has a command of its own: rwbench efficiency --help."""
    return []


@recipe("paper/figure8")
def figure8(options: Options) -> list[RunSpec]:
    """Confidence layer of every --model by the entropy of rule attention, on 100 rules, FOL and NL."""
    return runs(
        options, (100,), lambda form, size: [Confidence.of(model, form) for model in options.local_models]
    )


@recipe("paper/figure10")
def figure10(options: Options) -> list[RunSpec]:
    """Attention maps: how much each step of DynaRule weighs the gold rules of each step, on 100 rules."""
    return runs(options, (100,), lambda form, size: _dynarule(options, form), subtasks=STEPWISE)


def _dynarule(options: Options, form: str) -> list[Method]:
    return [DynaRule.of(model, form) for model in options.local_models]


def _by_layer(options: Options, form: str) -> list[Method]:
    return [
        DynaRule.of(model, form, correct_layer=layer)
        for model in options.local_models
        for layer in _layers(model, form)
    ]


def _layers(model: Local, form: str) -> list[int]:
    """Return the layers that choose rules; without an adapter layer 0, whose run then says what is missing.

    A layer that reads what the confidence layer keeps has nothing of its own to compare.
    """
    from dynarule.adapter_info import read_adapter_info

    folder = adapter_folder(model.model, "dynarule", form)
    if folder is None:
        return [0]
    info = read_adapter_info(folder)
    return [layer for layer in info.memory.layers(info.base.num_layers) if not info.memory.shares(layer)]
