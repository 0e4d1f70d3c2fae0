"""Amounts that a premise bounds ("more than 28 kilograms"), and whether those of a text are within."""

import re
from typing import NamedTuple

from .lexicon import patterns

_AMOUNT = patterns("amounts").amount


class Amount(NamedTuple):
    """From which number to which, and of what; ``ends`` says whether these two are within."""

    low: float
    high: float
    unit: str
    ends: bool = True


def amounts_of(text: str) -> list[Amount]:
    """Return the amounts of a text; one that nothing bounds goes from a number to the same.

    Examples
    --------
    >>> amounts_of("Dogs of more than 12 kilograms")
    [Amount(low=12.0, high=inf, unit='kilogram', ends=False)]
    """
    found = []
    for match in _AMOUNT.finditer(text):
        low = _number(match["low"])
        high = _number(match["high"] or match["low"])
        below, most, above, least = (match[name] for name in ("below", "most", "above", "least"))
        if below or most or match["less"]:
            low = -float("inf")
        elif above or least or match["more"]:
            high = float("inf")
        found.append(Amount(low, high, match["unit"].lower().removesuffix("s"), not (below or above)))
    return found


def fit(text: str, bound: Amount) -> int:
    """Return 1 if an amount of a text is within a bound, -1 if none is, 0 if the text says none of its unit.

    What a text itself bounds is left out: whether it means the same, its words say.

    Examples
    --------
    >>> over = amounts_of("over 28 kg")[0]
    >>> [fit(text, over) for text in ("It weighs 30 kg.", "It weighs 9 kg.", "It is 30 years old.")]
    [1, -1, 0]
    """
    said = [number for number, high, unit, _ in amounts_of(text) if number == high and unit == bound.unit]
    within = [bound.low < n < bound.high or (bound.ends and n in bound[:2]) for n in said]
    return (1 if any(within) else -1) if within else 0


def _number(text: str) -> float:
    return float(re.sub(r",(?=\d{3}\b)", "", text).replace(",", "."))
