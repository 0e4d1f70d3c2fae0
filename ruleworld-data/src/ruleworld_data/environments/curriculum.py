"""A curriculum that keeps the success rate in a band by turning one dial at a time.

Deterministic: the same rewards in the same order give the same configurations, and a state written as JSON goes on as
if nothing had stopped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..spec import Dials, check_count, check_name
from .config import EnvConfig
from .instances import Instance, instance

__all__ = ["LADDERS", "AdaptiveCurriculum"]

LADDERS: dict[str, tuple[Any, ...]] = {
    "hops": (1, 2, 3, 4, 5, 6),
    "pool_size": (30, 100, 300, 1_000),
    "crowd": (None, 4, 6, 8),
    "parts": (1, 2, 3, 4),
    "form": ("nl", "fol"),
}
"""Dials that a curriculum turns, from easy to hard; ``parts`` adds parallel questions of so many parts."""
_STATE = ("history", "turn", "served", "tried", "solved")


class AdaptiveCurriculum:
    """Instances whose difficulty follows the rewards.

    Parameters
    ----------
    base : EnvConfig
        What no dial of the ladders says; its seed names the sequence.
    ladders : mapping
        Dial -> its values, from easy to hard; names are those of `LADDERS`.
    band : pair of float
        Mean rewards that are kept: below the first a dial is turned back, above the second one is turned up.
    window : int
        Rewards between two decisions.

    Raises
    ------
    ValueError
        For an unknown dial, an empty ladder or a bad band.
    """

    def __init__(
        self,
        base: EnvConfig | None = None,
        ladders: Mapping[str, Sequence[Any]] = LADDERS,
        band: tuple[float, float] = (0.4, 0.7),
        window: int = 64,
    ) -> None:
        self.base = base or EnvConfig()
        self.ladders = {check_name("dial", name, LADDERS): tuple(values) for name, values in ladders.items()}
        if not self.ladders or not all(self.ladders.values()):
            raise ValueError(f"every ladder needs a value, got {dict(ladders)!r}")
        low, high = band
        if not 0 <= low < high <= 1:
            raise ValueError(f"band must be two rewards with 0 <= low < high <= 1, got {band!r}")
        self.band, self.window = (low, high), check_count("window", window, least=1)
        self.history: list[str] = []  # dials in the order in which they were turned up
        self.turn = 0  # which dial is turned up next
        self.served = 0  # the next instance's index
        self.tried = self.solved = 0  # rewards since the last decision, and their sum in millionths

    @property
    def config(self) -> EnvConfig:
        """The configuration now: hops and parts choose sub-tasks, other dials are themselves."""
        return self._config(self.history)

    def _config(self, history: Sequence[str]) -> EnvConfig:
        options = {name: values[history.count(name)] for name, values in self.ladders.items()}
        hops, parts, crowd = (options.pop(name, None) for name in ("hops", "parts", "crowd"))
        subtasks: tuple[str, ...] = ()
        if hops is not None:
            subtasks += ("single_rule" if hops == 1 else f"multi_hop_{hops}",)
        if parts is not None and parts > 1:
            subtasks += (f"multi_rule_{2 * parts}",)
        if crowd is not None:
            options["dials"] = str(replace(Dials.parse(self.base.dials), crowd=crowd))
        if subtasks:
            options["subtasks"] = subtasks
        return replace(self.base, **options)

    def next(self) -> Instance:
        """Return the next instance, of the configuration now; no index is given twice."""
        self.served += 1
        return instance(self.config, self.served - 1)

    def update(self, rewards: Sequence[float]) -> bool:
        """Take rewards in; at the end of a window a dial may turn.

        Returns
        -------
        bool
            Whether one did. The rewards of a window that ends within the batch all count to it.
        """
        for reward in rewards:
            if not 0 <= reward <= 1:
                raise ValueError(f"rewards must be from 0 to 1, got {reward!r}")
        self.tried += len(rewards)
        self.solved += sum(round(reward * 1_000_000) for reward in rewards)
        if self.tried < self.window:
            return False
        mean, self.tried, self.solved = self.solved / self.tried / 1_000_000, 0, 0
        if mean > self.band[1]:
            return self._harder()
        if mean >= self.band[0] or not self.history:
            return False
        self.turn = (list(self.ladders).index(self.history.pop()) + 1) % len(self.ladders)
        return True

    def _harder(self) -> bool:
        """Turn the next dial up that can be, in turns; one that no world satisfies is passed over."""
        names = list(self.ladders)
        for place in ((self.turn + i) % len(names) for i in range(len(names))):
            history = [*self.history, names[place]]
            try:
                self._config(history)
            except (IndexError, ValueError):  # the end of its ladder, or of what a world holds
                continue
            self.history, self.turn = history, (place + 1) % len(names)
            return True
        return False

    def to_dict(self) -> dict[str, Any]:
        """Return all that `from_dict` needs to go on, as JSON holds it."""
        ladders = {name: list(values) for name, values in self.ladders.items()}
        made = {
            "base": self.base.to_dict(),
            "ladders": ladders,
            "band": list(self.band),
            "window": self.window,
        }
        return made | {"state": {name: getattr(self, name) for name in _STATE}}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> AdaptiveCurriculum:
        """Go on from what `to_dict` returned; `ValueError` for anything else."""
        try:
            base, band = EnvConfig.from_dict(values["base"]), tuple(values["band"])
            curriculum = cls(base, values["ladders"], band, values["window"])
            for name in _STATE:
                setattr(curriculum, name, values["state"][name])
            curriculum.history = [check_name("dial", name, curriculum.ladders) for name in curriculum.history]
            _ = curriculum.config
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            raise ValueError(f"not the state of a curriculum ({error}); give what to_dict returned") from None
        return curriculum
