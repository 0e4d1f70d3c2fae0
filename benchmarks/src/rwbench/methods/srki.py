"""SR-KI: the best rules are selected once, when the question is read (Yu et al. 2025)."""

from __future__ import annotations

from . import component
from .memory import Memory


@component
class SRKI(Memory):
    """Rules in every layer, the best of them kept when the question is read."""

    name = "srki"
    title = "SR-KI"
