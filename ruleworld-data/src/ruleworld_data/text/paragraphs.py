"""Rules as people write them down: paragraphs of up to three, in which a sentence needs the one before it.

A sentence shares its premise with the one before ("Besides, it ..."), or its conclusion ("The same holds if it ..."),
or begins with what that one leads to ("Whoever is there ..."), and does not say again what it shares.
"""

import re
from collections import defaultdict

import pyarrow as pa

from ..spec import check_columns, check_kind
from ..world import Key, Stream
from .english import _A, _B
from .fol import Fact
from .parser import halves_nl, parse_rule

_MENTION = f"(?:it|{_A}|{_B})"
_WHO = re.compile(
    rf"^(?!it comes about){_MENTION}(?= )|(?<=^it comes about that ){_MENTION}|(?<=what ){_MENTION}(?= is$)|"
    rf"(?<=\bby ){_MENTION}(?=$| instead$)|(?<=\bon ){_MENTION}$"
)
"""Where one half of a rule mentions the creature that it is about."""
_OF_AN_ACT = {"A": "whoever does this to another", "B": "whoever this is done to"}
_IDS = pa.list_(pa.int32())
_REACHED = {"in": "whoever is there", "state": "whoever is in that state"}


def paragraphs(rules: pa.Table, *key: Key) -> pa.Table:
    """Return rules as a text to be cut and searched: every rule once, most of them in paragraphs of two or three.

    Parameters
    ----------
    rules : pyarrow.Table
        Rules of one world, e.g. a pool, with the columns ``id`` and ``nl``.
    *key : str or int
        Names the drawing of which rules stand together; the same key gives the same paragraphs.

    Returns
    -------
    pyarrow.Table
        Columns ``text`` and ``rule_ids``, the rules that a paragraph tells, in its order.

    Raises
    ------
    ValueError
        If a column is missing, or a text is no rule.
    """
    check_kind("rules", rules, pa.Table, "table('rules', WorldSpec('tiny'))")
    check_columns("a text of paragraphs", rules.column_names, "id", "nl")
    ids, texts = rules["id"].to_pylist(), rules["nl"].to_pylist()
    stream = Stream("paragraphs", *key)
    order = stream.permutation(len(ids)).tolist()
    lengths, turns = (stream.integers(2, len(ids)).tolist() for _ in range(2))
    facts = [parse_rule("nl", text)[1:] for text in texts]
    sharing: dict[tuple[str, Fact], list[int]] = defaultdict(list)
    for row in order:
        for link, shared in _shared(*facts[row]).items():
            if link != "chain":
                sharing[shared].append(row)
    left, told = set(order), dict[str, list[int]]()
    for row in order:
        if row not in left:
            continue
        left.remove(row)
        own, sentences = [row], [texts[row]]
        for link in ("chain", *("premise", "conclusion")[:: 1 - 2 * turns[row]]):
            while len(own) < 2 + lengths[row] and (meets := _shared(*facts[own[-1]]).get(link)):
                sharing[meets] = [other for other in sharing[meets] if other in left]
                if not sharing[meets]:
                    break
                own.append(sharing[meets].pop())
                left.remove(own[-1])
                sentences.append(_sentence(texts[own[-1]], link, facts[own[-1]], len(own)))
            if len(own) > 1:
                break
        told[" ".join(sentences)] = [ids[i] for i in own]
    return pa.table({"text": pa.array(told, pa.string()), "rule_ids": pa.array(told.values(), _IDS)})


def _shared(premise: Fact, conclusion: Fact) -> dict[str, tuple[str, Fact]]:
    """Return what a rule must share with this one to stand after it, by how it goes on."""
    shared = {"premise": ("premise", premise)}
    if premise.kind != "act":  # "it" could be either of the two
        shared["conclusion"] = "conclusion", conclusion
    if conclusion.kind in _REACHED:
        shared["chain"] = "premise", conclusion._replace(who="A")
    return shared


def _sentence(text: str, link: str, facts: tuple[Fact, Fact], number: int) -> str:
    """Say the rest of a rule whose other half the sentence before has said."""
    premise, conclusion = halves_nl(text)
    if link == "conclusion":
        return f"The same holds if {_WHO.sub('it', premise, count=1)}."
    if link == "chain":
        rest = _WHO.sub(_REACHED[facts[0].kind], conclusion, count=1)
        return f"{rest[0].upper()}{rest[1:]}."
    who = _OF_AN_ACT[facts[1].who] if facts[0].kind == "act" else ("such a creature", "it")[number > 2]
    return f"Besides, {_WHO.sub(who, conclusion, count=1)}."
