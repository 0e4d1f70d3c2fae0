"""Train a base from random weights.

    python benchmarks/lab/train.py benchmarks/base/tiny.toml --out runs/base --device cuda --processes 6

A training takes up the last checkpoint of its folder. Checkpoints are written between blocks of data, and with one
thread on a CPU a training that was killed and goes on ends with the same weights as one that was not. ``OUT/model`` is
what comes of it: a base as transformers loads it.
"""

from __future__ import annotations

import json
import os
import time
import tomllib
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import torch
import torch.nn.functional as F
import typer
from base import new_base
from checkpoint import read_checkpoint, write_checkpoint
from documents import STRICT, Batch, Document, Mixture, Writer, batches, draw_block
from dynarule.training import Float32Muon
from pydantic import TypeAdapter
from pydantic.dataclasses import dataclass
from rwbench.backends.kept import release_memory
from rwbench.models import PROMPT_FILE, STEP, base_folder, replaced_folder
from rwbench.run.environment import environment
from rwbench.run.folder import exclusive
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import AutoTokenizer

SAVE_SECONDS = 120.0
STATE = "state.safetensors"


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


class Training:
    """A model in training, which its folder's checkpoint decides."""

    def __init__(self, recipe: Recipe, out: Path, device: str) -> None:
        self.recipe, self.out, self.device = recipe, out, torch.device(device)
        tokenizer = AutoTokenizer.from_pretrained(base_folder("tiny"), trust_remote_code=False)
        self.model: Any = new_base(recipe.shape, tokenizer, recipe.seed)
        self.writer = Writer(tokenizer, STEP, recipe.context_weight)
        nn.Module.to(self.model, self.device)
        self.weights = dict(self.model.named_parameters())
        matrices = {name: w for name, w in self.weights.items() if w.ndim == 2 and "embed" not in name}
        others = [weight for name, weight in self.weights.items() if name not in matrices]
        adam = torch.optim.AdamW(others, betas=(0.9, 0.98), weight_decay=0.0, fused=True)
        muon = Float32Muon([*matrices.values()], weight_decay=recipe.weight_decay)
        self.optimizers: list[torch.optim.Optimizer] = [adam, muon]
        # without instructions for it, arithmetic in bfloat16 is fifty times slower than in float32
        self.half = self.device.type != "cpu" or torch.cpu.get_capabilities().get("avx512_bf16", False)
        self.at: dict[str, Any] = {"block": 0, "step": 0, "tokens": 0, "seconds": 0.0}

    def step(self, batch: Batch, rate: float) -> tuple[float, bool, Tensor]:
        """Train on one batch; return its loss, whether the gradient was finite, and which tokens were right."""
        ids_BT, predicted_BT = batch.ids_BT.to(self.device), batch.predicted_BT.to(self.device)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.half):
            states_BTC = self.model.model(ids_BT[:, :-1], use_cache=False).last_hidden_state
            logits_NV = self.model.lm_head(states_BTC[predicted_BT[:, 1:]]).float()
        target_N = ids_BT[predicted_BT]
        loss = F.cross_entropy(logits_NV, target_N)
        loss.backward()
        finite = bool(nn.utils.clip_grad_norm_([*self.weights.values()], self.recipe.clip).isfinite())
        own_rates = (self.recipe.adam_rate, self.recipe.muon_rate)
        for optimizer, own_rate in zip(self.optimizers, own_rates, strict=True):
            for group in optimizer.param_groups:
                group["lr"] = own_rate * rate * min(1.0, (self.at["step"] + 1) / self.recipe.warmup)
            if finite:
                optimizer.step()
            optimizer.zero_grad()
        self.at["step"] += 1
        self.at["tokens"] += ids_BT.numel()
        right_BT = torch.zeros_like(predicted_BT)
        right_BT[predicted_BT] = logits_NV.argmax(-1) == target_N
        return loss.item(), finite, right_BT.cpu()

    def block(self, number: int, documents: list[Document]) -> dict[str, Any]:
        """Train on one block; return its entry of the log."""
        recipe, started, (phase, part) = self.recipe, time.monotonic(), self.recipe.blocks[number]
        groups = list(batches(documents, recipe.batch_tokens, recipe.longest, f"{recipe.seed}/{number}"))
        losses, skipped, success = [], 0, defaultdict(list)
        for i, batch in enumerate(groups):
            rate = phase.rate[0] + (phase.rate[1] - phase.rate[0]) * (part + i / len(groups) / phase.blocks)
            loss, finite, right_BT = self.step(batch, rate)
            losses.append(loss)
            skipped += not finite
            for row, start, stop, kind in batch.spans:
                success[kind].append(bool(right_BT[row, start:stop].all()))
        release_memory()
        self.at |= {"block": number + 1, "seconds": self.at["seconds"] + time.monotonic() - started}
        mean = {kind: round(sum(r) / len(r), 3) for kind, r in sorted(success.items())}
        more = {"loss": round(sum(losses) / len(losses), 4), "skipped": skipped, "success": mean}
        return {"phase": phase.name} | self.at | more

    def save(self) -> None:
        """Write a checkpoint."""
        log_bytes = (self.out / "log.jsonl").stat().st_size
        state = [self.at, log_bytes]
        write_checkpoint(self.out / STATE, self.weights, self.optimizers, asdict(self.recipe), state)

    def resume(self) -> None:
        """Go to the folder's checkpoint, if there is one."""
        if (self.out / STATE).is_file():
            whose = (self.weights, self.optimizers, asdict(self.recipe))
            self.at, log_bytes = read_checkpoint(self.out / STATE, *whose)
            # blocks trained after the checkpoint come again
            os.truncate(self.out / "log.jsonl", log_bytes)

    def ship(self) -> None:
        """Write the model in bfloat16, how it is asked, and how it was trained."""
        nn.Module.to(self.model, torch.bfloat16)
        record = {"recipe": asdict(self.recipe)} | self.at | {"environment": environment()}
        prompt = (base_folder("tiny") / PROMPT_FILE).read_text(encoding="utf-8")
        with replaced_folder(self.out / "model") as new:
            self.model.save_pretrained(new)
            self.writer.tokenizer.save_pretrained(new)
            (new / PROMPT_FILE).write_text(prompt, encoding="utf-8")
            (new / "training.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def train(recipe: Recipe, out: Path, device: str = "cpu", processes: int = 0) -> Training:
    """Train from the folder's checkpoint to the end of the recipe."""
    out.mkdir(parents=True, exist_ok=True)
    with exclusive(out):
        training = Training(recipe, out, device)
        training.resume()
        left = range(training.at["block"], len(recipe.blocks))

        def documents_of(number: int) -> list[Document]:
            mixture = recipe.blocks[number][0].mixture
            return draw_block(training.writer, recipe.seed, number, mixture, recipe.block_tokens)

        loader: Any = DataLoader(left, batch_size=None, collate_fn=documents_of, num_workers=processes)
        saved = time.monotonic()
        for number, documents in zip(left, loader, strict=True):
            line = json.dumps(training.block(number, documents))
            print(line, flush=True)
            with (out / "log.jsonl").open("a", encoding="utf-8") as log:
                log.write(line + "\n")
            if number == left[-1] or time.monotonic() - saved >= SAVE_SECONDS:
                training.save()
                saved = time.monotonic()
        training.ship()
    return training


def main(
    recipe: Path,
    out: Annotated[Path, typer.Option(help="Folder of the training; if it holds one, that goes on.")],
    device: str = "cpu",
    processes: Annotated[int, typer.Option(help="Processes that make data ahead of time.")] = 0,
    threads: Annotated[int, typer.Option(help="One gives the same weights every time.")] = 1,
) -> None:
    """Train, or go on with a training; a kill costs two minutes at most."""
    torch.set_num_threads(threads)
    train(read_recipe(recipe), out, device, processes)
    print(f"wrote {out / 'model'}")


if __name__ == "__main__":
    typer.run(main)
