"""Parallel questions reworded by a language model: what to ask it, and whether its answer still asks the same."""

from .check import rewording_prompt, sub_questions, why_refused

__all__ = ["rewording_prompt", "sub_questions", "why_refused"]
