"""What is asked: reasoning skeletons, the units drawn from them, and the words that a question is put in.

A unit is one chain of rules with the numbers and creatures of its question; it is worded as a question of its own or as
a clause of a parallel question. `training_text` writes a question's proof as a model is trained to write it.
"""

from .target import SEARCH_TOKEN, boxed, training_text

__all__ = ["SEARCH_TOKEN", "boxed", "training_text"]
