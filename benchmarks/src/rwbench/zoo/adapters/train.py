"""Train one adapter on a base, stage by stage, evaluated on held-out questions.

All methods see the same questions in the same order, with the same pools and as many steps; only what the method itself
is differs (layers, number of retrievals, losses).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from dynarule.bank.embedding_cache import EmbeddingCache
from dynarule.bank.encoder_choice import open_encoder
from dynarule.bank.sources import premise_of
from dynarule.config import dynarule_config, kblam_config, srki_config
from dynarule.generation import question_prompts
from dynarule.memory.confidence import measure_confidence
from dynarule.memory.search import SEARCH_TOKEN, search_rows, set_search_rows
from dynarule.training import Encoder, LogLines, Recipe, RulePools, recipe_steps, train, write_whole
from ruleworld_data.questions import training_text
from ruleworld_data.spec import check_name

from dynarule import DynaRuleConfig, RuleAdapter, RuleBank, prepare_search

from ...backends.local import load_fresh
from ...cache import cache_root
from ...run.data import DataSource, select
from ..base.documents import Representation
from ..base.tokenizer import STEP
from ..models import base_folder
from .plans import training_plans
from .publish import publish
from .recipe import METHODS, AdapterRecipe

MAKE = {"dynarule": dynarule_config, "srki": srki_config, "kblam": kblam_config}
EVALUATIONS = 8
STARTED = "started.json"
FINISHED = "README.md"
"""What a stage's training writes last."""


def training_rows(
    recipe: AdapterRecipe, split: str, most: int | None, world: int | None = None
) -> list[dict[str, Any]]:
    """Return question rows of a split as `dynarule.training.train` takes them: rule ids as text."""
    source = DataSource(recipe.scale, recipe.seed if world is None else world)
    rows = []
    for subtask in recipe.subtasks:
        for question in select(source.questions(subtask, split), most):
            steps = [step | {"rule_ids": list(map(str, step["rule_ids"]))} for step in question.row["steps"]]
            rows.append(question.row | {"steps": steps})
    return rows


