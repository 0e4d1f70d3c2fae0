"""Train one adapter on a base, stage by stage, evaluated on held-out questions.

Questions and their order are the same for all methods; how many of them a method sees, with which pools and in how many
steps, is its recipe's.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from dynarule.bank import EmbeddingCache, premise_of
from dynarule.plus import RetrievalRecipe, train_retrieval
from dynarule.training import (
    Encoder,
    LogLines,
    RulePools,
    recipe_steps,
    train,
)
from ruleworld_data.questions import training_text
from ruleworld_data.spec import check_name

from dynarule import (
    SEARCH_TOKEN,
    RuleAdapter,
    RuleBank,
    dynarule_config,
    kblam_config,
    measure_confidence,
    open_encoder,
    prepare_search,
    question_prompts,
    srki_config,
)

from ...backends.local import load_fresh
from ...cache import cache_root
from ...models import base_folder, step_mark
from ...run.data import DataSource, select
from ...run.folder import exclusive
from ..base.documents import Representation
from ..base.plain import plain_questions
from .folder import FINISHED, claim_folder, publish, read_finished
from .recipe import METHODS, PLUS, AdapterRecipe

CONFIGS = {"dynarule": dynarule_config, "srki": srki_config, "kblam": kblam_config, PLUS: dynarule_config}
EVALUATIONS = 8
"""Measurements of held-out questions in a stage, each with a checkpoint."""
ENTROPY_RULES = 100
"""Rules that a question has when the confidence layer is measured."""


class TrainingData(NamedTuple):
    """Rules, and questions to train on and to measure."""

    bank: RuleBank
    rows: list[dict[str, Any]]
    held_out: list[dict[str, Any]]


def train_adapter(
    recipe: AdapterRecipe, model_name: str, method: str, representation: str, out: Path, resume: bool = False
) -> Path:
    """Train an adapter; return its folder, ``out/adapter``.

    ``out/1``, ``out/2`` ... hold the stages' checkpoints; a killed training goes on with ``resume``: stages that were
    finished are read, the one that was not goes on from its newest checkpoint.

    Raises
    ------
    ValueError
        For an unknown method or representation, or a folder of another recipe.
    """
    check_name("method", method, METHODS)
    check_name("representation", representation, ("fol", "nl"))
    language: Representation = "fol" if representation == "fol" else "nl"
    recipe = recipe.in_form(representation)
    trainings = recipe.trainings(method)
    memory = recipe.memory
    if method != "kblam":
        memory = memory | {"top_k": recipe.top_k, "confidence_layer": recipe.confidence_layer}
    CONFIGS[method](1, **memory)  # refuses an impossible setting before rules are encoded
    model, tokenizer = load_fresh(base_folder(model_name))
    model.float()
    # No card names a folder of this machine, nor takes it for a name on a hub.
    model.name_or_path = model.config.name_or_path = f"./{Path(model_name).name}"
    mark = step_mark(model_name, tokenizer)
    if method == PLUS and mark not in tokenizer.get_vocab():
        raise ValueError(
            f"{PLUS} searches where a model begins a step, and {model_name} was taught no mark for it; teach it one "
            "(rwbench base train benchmarks/base/smollm2-first.toml), or train another method"
        )
    out.mkdir(parents=True, exist_ok=True)

    with exclusive(out):
        claim_folder(out, recipe, method, representation, resume)
        count = recipe.plain if representation == "nl" else 0
        plain, held = plain_questions("finding", False, count), plain_questions("finding", True, count // 20)
        data = TrainingData(
            rule_bank(recipe, language, model, tokenizer, plain[0] | held[0]),
            training_rows(recipe, "train", recipe.per_subtask) + plain[1],
            training_rows(recipe, "validation", recipe.held_out) + held[1],
        )
        bank = data.bank
        torch.manual_seed(recipe.training_seed)
        adapter = RuleAdapter(model, CONFIGS[method](bank.encoder_dim, **memory))
        curve, searching = None, False
        for number, plan in enumerate(trainings, 1):
            folder = out / str(number)
            if isinstance(plan, RetrievalRecipe):
                find_alone(model, tokenizer, adapter, data, plan, folder, language, mark, resume)
                continue
            if plan.retrieves and adapter.config.confidence_layer is None:
                curve = measure_confidence_layer(recipe, model, tokenizer, data)
                adapter.config.confidence_layer = curve["confidence_layer"]
            if plan.searches and not searching:
                inherit_step(model, tokenizer, mark)
                searching = True
            if resume and (folder / FINISHED).is_file():
                read_finished(folder, plan, adapter, bank.encoder)
                continue
            token = SEARCH_TOKEN if plan.searches else mark
            target = partial(
                training_text, representation=language, search_token=token, opening=recipe.opening
            )
            every = max(1, -(-recipe_steps(plan, len(data.rows)) // EVALUATIONS))
            train(
                model,
                tokenizer,
                adapter,
                data.rows,
                bank,
                plan,
                folder,
                held_out=data.held_out,
                premises=[premise_of(text) for text in bank.texts],
                encoder=Encoder(tokenizer, {name: row for row, name in enumerate(bank.ids)}, target=target),
                resume=resume,
                curve=curve,
                callbacks=[LogLines()],
                use_cpu=model.device.type == "cpu",
                eval_strategy="steps",
                eval_steps=every,
                save_steps=every,
            )
        return publish(out / str(len(trainings)), out / "adapter", recipe, method)


def find_alone(
    model: Any,
    tokenizer: Any,
    adapter: RuleAdapter,
    data: TrainingData,
    plan: RetrievalRecipe,
    folder: Path,
    representation: Representation,
    mark: str,
    resume: bool,
) -> None:
    """Train how DynaRule+ finds rules; it searches where the base's own mark opens a step."""
    adapter.config.search_token = mark
    target = partial(training_text, representation=representation, search_token=mark, opening=True)
    bank = data.bank
    train_retrieval(
        model,
        tokenizer,
        adapter,
        data.rows,
        bank,
        plan,
        folder,
        held_out=data.held_out,
        premises=[premise_of(text) for text in bank.texts],
        encoder=Encoder(tokenizer, {name: row for row, name in enumerate(bank.ids)}, target=target),
        resume=resume,
        report=lambda entry: print(f"rwbench: {dict(entry)}", file=sys.stderr, flush=True),
    )


