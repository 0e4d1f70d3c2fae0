"""Train a base from random weights.

    python benchmarks/lab/train.py benchmarks/base/tiny.toml --out runs/base --device cuda

Checkpoints are written between blocks of data, and with one thread on a CPU a training that was killed and goes on ends
with the same weights as one that was not. ``OUT/model`` is what comes of it: a base as transformers loads it.
"""

from __future__ import annotations

import json
import tomllib
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import torch
import torch.nn.functional as F
import typer
from base import new_base
from documents import STRICT, Batch, Mixture, Writer, batches, draw_block
from dynarule.training import Float32Muon
from loop import Told, Training
from pydantic import TypeAdapter
from pydantic.dataclasses import dataclass
from rwbench.backends.kept import release_memory
from rwbench.models import PROMPT_FILE, STEP, base_folder, replaced_folder
from rwbench.run.environment import environment
from torch import nn
from transformers import AutoTokenizer


@dataclass(frozen=True, config=STRICT)
class Phase:
    """One part of the curriculum."""

    name: str
    blocks: int
    mixture: Mixture
    rate: tuple[float, float] = (1.0, 1.0)  # factor of the learning rates at its start and end


@dataclass(frozen=True, config=STRICT)
class Recipe:
    """Everything that decides the weights."""

    phases: tuple[Phase, ...]
    shape: dict[str, int]  # settings of LlamaConfig
    seed: int = 0  # names weights and data
    batch_tokens: int = 4096  # of a step, padding included
    block_tokens: int = 65536  # of a block of data, without padding
    longest: int = 1536  # longer documents are left out
    muon_rate: float = 3e-3  # of matrices
    adam_rate: float = 2e-3  # of the rest
    warmup: int = 100  # steps of rising rate
    weight_decay: float = 0.01  # of matrices
    clip: float = 1.0  # largest norm of the gradient
    context_weight: float = 0.15  # loss weight of tokens that no lookup decides

    @property
    def blocks(self) -> list[tuple[Phase, float]]:
        """Return for every block its phase, and which part of that lies before it."""
        return [(phase, i / phase.blocks) for phase in self.phases for i in range(phase.blocks)]


def read_recipe(path: Path) -> Recipe:
    """Read a recipe, such as benchmarks/base/tiny.toml."""
    return TypeAdapter(Recipe).validate_python(tomllib.loads(path.read_text(encoding="utf-8")))


class BaseTraining(Training):
    """A base in training; a step is a block of documents."""

    def __init__(self, recipe: Recipe, out: Path, device: str = "cpu") -> None:
        super().__init__(recipe, out, block=0)
        self.device = torch.device(device)
        tokenizer = AutoTokenizer.from_pretrained(base_folder("tiny"), trust_remote_code=False)
        self.model: Any = new_base(recipe.shape, tokenizer, recipe.seed)
        self.writer = Writer(tokenizer, STEP, recipe.context_weight)
        nn.Module.to(self.model, self.device)
        self.weights = dict(self.model.named_parameters())
        matrices = {name: w for name, w in self.weights.items() if w.ndim == 2 and "embed" not in name}
        others = [weight for name, weight in self.weights.items() if name not in matrices]
        adam = torch.optim.AdamW(others, betas=(0.9, 0.98), weight_decay=0.0, fused=True)
        muon = Float32Muon([*matrices.values()], weight_decay=recipe.weight_decay)
        self.optimizers = [adam, muon]
        # without instructions for it, arithmetic in bfloat16 is fifty times slower than in float32
        self.half = self.device.type != "cpu" or torch.cpu.get_capabilities().get("avx512_bf16", False)

    @property
    def done(self) -> float:
        """Return which part of the blocks lies behind."""
        return self.at["block"] / len(self.recipe.blocks)

    def step(self) -> Told:
        """Train on one block; kinds of answers are sub-tasks and sorts of documents."""
        recipe, number, told = self.recipe, self.at["block"], defaultdict(list)
        phase, part = recipe.blocks[number]
        documents = draw_block(self.writer, recipe.seed, number, phase.mixture, recipe.block_tokens)
        groups = [*batches(documents, recipe.batch_tokens, recipe.longest, f"{recipe.seed}/{number}")]
        for i, batch in enumerate(groups):
            rate = phase.rate[0] + (phase.rate[1] - phase.rate[0]) * (part + i / len(groups) / phase.blocks)
            for kind, answer in self.learn(batch, rate):
                told[kind].append(answer)
        release_memory()
        self.at["block"] += 1
        return told

    def learn(self, batch: Batch, rate: float) -> list[tuple[str, tuple[float, bool]]]:
        """Train on one batch; return each answer's kind, its loss, and whether it was right."""
        ids_BT, predicted_BT = batch.ids_BT.to(self.device), batch.predicted_BT.to(self.device)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.half):
            states_BTC = self.model.model(ids_BT[:, :-1], use_cache=False).last_hidden_state
            logits_NV = self.model.lm_head(states_BTC[predicted_BT[:, 1:]]).float()
        target_N = ids_BT[predicted_BT]
        losses_N = F.cross_entropy(logits_NV, target_N, reduction="none")
        losses_N.mean().backward()
        finite = nn.utils.clip_grad_norm_([*self.weights.values()], self.recipe.clip).isfinite()
        own_rates = (self.recipe.adam_rate, self.recipe.muon_rate)
        for optimizer, own_rate in zip(self.optimizers, own_rates, strict=True):
            for group in optimizer.param_groups:
                group["lr"] = own_rate * rate * min(1.0, (self.at["step"] + 1) / self.recipe.warmup)
            if finite:
                optimizer.step()
            optimizer.zero_grad()
        self.at["step"] += 1
        self.at["tokens"] += ids_BT.numel()
        told_BT2 = torch.zeros(*ids_BT.shape, 2)
        right_N = logits_NV.argmax(-1) == target_N
        told_BT2[batch.predicted_BT] = torch.stack((losses_N.detach(), right_N), 1).cpu()
        spans = [(kind, told_BT2[row, start:stop]) for row, start, stop, kind in batch.spans]
        return [(kind, (float(told[:, 0].mean()), bool(told[:, 1].all()))) for kind, told in spans]

    def write(self, folder: Path) -> None:
        """Write the model in bfloat16, how it is asked, and how it was trained."""
        nn.Module.to(self.model, torch.bfloat16)
        record = {"recipe": asdict(self.recipe)} | self.at | {"environment": environment()}
        prompt = (base_folder("tiny") / PROMPT_FILE).read_text(encoding="utf-8")
        with replaced_folder(folder) as new:
            self.model.save_pretrained(new)
            self.writer.tokenizer.save_pretrained(new)
            (new / PROMPT_FILE).write_text(prompt, encoding="utf-8")
            (new / "training.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def main(
    recipe: Path,
    out: Annotated[Path, typer.Option(help="Folder of the training; if it holds one, that goes on.")],
    device: str = "cpu",
    threads: Annotated[int, typer.Option(help="One gives the same weights every time.")] = 1,
) -> None:
    """Train, or go on with a training; a kill costs two minutes at most."""
    torch.set_num_threads(threads)
    BaseTraining(read_recipe(recipe), out, device).run()
    print(f"wrote {out / 'model'}")


if __name__ == "__main__":
    typer.run(main)
