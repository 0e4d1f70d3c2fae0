"""The folder of a training run, from where it goes on, and its log on stderr: a line per entry."""

import hashlib
import json
import shutil
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor
from transformers import TrainerCallback

from .._files import refuse_link, write_whole
from ..adapter import LEFT_OPEN, NOTED
from ..bank.bank import RuleBank
from ..config import DynaRuleConfig
from .data import Encoder
from .pools import Rows

RECIPE = "recipe.json"
STATE = "trainer_state.json"  # the Trainer writes it last


def run_settings(
    recipe: Any,
    config: DynaRuleConfig,
    bank: RuleBank,
    questions: Sequence[Rows],
    encoder: Encoder,
    frozen: Iterable[Tensor],
) -> dict[str, Any]:
    """Return what makes a run the same one, as JSON values: recipe, adapter, base model, data.

    Of the data it hashes all rules, and about a thousand of each table of questions with their tokens; of the adapter
    the weights that the run reads and does not train.
    """
    digest = hashlib.sha256(json.dumps([bank.ids, bank.texts]).encode())
    for rows in questions:
        some = [rows[place] for place in range(0, len(rows), max(1, len(rows) // 1_000))]
        told = [len(rows), [[dict(row), encoder(row).ids] for row in some]]
        digest.update(json.dumps(told, default=str).encode())
    own = {name: value for name, value in config.to_dict().items() if name not in {*NOTED, *LEFT_OPEN}}
    weights = hashlib.sha256()
    for tensor in frozen:
        weights.update(tensor.detach().float().cpu().numpy().tobytes())
    fixed = {"encoder": bank.encoder, "adapter": own, "base": config.base, "data": digest.hexdigest()[:16]}
    return asdict(recipe) | fixed | {"frozen": weights.hexdigest()[:16]}


def claim(folder: Path, settings: Mapping[str, Any], resume: bool, write: bool = True) -> str | None:
    """Take a folder, held by `dynarule._files.exclusive`, for a run; return the checkpoint to go on from, or None.

    ``settings`` make a run the same one: written to ``recipe.json``, and compared on resuming (ValueError). A new run
    never shares a folder with older checkpoints (FileExistsError). Of several processes one may ``write``.
    """
    for path in folder.glob("checkpoint-*"):
        refuse_link(path)
    checkpoints = _checkpoints(folder)
    whole = [checkpoint for checkpoint in checkpoints if _is_whole(checkpoint)]
    if checkpoints and not resume:
        raise FileExistsError(
            f"{folder} holds checkpoints of an earlier run, the newest {checkpoints[0].name}; resume it (--resume), or "
            "choose a new folder"
        )
    if write or whole:
        same_run(folder, settings, begun=bool(whole))
    if write:
        for checkpoint in {*checkpoints} - {*whole}:
            shutil.rmtree(checkpoint)  # the Trainer would count it among those it keeps
    return str(whole[0]) if whole else None


def same_run(folder: Path, settings: Mapping[str, Any], begun: bool) -> None:
    """Write a run's settings to ``recipe.json``; ValueError if it has begun with others."""
    path, settings = folder / RECIPE, json.loads(json.dumps(settings))  # as a file has them: lists for tuples
    if not begun:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(settings, indent=1) + "\n")
        return
    try:
        started = dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} is damaged ({error}); delete it to resume without the check") from None
    for name, value in settings.items():
        if name in started and started[name] != value:  # an older version's file says less
            raise ValueError(
                f"{folder} was started with {name} {started[name]!r}, now it is {value!r}; resume with the "
                "recipe, the model and the data of the start, or train in a new folder"
            )


def _checkpoints(folder: Path) -> list[Path]:
    steps = {path: path.name.removeprefix("checkpoint-") for path in folder.glob("checkpoint-*")}
    paths = [path for path, step in steps.items() if path.is_dir() and step.isdecimal()]
    return sorted(paths, key=lambda path: int(steps[path]), reverse=True)


def _is_whole(checkpoint: Path) -> bool:
    try:
        json.loads((checkpoint / STATE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return True


_NAMES = {"loss": "loss", "lm_loss": "lm", "retrieval_loss": "retrieval", "recall_at_1": "recall@1"}


class LogLines(TrainerCallback):
    """Writes each log as a line, with the time that is left.

    Examples
    --------
    >>> train(model, tokenizer, adapter, rows, bank, recipe, "stage2", callbacks=[LogLines()])  # doctest: +SKIP
    """

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start the clock."""
        self._start, self._first = time.monotonic(), state.global_step
        if state.is_world_process_zero and state.global_step:
            _write(f"going on after step {state.global_step} of {state.max_steps}")

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Write a line, in the first process only."""
        held_out = any(name.startswith("eval_") for name in logs)
        values = {name.removeprefix("eval_"): value for name, value in logs.items() if name != "eval_loss"}
        parts = [f"{shown} {values[name]:.3f}" for name, shown in _NAMES.items() if name in values]
        if not parts or not state.is_world_process_zero:
            return
        if held_out:
            parts[0] = f"held out: {parts[0]}"
        else:
            done = max(1, state.global_step - self._first)
            left = (time.monotonic() - self._start) / done * (state.max_steps - state.global_step)
            parts.append(f"left {int(left // 60)}:{int(left % 60):02d}")
        _write(f"step {state.global_step}/{state.max_steps}  {'  '.join(parts)}")


def _write(line: str) -> None:
    print(f"dynarule: {line}", file=sys.stderr, flush=True)
