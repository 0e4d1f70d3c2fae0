"""One progress line on stderr: rewritten in place on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from typing import TextIO

REDRAW_SECONDS = 0.2
PLAIN_SECONDS = 30.0


class NoteHandler(logging.Handler):
    """Shows log messages above the progress line."""

    def __init__(self, progress: Progress) -> None:
        super().__init__(logging.INFO)
        self.progress = progress

    def emit(self, record: logging.LogRecord) -> None:
        """Print one message."""
        self.progress.note(record.getMessage())


class Progress:
    """Counts samples over all runs of a command.

    Parameters
    ----------
    total : int
        Samples still to do.
    stream : text file, optional
        Default: standard error.
    clock : callable, optional
        Seconds, monotonic.
    """

    def __init__(
        self, total: int, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.total = total
        self.done = 0
        self.failed = 0
        self._stream = sys.stderr if stream is None else stream
        self._clock = clock
        self._start = self._last = clock()
        self._live = self._stream.isatty()
        self._width = 0

    def step(self, failed: bool = False, text: str = "") -> None:
        """Count one sample and redraw if it is time; ``text`` says what is being run."""
        self.done += 1
        self.failed += failed
        now = self._clock()
        if now - self._last >= (REDRAW_SECONDS if self._live else PLAIN_SECONDS):
            self._last = now
            self._draw(self.line(now, text))

    def line(self, now: float, text: str = "") -> str:
        """Return the progress line at a moment."""
        rate = self.done / max(now - self._start, 1e-9)
        left = (self.total - self.done) / rate if rate else 0.0
        failures = f", {self.failed} failed" if self.failed else ""
        tail = f"  {text}" if text else ""
        return f"{self.done:,}/{self.total:,} samples{failures}, {rate:,.1f}/s, {clock_text(left)} left{tail}"

    def note(self, text: str) -> None:
        """Print a line of its own above the progress line."""
        self._clear()
        print(text, file=self._stream, flush=True)

    def close(self) -> None:
        """Print the final count."""
        seconds = self._clock() - self._start
        failures = f", {self.failed} failed" if self.failed else ""
        rate = self.done / max(seconds, 1e-9)
        self.note(f"{self.done:,} samples{failures} in {clock_text(seconds)} ({rate:,.1f}/s)")

    def _draw(self, line: str) -> None:
        if self._live:
            self._clear()
            self._stream.write(line)
            self._stream.flush()
            self._width = len(line)
        else:
            print(line, file=self._stream, flush=True)

    def _clear(self) -> None:
        if self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._width = 0


def clock_text(seconds: float) -> str:
    """Return a duration as ``42 s``, ``3 min 05 s`` or ``2 h 10 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
