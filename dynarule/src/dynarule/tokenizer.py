"""Load a tokenizer as it was saved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_GENERIC = ("TokenizersBackend", "PreTrainedTokenizerFast")


def load_tokenizer(name: str | Path) -> Any:
    """Return the tokenizer of a folder or of a model on the Hub."""
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    # Of a folder whose config.json says qwen2, AutoTokenizer makes Qwen's byte-level tokenizer, whatever was saved
    # there, and that reads nothing of a vocabulary of words. One that names no class of a family is loaded as it is.
    config = Path(name) / "tokenizer_config.json"
    if config.is_file() and (Path(name) / "tokenizer.json").is_file():
        values = json.loads(config.read_text(encoding="utf-8"))
        if (
            isinstance(values, dict)
            and values.get("tokenizer_class") in _GENERIC
            and "auto_map" not in values
        ):
            return PreTrainedTokenizerFast.from_pretrained(name, trust_remote_code=False)
    return AutoTokenizer.from_pretrained(name, trust_remote_code=False)
