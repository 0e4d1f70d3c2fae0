"""SR-KI: the best rules are selected once, when the question is read (Yu et al. 2025)."""

from __future__ import annotations

from . import component
from .memory import Memory


@component
class SRKI(Memory):
    """The best rules kept when the question is read; the paper has them in every layer."""

    name = "srki"
    title = "SR-KI"
