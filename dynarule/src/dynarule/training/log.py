"""What a run says while it trains: one line per log, on stderr."""

from __future__ import annotations

import sys
import time
from typing import Any

from transformers import TrainerCallback

_NAMES = {
    "loss": "loss",
    "lm_loss": "lm",
    "retrieval_loss": "retrieval",
    "reading_loss": "reading",
    "recall_at_1": "recall@1",
    "eval_lm_loss": "lm",
    "eval_retrieval_loss": "retrieval",
    "eval_recall_at_1": "recall@1",
}


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
            _say(f"going on after step {state.global_step} of {state.max_steps}")

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Write a line, in the first process only."""
        held_out = any(name.startswith("eval_") for name in logs)
        parts = [f"{said} {logs[name]:.3f}" for name, said in _NAMES.items() if name in logs]
        if not parts or not state.is_world_process_zero:
            return
        if not held_out:
            done = max(1, state.global_step - self._first)
            left = (time.monotonic() - self._start) / done * (state.max_steps - state.global_step)
            parts.append(f"left {int(left // 60)}:{int(left % 60):02d}")
        where = f"step {state.global_step}/{state.max_steps}"
        _say(f"{where}  {'held out: ' if held_out else ''}{'  '.join(parts)}")


def _say(line: str) -> None:
    print(f"dynarule: {line}", file=sys.stderr, flush=True)
