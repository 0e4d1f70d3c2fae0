"""A question's rules, step by step, for LangChain and LlamaIndex: what a model looked for while it answered."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .._lazy import need
from ..bank.bank import RuleBank
from ..generation import generate
from ..memory.serving import one_a_step
from ..tokenizer import question_prompts


@dataclass
class StepRules:
    """Answers a question to find the rules that each of its steps needs.

    Parameters
    ----------
    model, tokenizer
        A model with its adapter.
    bank : RuleBank
        The rules.
    top, max_new_tokens : int
        Rules of each step, and the longest answer.
    """

    model: Any
    tokenizer: Any
    bank: RuleBank
    top: int = 3
    max_new_tokens: int = 256

    def __call__(self, question: str) -> list[dict[str, Any]]:
        """Return id, text, score and step of each rule, in the order of the steps; a rule counts where it was first."""
        config = self.model.active_peft_config
        prompts = question_prompts(self.tokenizer, [question], config.question_opening)
        settings: dict[str, Any] = {"max_new_tokens": self.max_new_tokens, "min_support": 0.0}
        (answer,) = generate(self.model, self.tokenizer, self.bank, prompts, **settings)
        found: dict[str, dict[str, Any]] = {}
        for search in one_a_step(answer.trace):
            rules: Sequence[Any] = list(zip(search.ids, search.texts, search.scores, strict=True))
            for name, text, score in rules[: self.top] if search.layer == config.confidence_layer else ():
                found.setdefault(name, {"id": name, "text": text, "score": score, "step": search.step})
        return list(found.values())

    def langchain(self) -> Any:
        """Return a LangChain retriever: a document a rule."""
        document = need("langchain_core.documents", "langchain").Document
        search = self

        class RuleRetriever(need("langchain_core.retrievers", "langchain").BaseRetriever):  # type: ignore[misc]
            def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Any]:
                rules = search(query)
                return [document(rule.pop("text"), id=rule.pop("id"), metadata=rule) for rule in rules]

        return RuleRetriever()

    def llamaindex(self) -> Any:
        """Return a LlamaIndex retriever: a node a rule."""
        schema = need("llama_index.core.schema", "llamaindex")
        search = self

        class RuleRetriever(need("llama_index.core.retrievers", "llamaindex").BaseRetriever):  # type: ignore[misc]
            def _retrieve(self, query_bundle: Any) -> list[Any]:
                rules = search(query_bundle.query_str)
                scores = [rule.pop("score") for rule in rules]
                nodes = [schema.TextNode(id_=r.pop("id"), text=r.pop("text"), metadata=r) for r in rules]
                return [schema.NodeWithScore(node=n, score=s) for n, s in zip(nodes, scores, strict=True)]

        return RuleRetriever()
