"""What a pretrained model is taught on: lists of rules with several questions each, in RuleWorld's language and plain.

An ingredient is a share of the tokens: worlds at some dials, or plain English, with lists of some length. Worlds are
fresh (`ruleworld_data.fresh`), so no rule or question is the benchmark's but by chance.
"""

import pydoc_data.topics
import random
from contextlib import suppress
from functools import lru_cache
from typing import Any

import numpy as np
from documents import STRICT, Document, Form, Writer, lookalikes, request_text, small_sizes
from network import Tree
from plain import DOMAINS, HELD_OUT
from pydantic.dataclasses import dataclass
from ruleworld_data.fresh import FreshWorld, fresh_world
from ruleworld_data.spec import Dials, WorldSizes, subtasks_of
from wording import KINDS, MORE_KINDS, ask, plain_world

RULES = 300  # fewest of a fresh world
QUESTIONS, OF_EACH = 192, 3  # of each sub-task of a fresh world, and for a list
STEPS_A_WORLD = 8  # of the training, which ask of one world
GATE_CHAPTER = "execmodel"  # the chapter of Python's documentation that the gates read
WINDOW = 256  # tokens of ordinary English
DRAWN = 3  # questions that are drawn for each that is asked: those of a like length are asked together


@dataclass(frozen=True, config=STRICT)
class Ingredient:
    """A part of the mixture."""

    share: float  # of all tokens
    dials: str | None = None  # of the worlds, such as "words=1"; None: plain English
    version: str = "1.2"  # of the worlds' wording
    only: tuple[str, ...] = ()  # beginnings of sub-tasks, or kinds of plain questions; empty: all there are
    fol: float = 0.0  # share of lists in first-order logic
    asked: int = 6  # most questions on a list
    rules: tuple[int, int] = (1, 40)  # fewest and most rules of a list, what questions need aside
    alike: float = 0.5  # share of lists whose other rules are like gold ones
    apart: float = 0.0  # share of lists whose rules are read apart, as token memory reads them
    requests: bool = False  # no list, but before each step a line that asks for its rules
    held_out: bool = False  # the domains that no training has
    english: bool = False  # no rules, but ordinary text (Python's documentation), or a model forgets it


def draw_trees(
    writer: Writer, key: str, step: int, ingredients: dict[str, Ingredient], tokens: int
) -> list[Tree]:
    """Return about so many tokens of trees, a function of the arguments."""
    draw, trees, left = random.Random(f"{key}/{step}"), [], tokens
    names, shares = [*ingredients], [each.share for each in ingredients.values()]
    while left > 0:
        (name,) = draw.choices(names, shares)
        trees.append(draw_tree(writer, draw, f"{key}/{step // STEPS_A_WORLD}", name, ingredients[name]))
        left -= trees[-1].size
    return trees


def draw_tree(writer: Writer, draw: random.Random, key: str, name: str, plan: Ingredient) -> Tree:
    """Return one list of rules with its questions."""
    write = _english if plan.english else _plain if plan.dials is None else _ruleworld
    texts, branches = write(writer, draw, key, plan)
    if texts and plan.apart and draw.random() < plan.apart:
        rules = [writer.line(text) for text in texts]
        return Tree([id for rule in rules for id in rule], branches, name, tuple(map(len, rules)))
    return Tree(writer.rules(texts).ids if texts else [], branches, name)


def _english(
    writer: Writer, draw: random.Random, key: str, plan: Ingredient
) -> tuple[list[str], list[Document]]:
    """Return a window of a chapter, of which every token but the first is predicted."""
    chapters = sorted(pydoc_data.topics.topics.keys() - {GATE_CHAPTER})
    lengths = [len(pydoc_data.topics.topics[name]) for name in chapters]
    text = pydoc_data.topics.topics[draw.choices(chapters, lengths)[0]]
    at = text.find(" ", draw.randrange(max(1, len(text) - 6 * WINDOW)))
    ids = writer.tokenizer(text[at + 1 : at + 6 * WINDOW], add_special_tokens=False)["input_ids"][:WINDOW]
    return [], [Document(ids, [place > 0 for place in range(len(ids))], "english")]


