"""Parallel questions reworded by a language model: asked once, cached, and checked against the templates' wording."""

from typing import TYPE_CHECKING

from .._lazy import attach

if TYPE_CHECKING:
    from .check import sub_questions as sub_questions
    from .check import why_refused as why_refused
    from .reword import MergeResult as MergeResult
    from .reword import merge_split as merge_split

__getattr__, __dir__, __all__ = attach(
    __name__, check="sub_questions why_refused", reword="MergeResult merge_split"
)
