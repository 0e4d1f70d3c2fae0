"""KBLaM, SR-KI and DynaRule: rules as memory inside the model; the `dynarule` package does the work.

A batch may hold questions of several pools: its bank holds the rules of all of them, and a mask says which rules each
question may see, so what shares a batch changes nothing.
"""

from __future__ import annotations

import hashlib
import re
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, zip_longest
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from ruleworld_data.world import mix

from ..backends import Completion
from ..backends.local import Local
from ..models import adapter_folder, fingerprint
from ..registry import Positive
from ..run.data import Ids, Question
from ..run.pools import Pool
from . import Batch, Method, Output, component, trace_step
from .conversation import UsageCounter, read_answer

if TYPE_CHECKING:
    from torch import Tensor

    from dynarule import Generation

    from ..models.reader import RuleReader

RULES = {"pool": "", "without_gold": ", gold rules removed", "gold": ", gold rules only"}
"""What a memory holds -> how a label says so."""
SETTINGS = {
    "kept": ", {} kept",
    "length_shift": ", length shift {:g}",
    "lookahead": ", {} backward levels",
    "score_weight": ", scores x {}",
    "score_limit": ", at most {}",
    "word_weight": ", words x {}",
    "word_stemmer": ", {} stems",
}
"""Setting that replaces the adapter's -> how a label says so."""
OFF = {
    "lookahead": ", no look-ahead",
    "score_weight": ", scores not read",
    "word_weight": ", no words",
    "word_stemmer": ", words as written",
}
"""How it says that one is 0 or empty."""


