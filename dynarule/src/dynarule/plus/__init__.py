"""DynaRule+, which is not the paper's: searches that read the text and look ahead, and rules read token by token."""

from .._lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    config="PlusConfig",
    memory="PlusMemory PlusRetrieval",
    retrieval="RetrievalRecipe train_retrieval",
    rule_states="RuleStates",
    token_memory="TokenMemory",
)
