"""Progress on stderr: one line that is rewritten in a terminal, a plain line every 30 seconds elsewhere."""

from __future__ import annotations

import sys
import time

PLAIN_SECONDS = 30.0


class Progress:
    """A progress line.

    Parameters
    ----------
    unit : str
        What is counted.
    quiet : bool
        Print nothing.
    """

    def __init__(self, unit: str, *, quiet: bool = False) -> None:
        self.unit, self.quiet = unit, quiet
        self.started = self.printed = time.monotonic()
        self.live = sys.stderr.isatty()
        self.width = 0

    def update(self, done: int, total: int, note: str = "") -> None:
        """Show how far the work is, and how long the rest will take at this rate."""
        elapsed = time.monotonic() - self.started
        left = elapsed / done * (total - done) if done else 0.0
        self.message(
            f"{done}/{total} {self.unit}, {elapsed:.0f} s, {left:.0f} s left  {note}", last=done == total
        )

    def stage(self, name: str, done: int, total: int) -> None:
        """Show how far one stage of the work is."""
        self.message(f"{name} {done}/{total}, {time.monotonic() - self.started:.0f} s")

    def message(self, text: str, *, last: bool = False) -> None:
        """Show a text."""
        now = time.monotonic()
        if self.quiet:
            return
        if self.live:
            sys.stderr.write("\r" + text[:118].ljust(self.width))
            self.width = min(len(text), 118)
            if last:
                self.close()
        elif last or now - self.printed >= PLAIN_SECONDS:
            sys.stderr.write(text.rstrip() + "\n")
            self.printed = now
        sys.stderr.flush()

    def close(self) -> None:
        """End the line."""
        if self.live and self.width and not self.quiet:
            sys.stderr.write("\n")
            self.width = 0
