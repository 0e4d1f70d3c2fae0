"""The log of a training on stderr: a line per entry."""

import sys
import time
from typing import Any

from transformers import TrainerCallback

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