@dataclass(frozen=True)
class Memory(Method):
    """Base of the methods here and of DynaRule+. A subclass sets ``name`` and ``title``."""

    adapter_name: ClassVar[str] = ""  # what its folder is called, with its variant; empty: like the method
    preferred: ClassVar[str] = ""  # variant that `of` takes where the model has it
    preferred_title: ClassVar[str] = ""  # what the method is called with it, if not like the others
    replaces: ClassVar[tuple[str, ...]] = ()  # fields that are settings of the adapter

    model: Local  # the base
    adapter: str = ""  # fingerprint of its folder, from `of`; empty if the model has none of this method
    max_new_tokens: int = 512  # longest answer
    # Without the gold ones, others in their place (the paper's rule dependence); or the gold ones, to be read.
    rules: Literal["pool", "without_gold", "gold"] = "pool"
    # The one 0-based layer that holds the gold rules, others in their place elsewhere (the paper's retention by layer).
    correct_layer: int | None = None
    trace_layer: int | None = None  # whose ranking is scored as retrieval, if no confidence layer is named
    # Another adapter of the method: seed-1 lies in dynarule-seed-1-nl, beside dynarule-nl.
    variant: str = field(default="", metadata={"later": True})
    # Rules that a search keeps; None: the adapter's own number.
    kept: Positive | None = field(default=None, metadata={"later": True})

    @classmethod
    def of(cls, model: Local, representation: str, **changes: Any) -> Any:
        """Return the method on a model, with the fingerprint of its adapter for a representation."""
        best = cls(model=model, variant=cls.preferred)
        if "variant" not in changes and adapter_folder(model.model, best.adapter_key, representation):
            changes["variant"] = cls.preferred
        method = cls(model=model, **changes)
        folder = adapter_folder(model.model, method.adapter_key, representation)
        return replace(method, adapter=fingerprint(folder) if folder else "")

    @property
    def adapter_key(self) -> str:
        """What the adapter's folder is called, but for the form of the rules."""
        return "-".join(filter(None, (self.adapter_name or self.name, self.variant)))

    @property
    def label(self) -> str:
        """Name in reports."""
        changed = RULES[self.rules]
        if self.correct_layer is not None:
            changed += f", gold rules in layer {self.correct_layer} only"
        if self.variant and self.variant == self.preferred and self.preferred_title:
            label = f"{self.preferred_title}, {self.model.label}{changed}"
        else:
            variant = f", {self.variant.replace('-', ' ')}" if self.variant else ""
            label = f"{self.title}, {self.model.label}{variant}{changed}"
        for name in ("kept", *self.replaces):
            if (value := getattr(self, name)) is not None:
                label += (SETTINGS if value else SETTINGS | OFF).get(name, f", {name} {{}}").format(value)
        return label

    @property
    def changes(self) -> dict[str, Any]:
        """Settings of the rule memory that replace the adapter's own."""
        settings = {"top_k": self.kept} | {name: getattr(self, name) for name in self.replaces}
        return {name: value for name, value in settings.items() if value is not None}

    def missing(self) -> str | None:
        """What to install or to train, if anything."""
        if need := self.model.missing():
            return need
        if self.adapter:
            return None
        return f"an adapter in the folder {self.model.model}/{self.adapter_key}; see: dynarule train --help"

    def prepare(self, pools: Sequence[Pool]) -> None:
        """Load the model with its adapter."""
        self.model.check()
        self.reader(pools[0].representation)

    @property
    def batch_size(self) -> int:
        """What the model takes at once; no two questions have the same gold rules, so these are asked one by one."""
        return 1 if self.rules == "gold" else self.model.batch

    def reader(self, representation: str) -> RuleReader:
        """Return the model with its adapter; a ValueError if it is not the one that the spec names."""
        from ..models.reader import load_reader

        name = self.adapter_key
        folder = adapter_folder(self.model.model, name, representation)
        if folder is None or fingerprint(folder) != self.adapter:
            raise ValueError(
                f"the {name} adapter of model {self.model.model!r} is not the one that the run was made for; put "
                "the old files back, or start a new run"
            )
        return load_reader(self.model.model, folder, self.model.dtype)

    def answer(self, batch: Batch, top_k: int) -> Iterable[Output]:
        """Return the answers of a batch."""
        reader = self.reader(batch[0][0].representation)
        start = time.perf_counter()
        ids, allowed_BM, allowed_by_layer = self._visible(batch)
        bank = reader.bank(batch[0][0].rules, ids, batch[0][0].representation)
        # What may not be found must not be kept either: where all are kept, that is all of the row's own.
        own = None if allowed_BM is None else int(allowed_BM.sum(1).min())
        changes = self.changes
        kept = changes.get("top_k", reader.config.top_k)
        limits = [size for size in (kept and top_k, kept, own) if size]
        config = replace(reader.config, **changes | {"top_k": min(limits) if limits else None})
        if config.confidence_layer is None and self.trace_layer is not None:
            # Its selections are traced; no answer changes.
            config = replace(config, confidence_layer=self.trace_layer, update_scope="none")
        memory = reader.memory(bank, config, allowed_BM=allowed_BM, allowed_by_layer=allowed_by_layer)
        opened = time.perf_counter()
        questions = [question.text for _, question in batch]
        written = reader.answer(memory, questions, self.max_new_tokens, self.model.template.request)
        spent = {"retrieve": opened - start, "generate": time.perf_counter() - opened}
        share = {stage: seconds / len(batch) for stage, seconds in spent.items()}
        return [
            self._output(question, answer, reader, config.confidence_layer, top_k, share)
            for (_, question), answer in zip(batch, written, strict=True)
        ]

    def _visible(self, batch: Batch) -> tuple[Ids, Tensor | None, dict[int, Tensor]]:
        """Return the bank's rules, which of them each row may keep (None: all), and layers where that differs."""
        import torch

        if self.rules == "gold":
            ((_, question),) = batch
            return np.array(sorted(question.gold), dtype=np.int32), None, {}
        swaps = self.rules == "without_gold" or self.correct_layer is not None
        pools = [pool for pool, _ in batch]
        if not swaps and all(pool is pools[0] for pool in pools):
            return pools[0].ids, None, {}
        wrong = [_without_gold(pool, question) for pool, question in batch] if swaps else []
        ids = np.unique(np.concatenate([*(pool.ids for pool in pools), *wrong]))
        right_BM = torch.from_numpy(np.stack([np.isin(ids, pool.ids) for pool in pools]))
        if not swaps:
            return ids, right_BM, {}
        wrong_BM = torch.from_numpy(np.stack([np.isin(ids, own) for own in wrong]))
        return ids, wrong_BM, {} if self.correct_layer is None else {self.correct_layer: right_BM}

    def _output(
        self,
        question: Question,
        answer: Generation,
        reader: RuleReader,
        layer: int | None,
        top_k: int,
        share: dict[str, float],
    ) -> Output:
        ended = len(answer.token_ids) < self.max_new_tokens
        steps = [step for step in answer.trace if step.layer == layer]
        usage = UsageCounter(retrievals=len(steps))
        usage.seconds["retrieve"] = share["retrieve"]
        prompt = len(reader.question_tokens(question.text))
        usage.count(Completion("", "stop", prompt, len(answer.token_ids), share["generate"]))
        search = reader.search_text
        parts = step_texts(answer.text, search, reader.config.search_place)
        if search and answer.text.lstrip().startswith(search):
            # An answer that opens with <search> looked for its first step there; what the prompt found is not read,
            # unless the memory never searches again.
            steps, parts = steps[1:] or steps, parts[1:]
        ids = [step.ids for step in steps]
        if search and reader.config.search_place == "premise" and len(steps) > 1:
            ids, parts = by_line(answer.text, search, ids[1:])  # without what the prompt found
        retrieved = [[int(rule) for rule in found[:top_k]] for found in ids]
        trace = [
            trace_step(retrieved=ids, text=part)
            for ids, part in zip(retrieved, [*parts, *[None] * len(retrieved)], strict=False)
        ]
        done = Completion("".join(parts), "stop" if ended else "length")
        return read_answer(
            self.model.template,
            question,
            done,
            retrieved=retrieved or None,
            trace=trace if len(trace) > 1 else (),
            measures=_attention(question, steps),
            usage=usage.to_dict(),
        )


