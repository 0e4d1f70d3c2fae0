"""The bundled base model: a small Llama trained from scratch to apply rules that stand in its context."""
