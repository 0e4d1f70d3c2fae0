"""Load a tokenizer as it was saved; encode prompts, in which the control tokens that a user's text spells are text."""

import json
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from .bank.sources import HALF_PAIR, listed

__all__ = [
    "Prompt",
    "as_text",
    "encode_marked",
    "encode_prompt",
    "load_tokenizer",
    "markup_tokens",
    "question_prompts",
    "without_marks",
]

Prompt = str | Sequence[Mapping[str, Any]]
"""Text as it is, control tokens included, or chat messages for the tokenizer's template: texts, the last the user's."""
ROLES = ("system", "developer", "user")
_ALONE = (
    "since a search looks for what all turns say, not for what the last one asks; ask the last question by itself, "
    "with all that it needs"
)


class PlainText(str):
    """A prompt that holds no control token: one that its text spells, such as ``<search>``, is read as text."""


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
        parts = token[:1], token[1:]
        return [id for part in parts for id in tokenizer(part, add_special_tokens=False)["input_ids"]]
    return ids


def text_ids(tokenizer: Any, text: str, add_special_tokens: bool = True) -> list[int]:
    """Return the tokens of a text in which no control token is itself."""
    if ("<" in text or "[" in text) and (marked := as_text(tokenizer, text)) != text:
        return encode_marked(tokenizer, marked, add_special_tokens)
    return tokenizer(text, add_special_tokens=add_special_tokens, split_special_tokens=True)["input_ids"]


def question_prompts(tokenizer: Any, questions: Sequence[str], opening: str = "") -> list[Prompt]:
    """Return questions as they are asked, in training too.

    Chat messages where the tokenizer has a template, else a line of its own for each, behind an ``opening``: an
    adapter's ``config.question_opening``.
    """
    questions = listed("questions", questions)
    for i, question in enumerate(questions):
        if not question.strip():
            raise ValueError(f"question {i} is empty, got {question!r}")
        if HALF_PAIR.search(question):
            raise ValueError(f"question {i} holds half a surrogate pair, got {question!r}; type UTF-8")
    if getattr(tokenizer, "chat_template", None):
        return [[{"role": "user", "content": question}] for question in questions]
    return [PlainText(f"{opening}{question}\n") for question in questions]


def encode_prompt(tokenizer: Any, prompt: Prompt, index: int = 0) -> list[int]:
    """Return a prompt's tokens; messages end where the answer begins, and their contents are `PlainText`."""
    if isinstance(prompt, str):
        plain = isinstance(prompt, PlainText)
        if not plain and _has_answer(tokenizer, prompt):
            raise ValueError(f"prompt {index} holds an answered turn, {_ALONE}")
        ids = text_ids(tokenizer, prompt) if plain else tokenizer(prompt)["input_ids"]
    else:
        ids = _encode_messages(tokenizer, list(prompt), index)
    if not ids or (isinstance(prompt, str) and not prompt.strip()):
        raise ValueError(f"prompt {index} has no tokens, or only blanks: {prompt!r}")
    return ids


def _has_answer(tokenizer: Any, prompt: str) -> bool:
    """Say whether the chat template wrote a text from more than one question."""
    roles = {"\ue001": "user", "\ue002": "assistant", "\ue003": "user"}
    turns = [{"role": role, "content": word} for word, role in roles.items()]
    try:
        written = tokenizer.apply_chat_template(turns, tokenize=False)
        answer, question = (written.split(one)[1].split(next)[0] for one, next in pairwise(roles))
    except Exception:  # there is no template, or it knows no second question
        return False
    # Without marks of its own what stands between two turns could be anything.
    return as_text(tokenizer, question) != question and question in prompt.partition(answer)[2]


def _encode_messages(tokenizer: Any, messages: list[Any], index: int) -> list[int]:
    if not getattr(tokenizer, "chat_template", None):
        raise ValueError(f"prompt {index} is messages, but the tokenizer has no chat template; pass text")
    plain = [read_message(message, f"prompt {index}") for message in messages]
    roles = [message["role"] for message in plain]
    if roles.count("user") != 1 or roles[-1] != "user":
        raise ValueError(f"prompt {index} must end with the one message of the user, {_ALONE}")
    # the template's own control tokens have no marks
    contents = [message | {"content": as_text(tokenizer, message["content"])} for message in plain]
    try:
        written = tokenizer.apply_chat_template(contents, add_generation_prompt=True, tokenize=False)
    except Exception as error:  # a template is a program: it may raise anything
        raise ValueError(
            f"the tokenizer's chat template cannot write prompt {index} ({type(error).__name__}: {error}); mend "
            "chat_template.jinja in the folder of the adapter or model, or remove it"
        ) from None
    return encode_marked(tokenizer, written)


def read_message(message: Mapping[str, Any], place: str) -> dict[str, str]:
    """Return role and text of a message; of whatever else it holds a template could make control tokens."""
    held = message if isinstance(message, Mapping) else {}
    role, content = held.get("role"), held.get("content")
    if role not in ROLES:
        raise ValueError(f"{place} holds a turn of the {role}, expected {', '.join(ROLES)}: {_ALONE}")
    if isinstance(content, list | tuple):
        parts: list[Any] = [
            isinstance(part, Mapping) and part.get("type") == "text" and part.get("text") for part in content
        ]
        content = "".join(parts) if all(isinstance(part, str) for part in parts) else None
    if not isinstance(content, str) or not content.strip() or HALF_PAIR.search(content):
        raise ValueError(f"{place} holds a message whose content is empty or no text, got {message!r:.80}")
    return {"role": role, "content": content}
