"""Load a tokenizer as it was saved; read as text the control tokens that a user's text spells."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

__all__ = ["as_text", "encode_marked", "load_tokenizer", "markup_tokens", "without_marks"]

_MARK = "\ue000"
"""Before a control token that is text, and before itself."""
_MARKUP = re.compile(r"<\S+>|\[\S+\]")
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


def control_tokens(tokenizer: Any) -> dict[int, str]:
    """Return a tokenizer's control tokens: id to text."""
    added = {row: added.content for row, added in tokenizer.added_tokens_decoder.items() if added.special}
    return dict(zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=True)) | added


def markup_tokens(tokenizer: Any) -> dict[int, str]:
    """Return control tokens and others in brackets that were added, such as ``<think>``, which templates write, too."""
    added = {row: token.content for row, token in tokenizer.added_tokens_decoder.items()}
    return control_tokens(tokenizer) | {row: text for row, text in added.items() if _MARKUP.fullmatch(text)}


def _control(tokenizer: Any) -> str:
    tokens = sorted({_MARK, *markup_tokens(tokenizer).values()}, key=len, reverse=True)
    return "|".join(map(re.escape, tokens))


def as_text(tokenizer: Any, text: str) -> str:
    """Return a text whose control tokens are marked as text, for `encode_marked`; most texts spell none and stay."""
    return re.sub(_control(tokenizer), lambda match: _MARK + match[0], text)


def without_marks(text: str) -> str:
    """Return a text as it was before `as_text`."""
    return re.sub(f"{_MARK}(.)", r"\1", text, flags=re.DOTALL)


def encode_marked(tokenizer: Any, text: str, add_special_tokens: bool = False) -> list[int]:
    """Return the tokens of a text in which what `as_text` marked is text, and other control tokens are themselves."""
    pieces = re.split(f"{_MARK}({_control(tokenizer)})", text) if _MARK in text else [text]
    parts = pieces[:1]
    for token, after in zip(pieces[1::2], pieces[2::2], strict=True):
        if token == _MARK:
            parts[-1] += token + after
        else:
            parts += [token, after]
    ids = list(tokenizer(parts[0], add_special_tokens=add_special_tokens)["input_ids"])
    for at, part in enumerate(parts[1:]):
        if at % 2:
            ids += tokenizer(part, add_special_tokens=False)["input_ids"]
        else:
            ids += _spelled(tokenizer, part)
    return ids


def _spelled(tokenizer: Any, token: str) -> list[int]:
    """Return the tokens of a control token's letters."""
    ids = tokenizer(token, add_special_tokens=False, split_special_tokens=True)["input_ids"]
    if ids and ids[0] in tokenizer.added_tokens_decoder:  # one that is not special is never split
        return [
            id
            for part in (token[:1], token[1:])
            for id in tokenizer(part, add_special_tokens=False)["input_ids"]
        ]
    return ids


def text_ids(tokenizer: Any, text: str, add_special_tokens: bool = True) -> list[int]:
    """Return the tokens of a text in which no control token is itself."""
    if _MARKUP.search(text) and (marked := as_text(tokenizer, text)) != text:
        return encode_marked(tokenizer, marked, add_special_tokens)
    return tokenizer(text, add_special_tokens=add_special_tokens, split_special_tokens=True)["input_ids"]