def by_line(text: str, search: str, found: Sequence[Sequence[str]]) -> tuple[list[list[str]], list[str]]:
    """Return what the searches of each line have found, merged in turn, and the lines without ``<search>``.

    A step that applies two rules looks for each behind its premise; lines without a search end the one before.
    """
    lists, lines = iter(found), [""]
    merged: list[list[str]] = []
    for line in text.splitlines(keepends=True):
        own = list(islice(lists, line.count(search)))
        if own and merged:
            lines.append("")
        lines[-1] += line.replace(search, "")
        if own:
            ranks = (rule for rank in zip_longest(*own) for rule in rank if rule is not None)
            merged.append(list(dict.fromkeys(ranks)))
    return merged, lines


def step_texts(text: str, search: str | None, place: str) -> list[str]:
    """Return an answer's steps without ``<search>``; where it stands behind a header, a step begins with its line."""
    if search is None:
        return [text]
    if place == "behind":
        text = re.sub(rf"(?m)^(.*?){re.escape(search)}", lambda line: search + line[1], text)
    return text.split(search)


def _without_gold(pool: Pool, question: Question) -> Ids:
    """Return a pool's rules with others in the place of the question's gold ones, the same on every machine."""
    rest = np.setdiff1d(pool.rules.ids, pool.ids)
    kept = np.setdiff1d(pool.ids, np.array(question.gold, dtype=np.int32))
    name = hashlib.blake2b(f"without_gold\x1f{question.id}".encode(), digest_size=8).digest()
    order: NDArray[np.uint64] = mix(np.array([int.from_bytes(name, "little")], dtype=np.uint64), rest)
    return np.concatenate([kept, rest[np.argsort(order, kind="stable")[: len(pool.ids) - len(kept)]]])


def _attention(question: Question, steps: Sequence[Any]) -> dict[str, Any]:
    """Return how much each retrieval step weighs each gold rule: softmax over the kept rules' mean scores."""
    rows = []
    for step in steps:
        scores = np.array(step.scores, dtype=np.float64)
        weights = np.exp(scores - scores.max(initial=-np.inf))
        by_id = dict(zip(step.ids, weights / weights.sum(), strict=True))
        rows.append([round(float(by_id.get(str(rule), 0.0)), 6) for rule in question.gold])
    if not rows:
        return {}
    first = {rule: number for number, ids in reversed(list(enumerate(question.gold_steps))) for rule in ids}
    return {"rule_attention": rows, "rule_attention_step": [first[rule] for rule in question.gold]}


