"""Which rules a text sees and when: selection and visibility, the ``<search>`` token, and the hooks that attach it."""

from .._lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    hooks="attach",
    serving="Retrieval RuleMemory",
    rule_states="RuleStates",
    token_memory="TokenMemory",
    selection="LayerMemory",
    words="SearchText",
    training="TrainingMemory",
    search="SEARCH_TOKEN prepare_search search_id",
    confidence="measure_confidence",
)
