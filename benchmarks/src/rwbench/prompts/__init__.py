"""Prompt templates of the methods: that for answers is `ruleworld_data.prompts`'s, here are IRCoT and ReAct."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files

from ruleworld_data.prompts import Prompt, Template, answer_template, parse_template, read_template

__all__ = ["DEFAULT", "Prompt", "Template", "read_template", "shipped_template"]

DEFAULT = "answer"


@lru_cache(maxsize=8)
def shipped_template(name: str = DEFAULT) -> Template:
    """Return a template of the packages: ``answer``, ``ircot`` or ``react``; its id is part of every spec that asks."""
    if name == DEFAULT:
        return answer_template()
    return parse_template(files(__name__).joinpath(f"{name}.toml").read_bytes(), f"{name}.toml")
