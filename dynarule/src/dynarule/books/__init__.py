"""Rule books out of documents: files in, rules with their premises, conclusions and lines out. No model is needed."""

from .._lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    questions="draft_questions read_questions",
    readers="read_book read_documents",
    rules="DocumentRule",
)
