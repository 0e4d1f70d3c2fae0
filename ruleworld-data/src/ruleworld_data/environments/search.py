"""A search tool over an instance's pool, and the episode of a model that uses it.

Nothing that a model writes comes back to it: what a search returns are rules of the pool and fixed sentences.
"""

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, Self

import numpy as np

from .._lazy import tool
from ..spec import check_count
from ..world import Ints
from .config import EnvConfig
from .instances import instance
from .reward import Reward, read_metadata, score
from .worlds import EnvWorld, place_of

NOTHING = "No rule shares a word with that."
NO_MORE = "No searches are left. Give the answer now."
LONGEST_QUERY = 1_000
"""Characters of a query that are read."""
_TAGS = re.compile(r"<search>((?:(?!<search>).)*)</search>\s*\Z", re.DOTALL)
_WORD = re.compile(r"[^\W\d_]+|\d+")


class Episode:
    """One instance while a model works on it: counts its searches and scores its answer.

    Rules are found by BM25, whose word statistics are those of the whole world.

    Parameters
    ----------
    metadata : mapping or str
        Of the instance; JSON will do.

    Raises
    ------
    ValueError
        If the metadata is of another version.
    """

    def __init__(self, metadata: Mapping[str, Any] | str) -> None:
        self.metadata = read_metadata(metadata)
        self.config = EnvConfig.from_dict(self.metadata["config"])
        check_count("index", self.metadata["index"])
        self.searches, self.ended = 0, False

    @classmethod
    def at(cls, config: EnvConfig, index: int) -> Self:
        """Return the episode of one instance of an environment."""
        return cls(instance(config, index).metadata)

    @cached_property
    def _pool(self) -> tuple[EnvWorld, Ints]:
        world, _, row = place_of(self.config, self.metadata["index"])
        if any(self.metadata[name] != row[name] for name in ("gold_rule_ids", "answers")):
            raise ValueError(
                f"metadata is not that of the question at its index, {self.metadata['index']}, whose answers are "
                f"{row['answers']}; make the instance anew with ruleworld_data.environments.instance"
            )
        return world, np.sort(world.pool(row, self.config))

    def search(self, query: object) -> str:
        """Search once and return what the model reads: the best rules, one a line, or why there are none.

        A query of any kind is answered: one without a known word finds nothing, as does one too many. A ValueError if
        the metadata's answers are those of another question than its index names.
        """
        self.searches += 1
        if self.searches > self.config.max_searches:
            return NO_MORE
        world, pool = self._pool
        engine = _bm25(world, self.config.form)
        text = query[:LONGEST_QUERY] if isinstance(query, str) else ""
        terms = engine.get_tokens_ids(index_terms()(text))
        if not terms:
            return NOTHING
        scores = np.round(engine.get_scores_from_ids(terms), 9)[pool]
        best = np.lexsort((pool, -scores))[: self.config.top_k]
        return "\n".join(world.texts(self.config.form)[pool[best[scores[best] > 0]]]) or NOTHING

    def step(self, text: object) -> tuple[str, Reward | None]:
        """Take a turn of a model that searches by ``<search>words</search>`` at the end of what it writes.

        Returns
        -------
        observation : str
            What it reads next; empty at the end.
        reward : Reward or None
            None until the model writes something that does not end in a search, which is its answer.

        Raises
        ------
        ValueError
            After the answer: another would be a second try.
        """
        match = _TAGS.search(text, max(0, len(text) - 2 * LONGEST_QUERY)) if isinstance(text, str) else None
        if match is None or self.searches > self.config.max_searches:
            return "", self.score(text)
        return f"<rules>\n{self.search(match[1])}\n</rules>", None

    def score(self, answer: object) -> Reward:
        """Score the answer after the searches made so far, once: then a ValueError.

        Without a search no world is drawn, and the record is believed, as `score` does.
        """
        if self.ended:
            raise ValueError("the episode has ended with its answer; begin another one")
        self.ended = True
        return score(answer, self.metadata, self.searches)


def import_bm25s() -> Any:
    """Import bm25s, but not jax, which it would start where that is installed: on a GPU, in most of the memory."""
    hidden = "jax" not in sys.modules
    if hidden:
        sys.modules["jax"] = None  # type: ignore[assignment]
    try:
        import bm25s
    finally:
        if hidden:
            del sys.modules["jax"]
    return bm25s


def lucene_bm25(texts: Sequence[Sequence[str]], **options: Any) -> Any:
    """Return bm25s's index, in Lucene's form, of the terms of each text."""
    engine = import_bm25s().BM25(method="lucene", backend="numpy", **options)
    # bm25s indexes no empty vocabulary: where no text has a term, each gets one that no query has
    engine.index([*texts] if any(texts) else [[""]] * len(texts), show_progress=False)
    return engine


@lru_cache(maxsize=16)
def _bm25(world: EnvWorld, form: str) -> Any:
    """Index the rules of a world."""
    return lucene_bm25([*map(index_terms(), world.texts(form))])


@lru_cache(maxsize=1)
def index_terms() -> Callable[[str], list[str]]:
    """Return what splits texts and identifiers into lower-case words, and stems them: "stroked" finds "strokes".

    Runs of letters and runs of digits are words. Counts are content, and "in" is half of "in the desert": both stay.
    """
    with tool("bm25s with PyStemmer", "environments"):
        import_bm25s()
        import Stemmer
    stem = Stemmer.Stemmer("english").stemWords
    return lambda text: stem(_WORD.findall(text.lower()))
