"""Episodes in which every rule of the proof is asked for, and found: what supervised training on searches reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ruleworld_data.environments import EnvConfig, Episode, place_of
from ruleworld_data.prompts import Template
from ruleworld_data.questions import training_text

from .base.documents import request_text

Row = dict[str, Any]


def golden_episodes(
    config: EnvConfig, indexes: Iterator[int], tokenizer: Any, template: Template
) -> Iterator[Row]:
    """Yield golden episodes, in the model's own language, of the instances in which every search finds its rule.

    Parameters
    ----------
    config : EnvConfig
        With a search tool, in a form that the model's requests are written in: ``nl`` or ``fol``.
    indexes : iterator of int
    tokenizer : PreTrainedTokenizerBase
    template : Template
        The model's, with ``request``.

    Yields
    ------
    dict
        ``input_ids``, and ``completion_mask``: 1 where the model is to write the token.
    """
    for index in indexes:
        parts = _parts(config, index, template)
        if parts is None:
            continue
        parts.append((tokenizer.eos_token, 1))
        row: Row = {"input_ids": [], "completion_mask": []}
        for text, own in parts:
            ids = tokenizer(text, add_special_tokens=False)["input_ids"]
            row["input_ids"] += ids
            row["completion_mask"] += [own] * len(ids)
        yield row


def _parts(config: EnvConfig, index: int, template: Template) -> list[tuple[str, int]] | None:
    """Return what is said and who says it; None if a search does not find its rule."""
    world, _, row = place_of(config, index)
    rules = {rule["id"]: rule for rule in world.rules.take(row["gold_rule_ids"]).to_pylist()}
    episode = Episode.at(config, index)
    asked = template.render("answer_without_rules", config.form, row["question"], ()).text
    parts, mark = [(asked, 0)], "".join(template.remove)
    steps = training_text(row, config.form, search_token=None).splitlines(keepends=True)  # type: ignore[arg-type]
    for step, text in zip(row["steps"], steps[:-1], strict=True):
        for rule in (rules[each] for each in step["rule_ids"]):
            request = request_text(rule, config.form)  # type: ignore[arg-type]
            found = episode.search(request)
            if rule[config.form] not in found.splitlines():
                return None
            parts += [(f"{template.request}{request}\n", 1), (f"{found}\n\n", 0)]
        parts.append((mark + text, 1))
    return [*parts, (steps[-1], 1)]