@component
class KBLaM(Memory):
    """Rules as keys and values, all of them attended to (Wang et al. 2025); the paper has them in every third layer."""

    name = "kblam"
    title = "KBLaM"
    replaces = ("length_shift",)

    # C: rule scores get log C - log M added, which keeps M rules from drowning the text. None: as in training.
    length_shift: int | float | None = None

    @classmethod
    def of(cls, model: Local, representation: str, **changes: Any) -> KBLaM:
        """Return the method on a model; retrieval is read where DynaRule's confidence layer is, or just before it.

        KBLaM has no confidence layer of its own, and the paper compares all methods at that layer. Where no layer
        before it holds rules, it is the first that does.
        """
        keys = cls(model=model, **changes).adapter_key, DynaRule.of(model, representation).adapter_key
        own, other = (adapter_folder(model.model, key, representation) for key in keys)
        if own is not None and other is not None and "trace_layer" not in changes:
            from dynarule import DynaRuleConfig

            layer = DynaRuleConfig.from_pretrained(other).confidence_layer
            config = DynaRuleConfig.from_pretrained(own)
            first, every = config.first_layer, config.every
            changes["trace_layer"] = None if layer is None else max(first, layer - (layer - first) % every)
        return super().of(model, representation, **changes)


@component
class SRKI(Memory):
    """The best rules kept in every layer once, when the question is read (Yu et al. 2025)."""

    name = "srki"
    title = "SR-KI"


@component
class DynaRule(Memory):
    """Rules in every layer; each step's ``<search>`` replaces those of the confidence layer."""

    name = "dynarule"
    title = "DynaRule (paper)"
    preferred = "premise"
    preferred_title = "DynaRule behind premises"
    stepwise = True
    replaces = ("score_weight",)

    # Of a rule's score, in the attention to it, where the adapter has that; 0: as in the paper.
    score_weight: int | float | None = field(default=None, metadata={"later": True})

    @classmethod
    def choosing_layers(cls, model: Local, representation: str) -> list[int]:
        """Return the 0-based layers that choose rules; without an adapter layer 0, whose run says what is missing.

        A layer that reads what the confidence layer keeps has nothing of its own to compare.
        """
        from dynarule import DynaRuleConfig

        folder = adapter_folder(model.model, cls.of(model, representation).adapter_key, representation)
        if folder is None:
            return [0]
        config = DynaRuleConfig.from_pretrained(folder)
        layers = config.layers((config.base or {})["num_layers"])
        return [layer for layer in layers if not config.shares(layer)]


@component
class Confidence(Memory):
    """Which layer knows best: the entropy of DynaRule's rule attention in every layer (the paper's figures 3 and 8).

    It measures without answering: ``rule_entropy`` and ``rule_layers`` of each question, in ``measures``. The layer
    with the lowest mean is the confidence layer.
    """

    name = "confidence"
    title = "Entropy of rule attention"
    adapter_name = "dynarule"
    preferred = DynaRule.preferred

    def answer(self, batch: Batch, top_k: int) -> Iterator[Output]:
        """Yield the measures."""
        from dynarule import measure_confidence, question_prompts

        reader = self.reader(batch[0][0].representation)
        for pool, question in batch:
            bank = reader.bank(pool.rules, pool.ids, pool.representation)
            prompts = question_prompts(reader.tokenizer, [question.text])
            with warnings.catch_warnings():  # that one question is few: the mean is taken over all samples
                warnings.simplefilter("ignore", UserWarning)
                curve = measure_confidence(reader.model, reader.tokenizer, bank, prompts)
            entropy = [round(nats, 6) for nats in curve.mean]
            yield Output(question.id, measures={"rule_entropy": entropy, "rule_layers": list(curve.layers)})
