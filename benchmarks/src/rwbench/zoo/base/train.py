"""Train a base: blocks of fresh documents, Muon and AdamW, levels that rise with success, checkpoints to resume from.

A checkpoint is written between blocks. With one thread on a CPU a training that was killed and resumed ends with the
same weights as one that was not.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from ruleworld_data.io import write_whole
from torch import Tensor, nn

from .curriculum import Curriculum, Phase
from .data import Batch, Blocks, DocumentStream, batches
from .documents import Writer
from .model import hidden_states, new_base
from .recipe import BaseRecipe
from .tokenizer import TokenVocabulary

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM

STATE_FOLDER = "state"
LOG_FILE = "log.jsonl"


class BaseTrainer:
    """One training, in a folder of its own.

    Parameters
    ----------
    recipe : BaseRecipe
    vocabulary : TokenVocabulary
    folder : Path
        Holds ``state/`` (the last checkpoint) and ``log.jsonl``; made if missing.
    device : str
        ``cpu`` or ``cuda``.
    processes : int
        Processes that make data ahead of time; 0 makes it in this one.
    compiled : bool
        Fuse the forward and backward pass; takes a minute or two once.
    start : Path, optional
        A base as `rwbench base ship` writes it, whose weights are the first ones instead of random ones.
    """

    def __init__(
        self,
        recipe: BaseRecipe,
        vocabulary: TokenVocabulary,
        folder: Path,
        device: str = "cpu",
        processes: int = 0,
        compiled: bool = True,
        start: Path | None = None,
    ) -> None:
        self.recipe, self.folder, self.device = recipe, folder, torch.device(device)
        self.dtype = torch.bfloat16
        self.model: LlamaForCausalLM = new_base(recipe.shape, vocabulary, recipe.seed)
        self.earlier: dict[str, Any] = _load_start(self.model, start) if start is not None else {}
        self.plan_maps = nn.ParameterList(torch.eye(recipe.shape.hidden) for _ in recipe.plan_layers)
        nn.Module.to(self.model, self.device)
        self.plan_maps.to(self.device)
        matrices = [
            parameter
            for name, parameter in self.model.named_parameters()
            if parameter.ndim == 2 and "embed" not in name
        ] + list(self.plan_maps.parameters())
        chosen = {id(parameter) for parameter in matrices}
        others = [parameter for parameter in self.model.parameters() if id(parameter) not in chosen]
        self.muon = torch.optim.Muon(
            matrices,
            lr=recipe.muon_rate,
            weight_decay=recipe.weight_decay,
            adjust_lr_fn="match_rms_adamw",
        )
        self.adam = torch.optim.AdamW(
            others, lr=recipe.adam_rate, betas=(0.9, 0.98), weight_decay=0.0, fused=True
        )
        self.curriculum = Curriculum(recipe.raise_at, recipe.raise_least)
        self.position = {"phase": 0, "block": 0, "step": 0, "tokens": 0, "phase_tokens": 0, "phase_step": 0}
        self.seconds = 0.0
        writer = Writer(vocabulary, recipe.context_weight)
        self.blocks = Blocks(DocumentStream(writer, recipe.seed, recipe.block_tokens), recipe.lag, processes)
        self.losses: Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]] = self._losses
        if compiled:
            self.losses = torch.compile(self._losses, dynamic=True)
        self.orders: list[tuple[int, dict[str, int]]] | None = None

    @property
    def phase(self) -> Phase | None:
        """The current phase; None when all are done."""
        number = self.position["phase"]
        return self.recipe.phases[number] if number < len(self.recipe.phases) else None

    def run(
        self, seconds: float = math.inf, save_every: float = 120.0, report: Callable[[str], None] = print
    ) -> bool:
        """Train until the recipe ends (True) or the time is up (False); the state is saved either way."""
        begun = saved = time.monotonic()
        while (phase := self.phase) is not None:
            self._order(phase)
            started = time.monotonic()
            number, documents = self.blocks.take()
            before = dict(self.position)
            found = []
            key = f"{self.recipe.seed}/{number}"
            for batch in batches(documents, self.recipe.batch_tokens, self.recipe.longest, key):
                found.append(self._step(batch, phase))
            self.position["block"] = number + 1
            _trim_heap()
            raised = self.curriculum.raise_levels()
            self.seconds += time.monotonic() - started
            report(self._log(phase, found, before, time.monotonic() - started, raised))
            if self.position["phase_tokens"] >= phase.tokens or self.curriculum.reached(phase.until):
                self.position |= {"phase": self.position["phase"] + 1, "phase_tokens": 0, "phase_step": 0}
                self.blocks.clear()
            now = time.monotonic()
            if now - saved >= save_every or now - begun >= seconds or self.phase is None:
                self.save()
                saved = now
            if now - begun >= seconds:
                break
        self.blocks.close()
        return self.phase is None

    def _order(self, phase: Phase) -> None:
        """Keep ``lag`` + 1 blocks ordered."""
        if self.orders is not None:  # what a resumed training had ordered already
            for number, levels in self.orders:
                self.blocks.ask(number, phase.mixture, levels)
            self.orders = None
        pending = self.blocks.orders()
        following = pending[-1][0] + 1 if pending else self.position["block"]
        for number in range(following, self.position["block"] + self.recipe.lag + 1):
            self.blocks.ask(number, phase.mixture, self.curriculum.levels)

    def _losses(
        self, ids_BT: Tensor, predicted_2N: Tensor, plan_2S: Tensor, wanted_SW: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the language-model loss, the plan loss, and which tokens were predicted right (N,)."""
        states = hidden_states(self.model, ids_BT, self.dtype)
        output = self.model.model.embed_tokens.weight.to(self.dtype)
        rows, positions = predicted_2N
        logits = F.linear(states[-1][rows, positions - 1], output).float()
        target = ids_BT[rows, positions]
        loss = F.cross_entropy(logits, target)
        right = logits.argmax(-1) == target
        mask = (wanted_SW >= 0).float()
        plan = loss.new_zeros(())
        for layer, mapping in zip(self.recipe.plan_layers, self.plan_maps, strict=True):
            state = F.linear(states[layer][plan_2S[0], plan_2S[1]], mapping.to(self.dtype))
            state = F.rms_norm(state.float(), state.shape[-1:])
            odds = F.linear(state.to(self.dtype), output).float().log_softmax(-1)
            odds = odds.gather(1, wanted_SW.clamp(min=0))
            plan = plan - (odds * mask).sum() / mask.sum().clamp(min=1)
        return loss, plan / max(1, len(self.plan_maps)), right

    def _step(self, batch: Batch, phase: Phase) -> dict[str, float]:
        recipe, place = self.recipe, self.position
        part = min(1.0, place["phase_tokens"] / phase.tokens)
        factor = phase.rate[0] + (phase.rate[1] - phase.rate[0]) * part
        factor *= min(1.0, (place["phase_step"] + 1) / recipe.warmup)
        for optimiser, rate in ((self.muon, recipe.muon_rate), (self.adam, recipe.adam_rate)):
            for group in optimiser.param_groups:
                group["lr"] = rate * factor
        plan, wanted = batch.plan, batch.wanted
        short = 2 - min(2, plan.shape[1])
        if short or wanted.shape[1] < 2:  # sizes 0 and 1 would be compiled anew
            plan = F.pad(plan, (0, short))
            wanted = F.pad(wanted, (0, 2 - min(2, wanted.shape[1]), 0, short), value=-1)
        tensors = (each.to(self.device) for each in (batch.ids, batch.predicted, plan, wanted))
        loss, plan_loss, right = self.losses(*tensors)
        (loss + recipe.plan_weight * plan_loss).backward()
        norm = nn.utils.clip_grad_norm_([*self.model.parameters(), *self.plan_maps.parameters()], recipe.clip)
        finite = bool(torch.isfinite(norm))
        if finite:
            self.muon.step()
            self.adam.step()
        self.muon.zero_grad()
        self.adam.zero_grad()
        self.curriculum.observe(batch.spans, right.cpu())
        place["step"] += 1
        place["phase_step"] += 1
        place["tokens"] += batch.tokens
        place["phase_tokens"] += batch.tokens
        return {
            "loss": float(loss.detach()),
            "plan": float(plan_loss.detach()) if batch.plan.shape[1] else math.nan,
            "skipped": float(not finite),
        }

    def _log(
        self,
        phase: Phase,
        found: Sequence[dict[str, float]],
        before: dict[str, int],
        seconds: float,
        raised: Sequence[str],
    ) -> str:
        plans = [each["plan"] for each in found if not math.isnan(each["plan"])]
        entry: dict[str, Any] = {
            "phase": phase.name,
            "block": before["block"],
            "step": self.position["step"],
            "tokens": self.position["tokens"],
            "seconds": round(self.seconds, 1),
            "loss": round(sum(each["loss"] for each in found) / len(found), 4),
            "plan": round(sum(plans) / len(plans), 3) if plans else None,
            "skipped": sum(int(each["skipped"]) for each in found),
            "levels": dict(self.curriculum.levels),
            "success": self.curriculum.summary(),
        }
        with (self.folder / LOG_FILE).open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
        rate = (self.position["tokens"] - before["tokens"]) / max(seconds, 1e-9)
        levels = " ".join(f"{name} {self.curriculum.size(name)}" for name in self.curriculum.levels)
        success = " ".join(
            f"{name} {mean:.2f} ({least:.2f})" for name, (mean, least) in entry["success"].items()
        )
        note = f"  raised: {', '.join(raised)}" if raised else ""
        if entry["skipped"]:
            note += f"  skipped {entry['skipped']} steps: the gradient was not finite"
        return (
            f"{phase.name:<10} {self.position['tokens'] / 1e6:7.2f} M tokens  {rate:6,.0f}/s  loss {entry['loss']:.3f}"
            f"  plan {entry['plan']}  | {levels} | {success}{note}"
        )

    def save(self) -> None:
        """Write a checkpoint; the last one stays until this one is whole."""
        from safetensors.torch import save_file

        new, old = self.folder / (STATE_FOLDER + ".new"), self.folder / STATE_FOLDER
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        tensors = {f"model.{k}": v for k, v in self.model.state_dict().items() if k != "lm_head.weight"}
        tensors |= {f"plan.{k}": v for k, v in self.plan_maps.state_dict().items()}
        for name, optimiser in (("muon", self.muon), ("adam", self.adam)):
            for index, entry in optimiser.state_dict()["state"].items():
                tensors |= {f"{name}.{index}.{k}": torch.as_tensor(v) for k, v in entry.items()}
        save_file({k: v.detach().cpu().contiguous() for k, v in tensors.items()}, new / "state.safetensors")
        values = {
            "recipe": self.recipe.to_dict(),
            "earlier": self.earlier,
            "position": self.position,
            "seconds": self.seconds,
            "curriculum": self.curriculum.state(),
            "orders": self.blocks.orders(),
        }
        write_whole(new / "state.json", json.dumps(values).encode())
        last = self.folder / (STATE_FOLDER + ".old")
        shutil.rmtree(last, ignore_errors=True)
        if old.exists():
            old.rename(last)  # not removed before the new one is in its place
        new.rename(old)
        shutil.rmtree(last, ignore_errors=True)

    def resume(self) -> bool:
        """Take up the last checkpoint; False if there is none.

        Raises
        ------
        ValueError
            If the folder belongs to another recipe.
        """
        from safetensors.torch import load_file

        folder = self.folder / STATE_FOLDER
        if not (folder / "state.json").is_file():
            folder = self.folder / (STATE_FOLDER + ".new")  # killed between the two renames
            if not (folder / "state.json").is_file():
                self.folder.mkdir(parents=True, exist_ok=True)
                return False
        values = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        if values["recipe"] != json.loads(json.dumps(self.recipe.to_dict())):
            raise ValueError(
                f"{self.folder} holds a training of another recipe ({values['recipe']['name']}, or an older text of "
                "this one); give another --out, or delete the folder to begin anew"
            )
        tensors = load_file(folder / "state.safetensors")
        self.model.load_state_dict(_strip(tensors, "model."), strict=False)
        self.plan_maps.load_state_dict(_strip(tensors, "plan."))
        for name, optimiser in (("muon", self.muon), ("adam", self.adam)):
            state: dict[int, dict[str, Tensor]] = {}
            for key, value in _strip(tensors, name + ".").items():
                index, field = key.split(".", 1)
                state.setdefault(int(index), {})[field] = value
            optimiser.load_state_dict(
                {"state": state, "param_groups": optimiser.state_dict()["param_groups"]}
            )
        self.position, self.seconds = values["position"], values["seconds"]
        self.earlier = values.get("earlier", {})
        self.curriculum.load(values["curriculum"])
        self.orders = [(number, levels) for number, levels in values["orders"]]
        self._forget_after(self.position["block"])
        return True

    def _forget_after(self, block: int) -> None:
        """Drop the log's lines of blocks that were trained after the checkpoint: they come again."""
        log = self.folder / LOG_FILE
        if log.is_file():
            lines = log.read_text(encoding="utf-8").splitlines(keepends=True)
            kept = [line for line in lines if line.endswith("\n") and json.loads(line)["block"] < block]
            write_whole(log, "".join(kept).encode())


