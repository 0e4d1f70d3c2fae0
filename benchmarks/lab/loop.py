"""The loop of a training: steps, a log, and a checkpoint from which a training that was killed goes on.

A checkpoint is one safetensors file, whole or not written, with its state as JSON in it. Every minute a line of
``OUT/log.jsonl`` has the loss by kind of answer, the share of answers of which every token was the likeliest, tokens a
second of computing time, and the hours left.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from ruleworld_data.io import write_whole
from rwbench.run.folder import exclusive
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

SAVE_SECONDS, LOG_SECONDS = 120.0, 60.0
STATE = "state.safetensors"
Told = dict[str, list[tuple[float, bool]]]  # kind -> loss of each answer, and whether all of it was right


class Training:
    """A model in training, which its folder's checkpoint decides; a kill costs two minutes.

    A subclass has ``weights`` and an ``optimizer``; ``step()`` trains a little, counts it in ``at`` (JSON) and returns
    `Told`; ``done`` is the part that lies behind, and ``write(folder)`` writes the model.
    """

    weights: dict[str, Tensor]
    optimizer: torch.optim.Optimizer

    def __init__(self, recipe: Any, out: Path, **at: Any) -> None:
        self.recipe, self.out = recipe, out
        self.at: dict[str, Any] = {"step": 0, "tokens": 0, "seconds": 0.0} | at

    def resume(self) -> None:
        """Go to the folder's checkpoint, if there is one; a ValueError if it is of another recipe."""
        path = self.out / STATE
        if not path.is_file():
            return
        moments: dict[int, dict[str, Tensor]] = defaultdict(dict)
        with safe_open(path, framework="pt") as file, torch.no_grad():
            said = file.metadata()
            if said["recipe"] != json.dumps(asdict(self.recipe)):
                raise ValueError(f"{path} is of another recipe; give another --out, or delete {self.out}")
            for name, weight in self.weights.items():
                weight.copy_(file.get_tensor(f"weights/{name}"))
            for key in file.keys():  # noqa: SIM118 (no mapping)
                if key.startswith("0/"):  # what the optimizer remembers of its n-th weight
                    _, number, name = key.split("/")
                    moments[int(number)][name] = file.get_tensor(key)
        self.optimizer.load_state_dict(self.optimizer.state_dict() | {"state": moments})
        self.at = json.loads(said["state"])

    def save(self) -> None:
        """Write a checkpoint."""
        tensors = {f"weights/{name}": weight.detach() for name, weight in self.weights.items()}
        for number, moments in self.optimizer.state_dict()["state"].items():
            tensors |= {f"0/{number}/{name}": torch.as_tensor(value) for name, value in moments.items()}
        said = {"recipe": json.dumps(asdict(self.recipe)), "state": json.dumps(self.at)}
        whole = {name: value.cpu().contiguous() for name, value in tensors.items()}
        write_whole(self.out / STATE, save(whole, said))

    def run(self) -> None:
        """Train from the folder's checkpoint to the end, and write ``model``."""
        self.out.mkdir(parents=True, exist_ok=True)
        with exclusive(self.out):
            self.resume()
            told: Told = defaultdict(list)
            begun = saved = logged = time.monotonic()
            first, tokens, seconds = self.done, self.at["tokens"], self.at["seconds"]
            while self.done < 1:
                started = time.process_time()
                for kind, answers in self.step().items():
                    told[kind] += answers
                self.at["seconds"] += time.process_time() - started
                last, now = self.done >= 1, time.monotonic()
                if last or now - logged >= LOG_SECONDS:
                    speed = round((self.at["tokens"] - tokens) / (self.at["seconds"] - seconds))
                    left = (1 - self.done) * (now - begun) / (self.done - first) / 3600
                    self.log({"tokens_a_second": speed, "hours_left": round(left, 2)}, told)
                    told, logged = defaultdict(list), now
                if last or now - saved >= SAVE_SECONDS:
                    self.save()
                    saved = now
            self.write(self.out / "model")

    def log(self, entry: dict[str, Any], told: Told) -> None:
        """Add a line to the log."""
        entry = {"step": self.at["step"], "tokens": self.at["tokens"]} | entry
        for name, place, digits in (("loss", 0, 4), ("right", 1, 3)):
            entry[name] = {
                n: round(sum(a[place] for a in each) / len(each), digits) for n, each in sorted(told.items())
            }
        line = json.dumps(entry | {"answers": {name: len(each) for name, each in sorted(told.items())}})
        print(line, flush=True)
        with (self.out / "log.jsonl").open("a", encoding="utf-8") as log:
            log.write(line + "\n")
