"""What a training batch draws: questions by family, and a pool of rules around the gold ones.

Everything random is a function of a seed and a place in the run, so a resumed run draws the same batches.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset


class Rows(Protocol):
    """A sequence of rows: ``datasets.Dataset`` and ``list[dict]`` are."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


def keyed(*key: int) -> np.random.Generator:
    """Return random numbers that depend on a key alone."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(key)))


class RulePools:
    """Draws pools: gold rules, hard negatives with a premise of theirs, random others; shuffled, each once.

    Parameters
    ----------
    count : int
        Rules in the table.
    premises : sequence or None
        One hashable premise per rule. None: no hard negatives.
    hard_share : float
        Share of the places left by gold that goes to rules with a gold rule's premise, as far as there are any.
    """

    def __init__(
        self, count: int, premises: Sequence[Any] | None = None, hard_share: float = 0.1, seed: int = 0
    ) -> None:
        if not 0 <= hard_share <= 1:
            raise ValueError(f"hard_share must be between 0 and 1, got {hard_share!r}")
        if premises is not None and len(premises) != count:
            raise ValueError(f"{count} rules but {len(premises)} premises")
        self.count, self.hard_share, self.seed = count, hard_share, seed
        self._premises = premises
        self._same: dict[Any, list[int]] = {}
        for row, premise in enumerate(premises or ()):
            self._same.setdefault(premise, []).append(row)

    def draw(self, gold: Iterable[int], size: int | tuple[int, int], key: int) -> NDArray[np.int64]:
        """Return rows of the rule table: M or its range of them, the gold ones among them, by the place in the run.

        A table of fewer rules gives them all; a batch with more gold rules than places is refused (ValueError).
        """
        random = keyed(self.seed, 1, key)
        chosen = list(dict.fromkeys(map(int, gold)))
        if isinstance(size, int):
            wanted = size
        else:  # a drawn size gives way to the gold rules
            drawn = int(random.integers(size[0], size[1], endpoint=True))
            wanted = min(max(drawn, len(chosen)), size[1])
        wanted = min(wanted, self.count)
        if len(chosen) > wanted:
            raise ValueError(
                f"a batch has {len(chosen)} gold rules but its pool {wanted} places; raise pool_size or use smaller "
                "batches"
            )
        taken = np.zeros(self.count, dtype=bool)
        taken[chosen] = True
        premises = () if self._premises is None else dict.fromkeys(self._premises[rule] for rule in chosen)
        hard = [row for premise in premises for row in self._same[premise] if not taken[row]]
        some = min(len(hard), round(self.hard_share * (wanted - len(chosen))))
        picked = random.permutation(np.array(hard, dtype=np.int64))[:some]
        taken[picked] = True
        others = random.choice(np.flatnonzero(~taken), wanted - len(chosen) - some, replace=False)
        return random.permutation(np.concatenate([np.array(chosen, dtype=np.int64), picked, others]))


class TrainingStream(Dataset):
    """The rows of a run in the order of training: item n is (n, the n-th row drawn).

    Every block of ``block`` draws has each family's share to within one row (exactly 3, 4 and 3 of 10 with the
    paper's mix). A family's rows come in a random order, all of them before any comes again.

    Parameters
    ----------
    rows : datasets.Dataset or sequence of dict
        The questions.
    draws : int
        Length of the run in rows: steps x accumulation x batch x processes.
    mix : mapping or None
        Share of each family; None: every row alike.
    block : int
        Batch size, or all batches of a step if they are sorted.
    by_length : bool
        Put each block's rows in the order of their steps and words, so that batches of alike ones pad little.

    Raises
    ------
    ValueError
        If there are no rows, or families of the rows and of the mix differ.
    """

    def __init__(
        self,
        rows: Rows,
        draws: int,
        mix: Mapping[str, float] | None = None,
        block: int = 10,
        seed: int = 0,
        by_length: bool = False,
    ) -> None:
        if not len(rows):
            raise ValueError("there are no questions to train on")
        self.rows = rows
        shares, family = ({"": 1.0}, [""] * len(rows)) if mix is None else (mix, families(rows))
        if set(shares) != set(family) or min(shares.values()) <= 0:
            raise ValueError(
                f"the mix must give a positive share to each family of the questions and to no other: it has "
                f"{sorted(shares.items())}, the questions are of {sorted(set(family))}; pass a mix of these, or "
                "mix=None"
            )
        self.order = _draw_order(family, shares, draws, block, seed)
        if by_length:

            def length(index: int) -> tuple[int, int]:
                return len(rows[int(index)]["steps"]), len(rows[int(index)]["question"])

            for start in range(0, draws, block):
                self.order[start : start + block] = sorted(self.order[start : start + block], key=length)

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, number: int) -> tuple[int, Any]:
        return number, self.rows[int(self.order[number])]


def families(rows: Rows) -> list[str]:
    """Return each row's family: column ``family``, or ``subtask`` without its number (multi_hop_3: multi_hop)."""
    columns = list(getattr(rows, "column_names", None) or (rows[0] if len(rows) else {}))
    name = next((column for column in ("family", "subtask") if column in columns), None)
    if name is None:
        raise ValueError(
            f"to mix families, rows need a column family or subtask, got {sorted(columns)}; or pass mix=None"
        )
    # A dataset's column is read at once, without the others of its rows.
    whole = hasattr(rows, "column_names")
    values = rows[name] if whole else [row[name] for row in rows]  # type: ignore[index,attr-defined]
    return [str(value) if name == "family" else str(value).rstrip("_0123456789") for value in values]


def _draw_order(
    family: Sequence[str], mix: Mapping[str, float], draws: int, block: int, seed: int
) -> NDArray[np.int64]:
    """Return row numbers in the order of training; a longer run starts with a shorter one's."""
    names = list(mix)
    edges = np.cumsum([mix[name] for name in names]) / sum(mix.values())
    blocks = -(-draws // block)
    # Systematic sampling: one point in each of ``block`` equal slices, all shifted alike.
    shift = np.array([keyed(seed, 2, i).random() for i in range(blocks)])
    points = (np.arange(block) + shift[:, None]) / block
    which = np.searchsorted(edges - 1e-9, points, side="right").clip(max=len(names) - 1)
    for i in range(blocks):
        which[i] = keyed(seed, 3, i).permutation(which[i])
    which = which.reshape(-1)[:draws]
    labels = np.array([names.index(name) for name in family])
    order = np.empty(draws, dtype=np.int64)
    for f in range(len(names)):
        members, places = np.flatnonzero(labels == f), np.flatnonzero(which == f)
        passes = -(-len(places) // len(members))
        shuffled = [keyed(seed, 4, f, i).permutation(members) for i in range(passes)]
        order[places] = np.concatenate([*shuffled, members[:0]])[: len(places)]
    return order
