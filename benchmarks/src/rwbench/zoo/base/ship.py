"""A trained base as a model folder: weights in bfloat16, tokenizer, prompt, and a card that says what it can do.

Of a pretrained model that was taught, the folder holds the changes alone, which `rwbench models add` joins with it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import torch
from ruleworld_data.io import write_whole

from ...models import GATES_FILE, base_folder, fingerprint, replaced_folder
from .documents import Writer
from .gates import GateResult, gate_table, run_gates
from .recipe import BaseRecipe
from .tokenizer import STEP, TokenVocabulary, build_tokenizer
from .train import trained_base

TRAINING_FILE = "training.json"
LARGEST = 16 * 2**20
"""Bytes of a file that a repository should hold."""


def write_base(
    recipe: BaseRecipe,
    vocabulary: TokenVocabulary,
    training: Path,
    to: Path,
    questions: int = 100,
    lists: int = 16,
    report: Callable[[GateResult], None] = lambda cell: None,
) -> dict[str, int]:
    """Write the base of a training folder as a model folder; what was there before is replaced as a whole.

    Returns
    -------
    dict
        Bytes by file name.

    Raises
    ------
    FileNotFoundError
        If the training has no checkpoint.
    ValueError
        If it is another recipe's, ``to`` holds something else, or a file would be larger than 16 MiB.
    """
    if to.exists() and not (to / TRAINING_FILE).is_file():
        raise ValueError(f"{to} is no base that was written here and would be deleted; give another --to")
    trainer = trained_base(recipe, vocabulary, training)
    torch.nn.Module.to(trainer.model, torch.bfloat16)
    trainer.model.generation_config.do_sample = False
    with replaced_folder(to) as new:
        trainer.model.save_pretrained(new, max_shard_size="15MB")
        build_tokenizer(vocabulary, recipe.shape.positions).save_pretrained(new)
        (new / "prompt.toml").write_bytes(_packaged("prompt.toml").encode())
        (new / TRAINING_FILE).write_bytes((json.dumps(trainer.summary(), indent=2) + "\n").encode())
        write_card(new, questions, lists, report)
        sizes = {path.name: path.stat().st_size for path in sorted(new.iterdir())}
        large = [name for name, size in sizes.items() if size > LARGEST]
        if large:
            raise ValueError(f"{', '.join(large)} in {new}: more than {LARGEST:,} bytes; use a smaller shape")
    return sizes


def write_lora(recipe: BaseRecipe, training: Path, to: Path) -> dict[str, int]:
    """Write what a pretrained model was taught, as PEFT loads it; return bytes by file name.

    Raises
    ------
    FileNotFoundError, ValueError
        As `write_base`.
    """
    from .lora import LoraTrainer

    assert recipe.lora
    if to.exists() and not (to / TRAINING_FILE).is_file():
        raise ValueError(f"{to} is nothing that was written here and would be deleted; give another --to")
    trainer = trained_base(recipe, None, training, LoraTrainer)
    torch.nn.Module.to(trainer.model, torch.bfloat16)
    summary = trainer.summary() | {"base": fingerprint(base_folder(recipe.lora.model))}
    if recipe.lora.begin:
        summary["begun"] = fingerprint(Path(recipe.lora.begin))
    # PEFT would write the folder of the model on this machine.
    trainer.model.peft_config["default"].base_model_name_or_path = Path(recipe.lora.model).name
    with replaced_folder(to) as new:
        trainer.model.save_pretrained(new)
        write_whole(new / "README.md", _lora_card(recipe, summary, trainer.curriculum.success()))
        prompt = _packaged("prompt.toml").replace(STEP, recipe.lora.mark)
        (new / "prompt.toml").write_bytes(prompt.encode())
        (new / TRAINING_FILE).write_bytes((json.dumps(summary, indent=2) + "\n").encode())
        return {path.name: path.stat().st_size for path in sorted(new.iterdir())}


def _lora_card(
    recipe: BaseRecipe, summary: Mapping[str, Any], rates: Mapping[str, tuple[float, float]]
) -> str:
    """Return the card of what a pretrained model was taught; what it can do is measured on the model that it makes."""
    plan = recipe.lora
    assert plan
    return Template(_packaged("lora_card.md")).substitute(
        model=Path(plan.model).name,
        rank=plan.rank,
        first_layer=plan.first_layer,
        mark=plan.mark,
        tokens=f"{summary['tokens'] / 1e6:.1f}",
        begun=f", after what `{Path(plan.begin).name}` had taught" if plan.begin else "",
        hours=f"{summary['hours']:.2f}",
        success=", ".join(f"{name} {mean:.2f} (worst {least:.2f})" for name, (mean, least) in rates.items()),
        finished="the whole recipe" if summary["finished"] else "a part of the recipe",
    )


def write_card(
    folder: Path,
    questions: int = 100,
    lists: int = 16,
    report: Callable[[GateResult], None] = lambda cell: None,
) -> None:
    """Measure what the base of a folder can do; write the figures (``gates.json``) and the model card beside it.

    Raises
    ------
    FileNotFoundError
        If the folder does not say how it was trained (``training.json``).
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    if not (folder / TRAINING_FILE).is_file():
        raise FileNotFoundError(
            f"{folder} has no {TRAINING_FILE}, so it is no base that was written here; write one: "
            "rwbench base ship RECIPE --out TRAINING --to FOLDER"
        )
    summary = json.loads((folder / TRAINING_FILE).read_text(encoding="utf-8"))
    known = AutoTokenizer.from_pretrained(folder, trust_remote_code=False).get_vocab()
    writer = Writer(TokenVocabulary(tuple(sorted(known, key=known.__getitem__)), ()), 0.0)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, trust_remote_code=False)
    cells = []
    for cell in run_gates(model.eval(), writer, lists, questions):
        cells.append(cell)
        report(cell)
    recipe = summary["recipe"]
    card = Template(_packaged("card.md")).substitute(
        recipe["shape"],
        name=recipe["name"],
        seed=recipe["seed"],
        tokens=f"{summary['tokens'] / 1e6:.1f}",
        steps=f"{summary['steps']:,}",
        hours=f"{summary['hours']:.2f}",
        levels=", ".join(f"{name} {size}" for name, size in summary["levels"].items()),
        finished="the whole recipe" if summary["finished"] else "a part of the recipe",
        gates=gate_table(cells),
    )
    write_whole(folder / GATES_FILE, json.dumps([asdict(cell) for cell in cells], indent=1) + "\n")
    write_whole(folder / "README.md", card)


def _packaged(name: str) -> str:
    return (files("rwbench.zoo.base") / name).read_text(encoding="utf-8")