def _load_start(model: LlamaForCausalLM, folder: Path) -> dict[str, Any]:
    """Load a shipped base's weights; return what its training took.

    Raises
    ------
    ValueError
        If it has another shape or vocabulary.
    """
    from transformers import AutoModelForCausalLM

    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, trust_remote_code=False)
    ours = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    found = {name: tuple(value.shape) for name, value in theirs.state_dict().items()}
    for name in sorted({*ours, *found}):
        if ours.get(name) != found.get(name):
            raise ValueError(
                f"{folder} is no start for this recipe: {name} is {found.get(name)} there, {ours.get(name)} here; "
                "give a base of the same shape and vocabulary"
            )
    model.load_state_dict(theirs.state_dict())
    summary = json.loads((folder / "training.json").read_text(encoding="utf-8"))
    before = summary["earlier"].get("recipes", [])
    return {name: summary[name] for name in ("tokens", "steps", "hours")} | {
        "recipes": [*before, summary["recipe"]["name"]]
    }


def _trim_heap() -> None:
    """Return freed memory to the system where the C library can: tensors of ever new sizes would pile it up."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _strip(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors below a prefix, without it."""
    return {name[len(prefix) :]: value for name, value in tensors.items() if name.startswith(prefix)}


def trained_base(
    recipe: BaseRecipe, vocabulary: TokenVocabulary, folder: Path
) -> tuple[LlamaForCausalLM, dict[str, Any]]:
    """Return the base of a training folder's last checkpoint in float32, and the state beside it.

    Raises
    ------
    FileNotFoundError
        If there is no checkpoint.
    ValueError
        If it is another recipe's.
    """
    trainer = BaseTrainer(recipe, vocabulary, folder, compiled=False)
    if not trainer.resume():
        raise FileNotFoundError(
            f"{folder} holds no checkpoint; train first: rwbench base train RECIPE --out {folder}"
        )
    state = {
        "earlier": trainer.earlier,
        "position": trainer.position,
        "seconds": trainer.seconds,
        "curriculum": trainer.curriculum.state(),
    }
    return trainer.model.eval(), state
