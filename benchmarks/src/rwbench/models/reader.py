"""The `dynarule` package as the benchmark uses it: a base with an adapter, and banks with one pool per question."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from dynarule.bank import EmbeddingCache
from dynarule.tokenizer import Prompt, encode_prompt

from dynarule import (
    DynaRuleConfig,
    Generation,
    RuleBank,
    RuleMemory,
    RuleStates,
    TokenMemory,
    encoder_of,
    generate,
    load_adapter,
    question_prompts,
    search_id,
)

from ..backends.local import load_fresh
from ..backends.rows import NoRequest
from ..cache import cache_root
from ..run.data import Ids, RuleTable
from . import base_folder, step_mark


@dataclass(frozen=True)
class RuleReader:
    """A base model, its tokenizer, an adapter and the encoder of its rules."""

    model: Any  # the base with its adapter, a PeftModel
    tokenizer: Any
    config: DynaRuleConfig  # the adapter's own
    # Of <search>, if the adapter names one: trained, or one that the base writes by itself.
    search_id: int | None
    encode: EmbeddingCache  # texts to embeddings, kept on disk
    mark: str  # how the base begins a step
    banks: dict[tuple[RuleTable, bytes, str], RuleBank] = field(
        default_factory=dict, repr=False
    )  # the one in use

    @property
    def search_text(self) -> str | None:
        """Text of ``<search>``."""
        return None if self.search_id is None else self.tokenizer.convert_ids_to_tokens(self.search_id)

    def bank(self, rules: RuleTable, ids: Ids, representation: str) -> RuleBank:
        """Return the bank of some rules: the whole rule is the key, its conclusion the value.

        The last one is kept: the batches of a shared pool read the same bank.
        """
        name = (rules, ids.tobytes(), representation)
        if name not in self.banks:
            self.banks.clear()
            texts, conclusions = (rules.texts(ids, f"{part}{representation}") for part in ("", "conclusion_"))
            given = [rules.parts.get(text, (None,))[0] for text in texts] if rules.parts else ()
            names = [str(rule) for rule in ids]
            bank = RuleBank.from_texts(texts, conclusions, self.encode, names, premises=given)
            self.banks[name] = bank.to(self.model.device)
        return self.banks[name]

    @cached_property
    def states(self) -> RuleStates:
        """States of the rules that token memory read last."""
        return RuleStates(self.model, self.tokenizer)

    def memory(self, bank: RuleBank, config: DynaRuleConfig, **settings: Any) -> RuleMemory:
        """Return a memory of a bank's rules that reads as the configuration says."""
        kind = config.memory_class()
        if issubclass(kind, TokenMemory):
            settings["states"] = self.states
        return kind(self.model, bank, self.search_id, tokenizer=self.tokenizer, config=config, **settings)

    def question_tokens(self, question: str) -> list[int]:
        """Return the tokens of a question as it is asked."""
        return encode_prompt(self.tokenizer, self._prompts([question])[0])

    def _prompts(self, questions: Sequence[str]) -> list[Prompt]:
        return question_prompts(self.tokenizer, questions, self.config.question_opening)

    def answer(
        self, memory: RuleMemory, questions: Sequence[str], max_new_tokens: int, request: str = ""
    ) -> list[Generation]:
        """Answer questions in one batch; ``<search>`` stays in the texts, and one that would ask begins a step.

        An empty request forbids nothing.
        """
        prompts = self._prompts(questions)
        return generate(
            self.model,
            self.tokenizer,
            memory,
            prompts,
            max_new_tokens=max_new_tokens,
            batch_size=len(prompts),
            keep_search=True,
            logits_processor=[NoRequest(request, self.tokenizer, instead=self.mark)] if request else [],
        )


@lru_cache(maxsize=1)
def load_reader(name: str, folder: Path, dtype: str = "") -> RuleReader:
    """Load a model with an adapter of a folder; a ValueError if it does not fit."""
    # A model of its own: the adapter becomes a part of it.
    own = (folder / "tokenizer_config.json").is_file()
    model, tokenizer = load_fresh(base_folder(name), folder if own else None, dtype)
    config = DynaRuleConfig.from_pretrained(folder)
    model = load_adapter(model, folder, tokenizer, config=config).eval()
    search = config.search_id
    if search is None and config.search_token is not None:
        search = search_id(tokenizer, config.search_token)
    encode = EmbeddingCache(encoder_of(config.encoder, model, tokenizer), cache_root() / "rules")
    return RuleReader(model, tokenizer, config, search, encode, step_mark(name, tokenizer))
