"""Train a base: blocks of fresh documents, Muon and AdamW, levels that rise with success, checkpoints to resume from.

A checkpoint is written between blocks. With one thread on a CPU a training that was killed and resumed ends with the
same weights as one that was not.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from dynarule.training import Float32Muon
from torch import Tensor, nn

from ...backends.local import release_memory
from ...run.environment import environment
from ...run.folder import exclusive
from .checkpoint import Tensors, moments_of, read_checkpoint, set_moments, write_checkpoint
from .curriculum import Curriculum
from .data import Batch, Blocks, DocumentStream, batches
from .documents import Writer
from .model import last_states, new_base
from .recipe import BaseRecipe, Phase
from .tokenizer import TokenVocabulary

STATE_FILE = "state.safetensors"
LOG_FILE = "log.jsonl"
TIED = "lm_head.weight"
"""The same tensor as the embeddings."""


class BaseTrainer:
    """One training, in a folder of its own; it takes up the last checkpoint if there is one.

    Parameters
    ----------
    recipe : BaseRecipe
    vocabulary : TokenVocabulary
    folder : Path
        Holds ``state.safetensors`` (the last checkpoint) and ``log.jsonl``; made by `run`.
    device : str
        ``cpu`` or ``cuda``.
    processes : int
        Processes that make data ahead of time; 0 makes it in this one.
    compiled : bool
        Fuse the forward and backward pass; takes a minute or two once.

    Raises
    ------
    ValueError
        If the folder belongs to another recipe, or its checkpoint is damaged.
    """

    fuses = True
    """Whether the two passes can be compiled into few kernels."""

    def __init__(
        self,
        recipe: BaseRecipe,
        vocabulary: TokenVocabulary | None,
        folder: Path,
        device: str = "cpu",
        processes: int = 0,
        compiled: bool = True,
    ) -> None:
        self.recipe, self.folder, self.device = recipe, folder, torch.device(device)
        self.model, writer = self._begin(vocabulary)
        self.optimizers = self._optimizers()
        self.curriculum = Curriculum(recipe.raise_at, recipe.raise_least)
        # Without instructions for it, arithmetic in bfloat16 is fifty times slower than in float32.
        fast = self.device.type != "cpu" or torch.cpu.get_capabilities().get("avx512_bf16", False)
        self.dtype = torch.bfloat16 if fast else torch.float32
        self.position = {"phase": 0, "block": 0, "step": 0, "tokens": 0, "phase_tokens": 0, "phase_step": 0}
        self.seconds, self.log_bytes = 0.0, 0
        self.blocks = Blocks(DocumentStream(writer, recipe.seed, recipe.block_tokens), processes)
        self.loss: Callable[..., tuple[Tensor, Tensor]] = self._loss
        if compiled and self.fuses:
            self.loss = torch.compile(self._loss, dynamic=True)
        self._take_up()

    def _begin(self, vocabulary: TokenVocabulary | None) -> tuple[Any, Writer]:
        """Return the model as it begins, and what writes its documents."""
        assert vocabulary is not None
        model = new_base(self.recipe.shape, vocabulary, self.recipe.seed)
        nn.Module.to(model, self.device)
        return model, Writer(vocabulary, self.recipe.context_weight)

    def _optimizers(self) -> tuple[tuple[torch.optim.Optimizer, float], ...]:
        """Return optimizers with the learning rate of each."""
        recipe, named = self.recipe, [*self.model.named_parameters()]
        matrices = [each for name, each in named if each.ndim == 2 and "embed" not in name]
        others = [each for name, each in named if each.ndim != 2 or "embed" in name]
        muon = Float32Muon(matrices, weight_decay=recipe.weight_decay)
        adam = torch.optim.AdamW(others, betas=(0.9, 0.98), weight_decay=0.0, fused=True)
        return (muon, recipe.muon_rate), (adam, recipe.adam_rate)

    def _states(self, ids_BT: Tensor) -> Tensor:
        """Return what the output matrix reads, (B, T, C)."""
        return last_states(self.model, ids_BT, self.dtype)

    def _weights(self) -> Tensors:
        """Return what a checkpoint holds of the model."""
        return {name: value for name, value in self.model.state_dict().items() if name != TIED}

    def _set_weights(self, weights: Tensors) -> None:
        self.model.load_state_dict(weights | {TIED: weights["model.embed_tokens.weight"]})

    @property
    def phase(self) -> Phase | None:
        """The current phase; None when all are done."""
        number = self.position["phase"]
        return self.recipe.phases[number] if number < len(self.recipe.phases) else None

    def run(
        self, seconds: float = math.inf, save_every: float = 120.0, report: Callable[[str], None] = print
    ) -> bool:
        """Train until the recipe ends (True) or the time is up (False); the state is saved either way."""
        self.folder.mkdir(parents=True, exist_ok=True)
        begun = saved = time.monotonic()
        with exclusive(self.folder), contextlib.closing(self.blocks):
            self._take_up()  # another process may have trained since the folder was looked at
            log = self.folder / LOG_FILE
            if log.is_file() and log.stat().st_size > self.log_bytes:
                os.truncate(log, self.log_bytes)  # blocks trained after the checkpoint come again
            while (phase := self.phase) is not None:
                self.curriculum.begin(phase.least)
                # The data follow a level by some blocks, so that processes, however many, can work ahead of it.
                while len(self.blocks.pending) <= self.recipe.lag:
                    number = self.position["block"] + len(self.blocks.pending)
                    self.blocks.order(number, phase.mixture, self.curriculum.levels)
                report(self._train_block(phase))
                if self.position["phase_tokens"] >= phase.tokens or self.curriculum.reached(phase.until):
                    self.position |= {"phase": self.position["phase"] + 1, "phase_tokens": 0, "phase_step": 0}
                    self.blocks.pending.clear()
                now = time.monotonic()
                over = now - begun >= seconds
                if now - saved >= save_every or over or self.phase is None:
                    self.save()
                    saved = now
                if over:
                    break
        return self.phase is None

    def _train_block(self, phase: Phase) -> str:
        """Train on one block; log it and return the log's entry in words."""
        started, before = time.monotonic(), self.position["tokens"]
        number, documents = self.blocks.take()
        key = f"{self.recipe.seed}/{number}"
        found = [
            self._step(batch, phase)
            for batch in batches(documents, self.recipe.batch_tokens, self.recipe.longest, key)
        ]
        self.position["block"] = number + 1
        release_memory()
        raised = self.curriculum.raise_levels()
        took = time.monotonic() - started
        self.seconds += took
        losses, skipped = zip(*found, strict=True)
        entry: dict[str, Any] = {
            "phase": phase.name,
            "block": number,
            "step": self.position["step"],
            "tokens": self.position["tokens"],
            "seconds": round(self.seconds, 1),
            "loss": round(sum(losses) / len(losses), 4),
            "skipped": sum(skipped),
            "levels": dict(self.curriculum.levels),
            "success": self.curriculum.success(),
        }
        with (self.folder / LOG_FILE).open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
        note = f"  raised: {', '.join(raised)}" if raised else ""
        if entry["skipped"]:
            note += f"  skipped {entry['skipped']} steps: the gradient was not finite"
        levels = " ".join(f"{name} {size}" for name, size in self.curriculum.sizes().items())
        success = " ".join(
            f"{name} {mean:.2f} ({least:.2f})" for name, (mean, least) in entry["success"].items()
        )
        return (
            f"{phase.name:<10} {entry['tokens'] / 1e6:7.2f} M tokens  {(entry['tokens'] - before) / took:6,.0f}/s  "
            f"loss {entry['loss']:.3f}  | {levels} | {success}{note}"
        )

    def _step(self, batch: Batch, phase: Phase) -> tuple[float, bool]:
        """Train on one batch; return its loss and whether the gradient was not finite."""
        place = self.position
        part = min(1.0, place["phase_tokens"] / phase.tokens)
        factor = phase.rate[0] + (phase.rate[1] - phase.rate[0]) * part
        factor *= min(1.0, (place["phase_step"] + 1) / self.recipe.warmup)
        loss, right = self.loss(batch.ids.to(self.device), batch.predicted.to(self.device))
        loss.backward()
        finite = bool(nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.clip).isfinite())
        for optimizer, rate in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate * factor
            if finite:
                optimizer.step()
            optimizer.zero_grad()
        self.curriculum.observe(batch.spans, right.cpu())
        for name in ("step", "phase_step"):
            place[name] += 1
        for name in ("tokens", "phase_tokens"):
            place[name] += batch.ids.numel()
        return loss.item(), not finite

    def _loss(self, ids_BT: Tensor, predicted_2N: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss, and which tokens were predicted right (N,)."""
        last = self._states(ids_BT)
        rows, positions = predicted_2N
        output = self.model.get_output_embeddings().weight.to(self.dtype)
        logits = F.linear(last[rows, positions - 1], output).float()
        target = ids_BT[rows, positions]
        return F.cross_entropy(logits, target), logits.argmax(-1) == target

    def save(self) -> None:
        """Write a checkpoint."""
        log = self.folder / LOG_FILE
        self.log_bytes = log.stat().st_size if log.is_file() else 0
        state = {
            "recipe": asdict(self.recipe),
            "position": self.position,
            "seconds": self.seconds,
            "curriculum": {name: getattr(self.curriculum, name) for name in ("levels", "rates", "seen")},
            "orders": [(number, levels) for number, levels, _ in self.blocks.pending],
            "log_bytes": self.log_bytes,
        }
        moments = {str(i): moments_of(optimizer) for i, (optimizer, _) in enumerate(self.optimizers)}
        write_checkpoint(self.folder / STATE_FILE, {"model": self._weights()} | moments, state)

    def _take_up(self) -> None:
        """Go to the folder's checkpoint, if there is one."""
        path = self.folder / STATE_FILE
        self.resumed = path.is_file()
        if not self.resumed:
            return
        parts, state = read_checkpoint(path, self.device)
        if state["recipe"] != json.loads(json.dumps(asdict(self.recipe))):
            raise ValueError(
                f"{self.folder} holds a training of another recipe ({state['recipe']['name']}, or an older text of "
                "this one); give another --out, or delete the folder to begin anew"
            )
        self._set_weights(parts["model"])
        for i, (optimizer, _) in enumerate(self.optimizers):
            set_moments(optimizer, parts[str(i)])
        self.position, self.seconds, self.log_bytes = (state[n] for n in ("position", "seconds", "log_bytes"))
        vars(self.curriculum).update(state["curriculum"])
        self.blocks.pending.clear()
        for number, levels in state["orders"]:
            assert self.phase is not None
            self.blocks.order(number, self.phase.mixture, levels)

    def summary(self) -> dict[str, Any]:
        """Return what the training took so far, as JSON values."""
        return {
            "recipe": asdict(self.recipe),
            "tokens": self.position["tokens"],
            "steps": self.position["step"],
            "hours": round(self.seconds / 3600, 3),
            "finished": self.phase is None,
            "levels": self.curriculum.sizes(),
            "environment": environment(),
        }


def trained_base(
    recipe: BaseRecipe,
    vocabulary: TokenVocabulary | None,
    folder: Path,
    kind: type[BaseTrainer] | None = None,
) -> BaseTrainer:
    """Return the training (of a kind, else `BaseTrainer`) that a folder holds, its model in float32 and eval mode.

    Raises
    ------
    FileNotFoundError
        If there is no checkpoint.
    ValueError
        If it is another recipe's.
    """
    trainer = (kind or BaseTrainer)(recipe, vocabulary, folder, compiled=False)
    if not trainer.resumed:
        raise FileNotFoundError(
            f"{folder} holds no checkpoint; train first: rwbench base train RECIPE --out {folder}"
        )
    trainer.model.eval()
    return trainer
