"""Which rules a text sees and when: selection and visibility, serving and training, the confidence layer."""

from .._lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    hooks="attach",
    serving="Retrieval RuleMemory",
    selection="LayerMemory",
    training="TrainingMemory",
    confidence="measure_confidence",
)
