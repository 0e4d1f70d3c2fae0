"""The base's tokenizer: one token per word of RuleWorld's language, pieces and characters for any other word.

A word and the blank before it are one token, as are numbers below 100 and the marks of the answer format. A word that
is not in the vocabulary falls back to known pieces and then to characters, so any text in ASCII goes in and comes out
unchanged. The vocabulary is read off fresh worlds and their questions, never off the benchmark's own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ruleworld_data.fresh import fresh_worlds
from ruleworld_data.questions import training_text
from ruleworld_data.spec import SCALES, SUBTASKS, WorldSizes
from ruleworld_data.world import load_vocabulary

PAD, END, STEP = "<pad>", "<end>", "<step>"
"""Padding, end of the answer, boundary before a step (whose row ``<search>`` inherits)."""
SPECIAL = (PAD, END, STEP, "<unknown>")
SEARCH = "[Search]"
"""Begins a line that asks for rules, in the words that they would begin with."""
BLANK = "\u2581"
MARKS = (
    *(f"[Step{BLANK}{i}]" for i in range(1, 9)),
    "[Answer]",
    SEARCH,
    BLANK + "\\boxed{",
    BLANK + "=>",
    *(f"({each}{end}" for each in "ABxy" for end in ",)"),
)
PIECE = r"▁\\boxed\{|\[Answer\]|\[Search\]|\[Step▁\d\]|▁=>|\([ABxy][,)]|▁?_?[A-Za-z]+|▁?\d{1,2}|▁?[^\sA-Za-z0-9▁]|▁|\s"
"""One pre-token: a mark, or a word, number or sign with the blank before it."""
SIZES = WorldSizes(**vars(SCALES["paper"].sizes) | {"entity2attr": 8_000, "state2attr": 8_000})
"""A world with every term and few rules."""


@dataclass(frozen=True)
class TokenVocabulary:
    """Tokens in order of their ids, and the stem that each shares with its other forms.

    Attributes
    ----------
    tokens : tuple of str
        Special tokens first.
    stems : tuple of str
        ``royal`` for ``▁royal``, ``Royal`` and ``_royal``; ``fin`` for ``▁fins``; the token itself where it is no word.
    """

    tokens: tuple[str, ...]
    stems: tuple[str, ...]


def corpus() -> Iterator[str]:
    """Yield the rules of two fresh worlds that use every term, and questions and answers of 128 more."""
    for first in (0, 64):
        (world,) = fresh_worlds(
            1,
            1,
            {},
            n_rules=sum(SIZES.rule_counts().values()),
            sizes=SIZES,
            first=first,
        )
        for name in ("nl", "fol"):
            yield from world.rules.column(name).to_pylist()
    for world in fresh_worlds(2, 128, dict.fromkeys(SUBTASKS, 8), n_rules=400, sizes=SIZES):
        for row in world.questions.to_pylist():
            yield row["question"]
            yield from (training_text(row, name, STEP) for name in ("nl", "fol"))


def pieces(text: str) -> list[str]:
    """Cut a text as the tokenizer's first stage does."""
    return re.findall(PIECE, text.replace(" ", BLANK))


def build_vocabulary(texts: Iterable[str]) -> TokenVocabulary:
    """Collect the tokens of a corpus; numbers and characters are complete whatever the corpus holds."""
    seen = Counter(piece for text in texts for piece in pieces(text))
    words = sorted(piece for piece in seen if re.search("[A-Za-z]{2}", piece) and piece not in MARKS)
    numbers = [f"{lead}{n}" for lead in ("", BLANK) for n in range(100)]
    signs = [chr(c) for c in range(33, 127)]
    characters = ["\n", BLANK, *signs, *(BLANK + c for c in signs)]
    terms = [form for form in term_forms() if form not in seen]
    inside = ["##" + c for c in signs if re.match("[A-Za-z0-9_]", c)]
    endings = ["##s", "##es", "##ed", "##ing"]
    tokens = list(dict.fromkeys([*SPECIAL, *MARKS, *numbers, *characters, *inside, *endings, *words, *terms]))
    forms = _stems()
    return TokenVocabulary(tuple(tokens), tuple(_stem(token, forms) for token in tokens))


def term_forms() -> Iterator[str]:
    """Yield every form in which the words of a term stand in rules, questions and answers."""
    terms = load_vocabulary()
    for verb in (*terms.actions, *terms.minus, *terms.plus):
        yield from (verb.base.capitalize(), BLANK + verb.base.capitalize())
        yield from (BLANK + word for word in (verb.base, verb.third, verb.past, verb.gerund, verb.participle))
    for plural in terms.attribute_plurals:
        yield BLANK + plural.split()[-1]
    places = [place.name for place in terms.environments]
    for name in (*terms.entities, *terms.attributes, *places, *terms.states):
        first, *rest = name.split()
        yield from (first, BLANK + first, first.capitalize(), BLANK + first.capitalize())
        yield from (lead + word for word in rest for lead in (BLANK, "_"))
    for attribute in terms.attributes:
        yield "_" + attribute.split()[0].capitalize()  # Lose_Sacred_fin


def _stems() -> dict[str, str]:
    """Map every surface form of a term to the first word of its row: plural to singular, verb form to base."""
    words = load_vocabulary()
    forms: dict[str, str] = {}
    for verb in (*words.actions, *words.minus, *words.plus):
        for form in (verb.base, verb.third, verb.past, verb.gerund, verb.participle):
            forms.setdefault(form, verb.base)
    for one, many in zip(words.attributes, words.attribute_plurals, strict=True):
        forms.setdefault(many.split()[-1], one.split()[-1])
    return forms


def _stem(token: str, forms: dict[str, str]) -> str:
    word = token.replace(BLANK, "").lstrip("_").lower()
    if re.fullmatch("[a-z]{2,}", word):
        return forms.get(word, word)
    return word if word.isdigit() else token


def build_tokenizer(vocabulary: TokenVocabulary, max_length: int) -> Any:
    """Return the vocabulary as a fast tokenizer of transformers (`PreTrainedTokenizerFast`)."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    ids = {token: i for i, token in enumerate(vocabulary.tokens)}
    model = models.WordPiece(ids, unk_token="<unknown>", continuing_subword_prefix="##")
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Replace(" ", BLANK)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(PIECE), "isolated")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(Regex("^##"), ""), decoders.Fuse(), decoders.Replace(BLANK, " ")]
    )
    tokenizer.add_special_tokens([AddedToken(each, special=True, normalized=False) for each in SPECIAL])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        unk_token="<unknown>",
        padding_side="left",
        model_max_length=max_length,
        clean_up_tokenization_spaces=False,
    )
