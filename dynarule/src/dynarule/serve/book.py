"""Rules that are served under a name, and may change while they are."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..bank.bank import RuleBank
from ..bank.sources import Rules
from ..bank.storage import changed_bank, is_bank


@dataclass
class Book:
    """Rules that are served under a name.

    Attributes
    ----------
    name : str
        What requests call it.
    bank : RuleBank
        Its rules, in memory.
    folder : Path or None
        The bank folder in which a change is written before it is acknowledged; where it holds no bank, the rules
        cannot be changed.
    encoder : callable or None
        Opens the encoder of rules that are added.
    """

    name: str
    bank: RuleBank
    folder: Path | None = None
    encoder: Callable[[], Any] | None = None
    _held: RuleBank | None = field(default=None, init=False, repr=False)  # as it is in the folder

    def put(self, rules: Rules, *, replace: bool) -> None:
        """Add rules, or replace those of the same ids, on disk and then in memory; errors are those of `RuleBank`."""
        with self._changed() as held:
            encode: Any = self.encoder and self.encoder()
            made_with = self.bank.encoder and encode.fingerprint  # a bank may not know its encoder
            more = RuleBank.from_rules(rules, encode, encoder=made_with)
            (held.replace if replace else held.add)(more)
        own = more.to(self.bank.device, self.bank.dtype)
        (self.bank.replace if replace else self.bank.add)(own)

    def remove(self, ids: Sequence[str]) -> None:
        """Remove rules, on disk and then in memory; `KeyError` for an id that is not there."""
        with self._changed() as held:
            held.remove(list(ids))
        self.bank.remove(list(ids))

    @contextmanager
    def _changed(self) -> Iterator[RuleBank]:
        if self.folder is None or not is_bank(self.folder):
            raise ValueError(
                f"the rules of {self.name!r} come from a file, so a change would be lost; serve a bank: dynarule bank "
                "build RULES --out BANK"
            )
        with changed_bank(self.folder, self._held) as held:
            if (held.ids, held.texts) != (self.bank.ids, self.bank.texts):
                raise ValueError(
                    f"the rules in {self.folder} were changed by another process, and are not those that are served; "
                    "start the server anew"
                )
            self._held = held
            yield held
