"""Progress on stderr: a bar in a terminal, a plain line every 30 seconds elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

PLAIN_SECONDS = 30.0


class Progress:
    """How far a long command is. Use it as a context manager, so that the bar ends with the work.

    Parameters
    ----------
    unit : str
        What is counted, in the plural; empty for stages, which no sum is told of.
    total : int
        How many there are, where `step` counts them.
    quiet : bool
        Print nothing.
    stream : text file, optional
        Default: standard error.
    clock : callable, optional
        Seconds, monotonic.
    """

    def __init__(
        self,
        unit: str,
        total: int = 0,
        *,
        quiet: bool = False,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.unit, self.total, self.quiet = unit, total, quiet
        self.done = self.failed = 0
        self._stream, self._clock = stream or sys.stderr, clock
        self._start = self._printed = clock()
        self._live = self._stream.isatty() and not quiet
        self._bar: Any = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.close(summary=kind is None)

    def step(self, *, failed: bool = False, text: str = "") -> None:
        """Count one; ``text`` says what is being done."""
        self.failed += failed
        self.update(self.done + 1, self.total, text)

    def update(self, done: int, total: int, text: str = "") -> None:
        """Show that ``done`` of ``total`` are done, and how long the rest will take at this rate."""
        self.done, self.total = done, total
        rate = done / max(self._clock() - self._start, 1e-9)
        left = clock_text((total - done) / rate if rate else 0.0)
        self._show(f"{done:,}/{total:,} {self._counted()}, {rate:,.1f}/s, {left} left  {text}")

    def stage(self, name: str, done: int, total: int) -> None:
        """Show how far one stage of the work is."""
        self.done, self.total = done, total
        self._show(f"{name} {done:,}/{total:,}, {clock_text(self._clock() - self._start)}")

    def note(self, text: str) -> None:
        """Print a line of its own, above the bar."""
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False, soft_wrap=True)
        elif not self.quiet:
            print(text, file=self._stream, flush=True)

    def close(self, *, summary: bool = True) -> None:
        """End the bar and, with ``summary``, print how many were done in what time."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
        if summary and self.unit:
            seconds = self._clock() - self._start
            rate = self.done / max(seconds, 1e-9)
            self.note(f"{self.done:,} {self._counted()} in {clock_text(seconds)} ({rate:,.1f}/s)")

    def _counted(self) -> str:
        return self.unit + (f", {self.failed:,} failed" if self.failed else "")

    def _show(self, line: str) -> None:
        now = self._clock()
        if self._live:
            if self._bar is None:
                self._bar = _new_bar(self._stream)
                self._bar.start()
            self._bar.update(self._bar.task_ids[0], completed=self.done, total=self.total, line=line)
        elif not self.quiet and now - self._printed >= PLAIN_SECONDS:
            self._printed = now
            print(line.rstrip(), file=self._stream, flush=True)


def _new_bar(stream: TextIO) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as RichProgress
    from rich.table import Column

    text = TextColumn("{task.fields[line]}", markup=False, table_column=Column(no_wrap=True))
    bar = RichProgress(BarColumn(bar_width=20), text, console=Console(file=stream), transient=True)
    bar.add_task("", total=None, line="")
    return bar


def clock_text(seconds: float) -> str:
    """Return a duration as ``42 s``, ``3 min 05 s`` or ``2 h 10 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