def rule_bank(
    recipe: AdapterRecipe, representation: str, model: Any, tokenizer: Any, world: int | None = None
) -> RuleBank:
    """Return all rules of a world, the recipe's by default: the whole rule is the key, its conclusion the value."""
    table = DataSource(recipe.scale, recipe.seed if world is None else world).rules("train")
    encoder = open_encoder(recipe.encoder, representation == "fol", model, tokenizer)
    encode = EmbeddingCache(encoder, cache_root() / "rules")
    return RuleBank.from_texts(
        table.texts(table.ids, representation),
        table.texts(table.ids, f"conclusion_{representation}"),
        encode,
        list(map(str, table.ids.tolist())),
    )


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
    plans = training_plans(recipe, method)
    model, tokenizer = load_fresh(base_folder(model_name))
    model.float()
    # No card names a folder of this machine, nor takes it for a name on a hub.
    model.name_or_path = model.config.name_or_path = f"./{Path(model_name).name}"
    _claim(out, recipe, method, representation, resume)
    language: Representation = "fol" if representation == "fol" else "nl"

    def read(world: int) -> tuple[RuleBank, list[dict[str, Any]], list[dict[str, Any]]]:
        return (
            rule_bank(recipe, representation, model, tokenizer, world),
            training_rows(recipe, "train", recipe.per_subtask, world),
            training_rows(recipe, "validation", recipe.held_out, world),
        )

    bank, rows, held_out = read(recipe.seed)
    torch.manual_seed(recipe.seed)
    changes: dict[str, Any] = {}
    if method != "kblam":
        changes = recipe.memory | {"top_k": recipe.top_k, "confidence_layer": recipe.confidence_layer}
    adapter = RuleAdapter(model, MAKE[method](bank.encoder_dim, **changes))
    curve, searching = None, False
    folders = [out / str(number) for number in range(1, len(plans) + 1)]
    here = before = recipe.seed
    for folder, (world, plan) in zip(folders, plans, strict=True):
        if method != "kblam" and adapter.config.confidence_layer is None and plan.retrieves:
            if before != here:  # resumed: by the rules of the stage before, as without a break
                (bank, rows, held_out), here = read(before), before
            curve = _confidence(recipe, model, tokenizer, bank, held_out)
            adapter.config.confidence_layer = curve["confidence_layer"]
        if plan.searches and not searching:
            inherit_step(model, tokenizer)
            searching = True
        before = world
        if resume and (folder / FINISHED).is_file():
            _take(folder, plan, adapter, bank.encoder)
            continue
        if world != here:
            (bank, rows, held_out), here = read(world), world
        between = SEARCH_TOKEN if plan.searches else STEP
        encoder = Encoder(
            tokenizer,
            {name: row for row, name in enumerate(bank.ids)},
            target=partial(
                training_text, representation=language, search_token=between, opening=recipe.opening
            ),
        )
        steps = recipe_steps(plan, len(rows))
        train(
            model,
            tokenizer,
            adapter,
            rows,
            bank,
            plan,
            folder,
            held_out=held_out,
            premises=[premise_of(text) for text in bank.texts],
            encoder=encoder,
            resume=resume and any(folder.glob("checkpoint-*")),
            curve=curve,
            callbacks=[LogLines()],
            use_cpu=model.device.type == "cpu",
            eval_strategy="steps",
            eval_steps=max(1, -(-steps // EVALUATIONS)),
            save_steps=max(1, -(-steps // EVALUATIONS)),
        )
    return publish(out, folders[-1], recipe, method)


def _claim(out: Path, recipe: AdapterRecipe, method: str, representation: str, resume: bool) -> None:
    """Write down what a folder is for; on resuming, refuse another recipe than that of the start.

    Stages are compared one by one where they are (`_take`, `dynarule.training.train`), and their worlds here:
    one that has not begun may change.
    """
    path, begun = out / STARTED, any(out.glob("*/checkpoint-*"))
    if begun and not resume:
        raise FileExistsError(f"{out} holds a training already; go on with --resume, or give another --out")
    named = {
        "method": method,
        "representation": representation,
        "worlds": [world for world, _ in recipe.plans()],
    }
    wanted = json.loads(json.dumps(asdict(recipe))) | named
    if begun and path.is_file():
        theirs = json.loads(path.read_text(encoding="utf-8"))
        for name in sorted(wanted.keys() - {"name", "stages", "worlds", "serve_top_k", "held_out"}):
            if theirs.get(name) != wanted[name]:
                raise ValueError(
                    f"{out} was started with {name} {theirs.get(name)!r}, now it is {wanted[name]!r}; give another "
                    f"--out, or delete {out} to begin anew"
                )
        begun_in = theirs.get("worlds") or [stage.get("world", recipe.seed) for stage in theirs["stages"]]
        for number, (was, now) in enumerate(zip(begun_in, wanted["worlds"], strict=False), 1):
            folder = out / str(number)
            if was != now and (any(folder.glob("checkpoint-*")) or (folder / FINISHED).is_file()):
                raise ValueError(
                    f"{folder} was trained in world {was}, the recipe says {now}; give another --out, or delete {out} "
                    "to begin anew"
                )
    out.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(wanted, indent=1) + "\n")


def _take(folder: Path, plan: Recipe, adapter: RuleAdapter, encoder: str) -> None:
    """Read what a finished stage left: the adapter, and the row of ``<search>`` into the model."""
    theirs = json.loads((folder / "recipe.json").read_text(encoding="utf-8"))
    changed = [
        name
        for name, value in json.loads(json.dumps(plan.to_dict())).items()
        if theirs.get(name, value) != value
    ]
    if changed:
        raise ValueError(
            f"{folder} was trained with {changed[0]} {theirs[changed[0]]!r}, the recipe says "
            f"{getattr(plan, changed[0])!r}; give another --out, or delete {folder.parent} to begin anew"
        )
    earlier = DynaRuleConfig.from_pretrained(folder)
    if earlier.encoder != encoder:
        raise ValueError(
            f"{folder} was trained on rules encoded by {earlier.encoder!r}, now they are by {encoder!r}; put the base "
            f"of that training back, or delete {folder.parent} to begin anew"
        )
    adapter.load(folder)


def inherit_step(model: Any, tokenizer: Any) -> None:
    """Give ``<search>`` the row of the base's boundary before a step, whose state plans that step."""
    search = prepare_search(model, tokenizer)
    row = tokenizer.convert_tokens_to_ids(STEP)
    if row is not None and row != tokenizer.unk_token_id:  # a base of another maker has no such token
        set_search_rows(model, search.id, search_rows(model, row))


def _confidence(
    recipe: AdapterRecipe,
    model: Any,
    tokenizer: Any,
    bank: RuleBank,
    held_out: Sequence[dict[str, Any]],
) -> dict[str, Any]:
    """Measure the confidence layer on validation questions, each with 100 rules that hold its gold."""
    rows = {name: row for row, name in enumerate(bank.ids)}
    chosen = held_out[:: max(1, len(held_out) // recipe.entropy_questions)]
    pools = RulePools(len(bank), seed=recipe.seed)
    banks = []
    for number, row in enumerate(chosen):
        gold = [rows[rule] for step in row["steps"] for rule in step["rule_ids"]]
        banks.append(_part(bank, pools.draw(gold, min(100, len(bank)), number).tolist()))
    prompts = question_prompts(tokenizer, [row["question"] for row in chosen])
    measured = measure_confidence(model, tokenizer, banks, prompts, batch_size=1)
    print(f"rwbench: entropy by layer {measured.to_dict()}", file=sys.stderr, flush=True)
    return measured.to_dict()


def _part(bank: RuleBank, rows: Sequence[int]) -> RuleBank:
    ids, texts = ([column[row] for row in rows] for column in (bank.ids, bank.texts))
    return RuleBank(bank.keys_MP[rows], bank.values_MP[rows], ids, texts, bank.encoder)
