"""Instances: prompt, answer and metadata of one index. A function of configuration and index, with no state."""

from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

from .._lazy import read_toml
from ..prompts import Template, answer_template, with_refusal
from ..questions import training_text
from ..scoring import SCORER_VERSION
from ..spec import check_count, check_kind
from ..text import parse_state
from .config import EnvConfig
from .worlds import place_of

SCHEMA = f"ruleworld-environment/2 scorer/{SCORER_VERSION}"
"""What a metadata record was written by: this format, and the scorer's version; that of the data is an option."""


class Instance(NamedTuple):
    """One question as a model is asked it.

    Attributes
    ----------
    prompt : str
        With the rules of the pool in it, or how to search them.
    answer : str
        A perfect answer: one line per step of the proof, and the boxed answers.
    metadata : dict
        Plain JSON; all that `score` and `Episode` need, so that both work in another process.
    """

    prompt: str
    answer: str
    metadata: dict[str, Any]


def instance(config: EnvConfig, index: int) -> Instance:
    """Return one instance of an environment.

    Parameters
    ----------
    config : EnvConfig
    index : int
        From 0 on, without end. Neighbours share a world, and its worlds are kept: orders that stay near each other are
        fast.

    Raises
    ------
    ValueError
        If the index is not a whole number from 0 on, or the configuration asks for more than a world has.
    """
    check_kind("config", config, EnvConfig, "EnvConfig(('multi_hop_3',))")
    check_count("index", index)
    world, subtask, row = place_of(config, index)
    metadata = {
        "schema": SCHEMA,
        "config": config.to_dict(),
        "index": index,
        "id": f"{world.world_id}-{row['id']}",
        "subtask": subtask,
        "question": row["question"],
        "answers": row["answers"],
        "conclusions": [list(_conclusion(step["state"])) for step in row["steps"]],
        "gold_rule_ids": row["gold_rule_ids"],
        "facts": row["facts"],
        "queries": row["queries"],
    }
    question = with_refusal(row["question"], subtask)
    if config.access == "prompt":
        pool = world.pool(row, config)
        rules = world.texts(config.form)[pool].tolist()
        prompt = answer_template(config.version).render("answer", config.form, question, rules)
    else:
        template, how = search_template(config.version, config.access)
        prompt = template.render("search", config.form, question, [how])
    answer = training_text(row, config.form, search_token=None)
    return Instance(prompt.text, answer, metadata)


@lru_cache(maxsize=8)
def search_template(version: str, access: str) -> tuple[Template, str]:
    """Return the prompt for rules that are searched, with the conventions of the data, and how a search is written."""
    text = read_toml(__package__, "search.toml")
    answer = answer_template(version)
    told = {
        form: whole[whole.index("How to use them:") :] for form, whole in answer.sections["answer"].items()
    }
    sections = {"search": {form: text["head"] + rest for form, rest in told.items()}}
    return replace(answer, name="search", sections=sections), text[access]


@lru_cache(maxsize=65_536)
def _conclusion(state: str) -> tuple[str, ...]:
    """Return what a step concludes: kind, operator or "", number or "", and the words of its term."""
    fact = parse_state(state)
    number = "" if fact.number is None else str(fact.number)
    return (fact.kind, fact.operator or "", number, *fact.term.replace("-", " ").split())
