"""DynaRule: rules as key/value memory inside a frozen language model.

A bank holds rules as embeddings; an adapter projects them into a model's attention; a memory decides which
rules a text sees, and ``<search>`` makes it look again. Names are imported when first used.
"""

from ._lazy import lazy_names

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    config="DynaRuleConfig dynarule_config kblam_config srki_config",
    adapter="RuleAdapter load_adapter",
    bank="RuleBank open_encoder encoder_of",
    books="read_documents",
    memory="RuleMemory attach measure_confidence",
    plus="PlusConfig PlusMemory RuleStates TokenMemory",
    search_token="SEARCH_TOKEN prepare_search search_id",
    decoding="growing_cache",
    generation="Generation generate rule_memory",
    tokenizer="load_tokenizer question_prompts",
)
