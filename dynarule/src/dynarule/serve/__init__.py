"""An OpenAI-compatible server that answers with rules: the engine that batches requests, and its HTTP routes."""

from .._lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    api="make_app",
    book="Book",
    engine="Engine EngineClosed",
    requests="Answer Request",
    retrievers="StepRules",
)