@lru_cache(maxsize=16)
def _world(key: str, dials: str, version: str, subtasks: tuple[str, ...]) -> FreshWorld:
    (seed, number), turned = map(int, key.rsplit("/", 1)), Dials.parse(dials)
    sizes = next(filter(None, (_sizes_with(turned, f"sizes/{key}/{i}") for i in range(99))))
    wanted = dict.fromkeys(subtasks, QUESTIONS)
    return fresh_world(seed, number, wanted, sizes, version=version, dials=turned)


def _sizes_with(dials: Dials, key: str) -> WorldSizes | None:
    """Draw the sizes of a world; none, where they are too small for the dials, some of which leave rules out."""
    sizes = small_sizes(random.Random(key))
    with suppress(ValueError):
        if sum(sizes.turned(dials).rule_counts().values()) * (0.85 if dials.unknown else 1) >= RULES:
            return sizes
    return None


def _ruleworld(
    writer: Writer, draw: random.Random, key: str, plan: Ingredient
) -> tuple[list[str], list[Document]]:
    dials = str(plan.dials)
    subtasks = tuple(s for s in subtasks_of(Dials.parse(dials)) if not plan.only or s.startswith(plan.only))
    world = _world(key, dials, plan.version, subtasks)
    form: Form = "fol" if draw.random() < plan.fol else "nl"
    tables = (table.take(draw.sample(range(QUESTIONS), OF_EACH)) for table in world.questions.values())
    rows = [row for table in tables for row in table.to_pylist()]
    rows = _window(draw, draw.sample(rows, len(rows)), draw.randint(1, plan.asked))
    texts, ids = world.rules.column(form), np.arange(len(world.rules))  # as the rules' own
    if plan.requests:

        def known(name: int) -> tuple[str, str, list[str]]:
            (rule,) = world.rules.slice(name, 1).to_pylist()
            others = np.flatnonzero(lookalikes(world.rules, ids == name))
            return request_text(rule, form), rule[form], texts.take(others).to_pylist()

        return [], [writer.requests(draw, row, form, known) for row in rows]
    gold = np.isin(ids, [i for row in rows for i in row["gold_rule_ids"]])
    near = np.flatnonzero(lookalikes(world.rules, gold)).tolist() if draw.random() < plan.alike else []
    wanted = max(0, draw.randint(*plan.rules) - int(gold.sum()))
    kept = [*np.flatnonzero(gold).tolist(), *draw.sample(near, min(len(near), wanted))]
    rest = np.setdiff1d(ids, kept).tolist()
    kept += draw.sample(rest, max(0, wanted + int(gold.sum()) - len(kept)))
    draw.shuffle(kept)
    return texts.take(kept).to_pylist(), [writer.answer(row, form) for row in rows]


def _plain(
    writer: Writer, draw: random.Random, key: str, plan: Ingredient
) -> tuple[list[str], list[Document]]:
    domain = draw.choice([each for each in DOMAINS if (each.name in HELD_OUT) == plan.held_out])
    kinds = [kind for kind in (*KINDS, *MORE_KINDS) if not plan.only or kind[0] in plan.only]
    if plan.requests:
        kinds = list(KINDS)
    world = plain_world(draw, domain, max(24, plan.rules[1] + 8), 0.15)
    rows = [row for row in (ask(draw, world, kinds) for _ in range(DRAWN * plan.asked)) if row]
    rows = _window(draw, rows, plan.asked)
    if plan.requests:

        def known(rule: int) -> tuple[str, str, list[str]]:
            others = [t for i, t in enumerate(world.texts) if i != rule and world.alike(i, rule)]
            return world.premises[rule], world.texts[rule], others

        return [], [writer.requests(draw, row, "nl", known) for row in rows]
    gold = sorted({i for row in rows for i in row["gold_rule_ids"]})
    others = [i for i in range(len(world.texts)) if i not in gold]
    kept = [*gold, *draw.sample(others, min(len(others), max(0, draw.randint(*plan.rules) - len(gold))))]
    draw.shuffle(kept)
    texts = [world.texts[i] for i in kept]
    return texts, [writer.answer(row, "nl") for row in rows]


def _window(draw: random.Random, rows: list[Any], count: int) -> list[Any]:
    """Return questions of about one length, since branches are padded to the longest."""
    rows = sorted(rows, key=lambda row: len(row["steps"]))
    at = draw.randint(0, max(0, len(rows) - count))
    return rows[at : at + count]
