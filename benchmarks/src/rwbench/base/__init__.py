"""The base model in the box: a small Qwen2 trained from scratch to apply rules that stand in its context."""
