"""Progress on stderr by tqdm: a bar in a terminal, a line every 30 seconds elsewhere."""

import sys
from typing import Self

from tqdm import tqdm

PLAIN_SECONDS = 30.0


class Progress:
    """How far a long command is. Use it as a context manager, so that the bar ends with the work.

    Parameters
    ----------
    unit : str
        What is counted, in the plural; empty for stages.
    total : int
        How many there are, where `step` counts them.
    """

    def __init__(self, unit: str, total: int = 0) -> None:
        self.failed, live = 0, sys.stderr.isatty()
        self._bar = tqdm(
            total=total or None,
            unit=f" {unit}" if unit else "",
            mininterval=0.1 if live else PLAIN_SECONDS,
            maxinterval=10 if live else PLAIN_SECONDS,
            leave=bool(unit),
            dynamic_ncols=True,
        )
        self.close = self._bar.close

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def step(self, *, failed: bool = False, text: str = "") -> None:
        """Count one; ``text`` says what is being done."""
        self.failed += failed
        note = ", ".join(filter(None, [f"{self.failed:,} failed" if self.failed else "", text]))
        self._bar.set_postfix_str(note, refresh=False)
        self._bar.update()

    def update(self, done: int, total: int, text: str = "") -> None:
        """Show that ``done`` of ``total`` are done; with another total a new stage begins."""
        if total != self._bar.total:
            self._bar.reset(total)
        self._bar.set_postfix_str(text, refresh=False)
        self._bar.update(done - self._bar.n)