def training_rows(recipe: AdapterRecipe, split: str, most: int | None) -> list[dict[str, Any]]:
    """Return question rows of a split as `dynarule.training.train` takes them: rule ids as text."""
    source = DataSource(recipe.scale, recipe.seed, version=recipe.data)
    rows = []
    for subtask in recipe.subtasks:
        for question in select(source.questions(subtask, split), most):
            steps = [step | {"rule_ids": list(map(str, step["rule_ids"]))} for step in question.row["steps"]]
            rows.append(question.row | {"steps": steps})
    return rows


def rule_bank(
    recipe: AdapterRecipe,
    representation: Representation,
    model: Any,
    tokenizer: Any,
    others: Mapping[str, tuple[str, str]],
) -> RuleBank:
    """Return all rules of the world, and others by id: the whole rule is the key, its conclusion the value."""
    table = DataSource(recipe.scale, recipe.seed, version=recipe.data).rules("train")
    encoder = open_encoder(recipe.encoder, representation == "fol", model, tokenizer)
    return RuleBank.from_texts(
        [*table.texts(table.ids, representation), *(text for text, _ in others.values())],
        [*table.texts(table.ids, f"conclusion_{representation}"), *(then for _, then in others.values())],
        EmbeddingCache(encoder, cache_root() / "rules"),
        [*map(str, table.ids.tolist()), *others],
    )


@torch.no_grad()
def inherit_step(model: Any, tokenizer: Any, mark: str) -> None:
    """Give ``<search>`` the row of the base's mark before a step."""
    search = prepare_search(model, tokenizer)
    row = tokenizer.convert_tokens_to_ids(mark)
    if row is not None and row != tokenizer.unk_token_id:  # a base of another maker has no such token
        for matrix in (model.get_input_embeddings().weight, model.get_output_embeddings().weight):
            matrix[search] = matrix[row]


def measure_confidence_layer(
    recipe: AdapterRecipe, model: Any, tokenizer: Any, data: TrainingData
) -> dict[str, Any]:
    """Measure the confidence layer on validation questions, each with 100 rules that hold its gold."""
    bank = data.bank
    chosen = data.held_out[:: max(1, len(data.held_out) // recipe.entropy_questions)]
    pools = RulePools(len(bank), seed=recipe.seed)
    banks = []
    for number, question in enumerate(chosen):
        gold = [bank.row(rule) for step in question["steps"] for rule in step["rule_ids"]]
        rows = pools.draw(gold, min(ENTROPY_RULES, len(bank)), number).tolist()
        ids, texts = ([column[row] for row in rows] for column in (bank.ids, bank.texts))
        own = RuleBank(bank.keys_MP[rows], bank.values_MP[rows], ids, texts, bank.encoder)
        banks.append(own.to(model.device))
    prompts = question_prompts(tokenizer, [question["question"] for question in chosen])
    measured = measure_confidence(model, tokenizer, banks, prompts, batch_size=1).to_dict()
    print(f"rwbench: entropy by layer {measured}", file=sys.stderr, flush=True)
    return measured
