"""Rules as embeddings: encoders, the bank that holds them, its files, and search."""

from .._lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    bank="RuleBank",
    clauses="parts_of split_rule",
    embedding_cache="EmbeddingCache",
    encoders="SentenceEncoder encoder_of folder_hash key_texts open_encoder read_as_text verbalise",
    layer_encoder="LayerEncoder",
    rows="SharedRows",
    sources="read_rules",
    storage="changed_bank",
)
