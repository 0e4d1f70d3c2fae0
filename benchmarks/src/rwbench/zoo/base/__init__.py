"""The base model in the box: a small Llama trained from scratch to apply rules that stand in its context."""
