"""Prompt templates: versioned text in TOML files, and the one with which every tool and every benchmark row asks.

A template has sections (``answer``, ``answer_without_rules``, ...), each one text for both representations or a table
with ``fol`` and ``nl``. ``{rules}``, ``{question}`` and other names in braces are filled in; every other brace is text.
The rules come first and the question last, so that questions on one pool share a prefix.
"""

import hashlib
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from ..spec import VERSION, VERSIONS

__all__ = [
    "Prompt",
    "Template",
    "answer_template",
    "parse_template",
    "template_named",
    "with_refusal",
]

_KINDS: dict[str, type] = dict.fromkeys(("name", "version", "separator", "request"), str) | {
    "chat": bool,
    "remove": list,
}
REFUSAL = "Where the rules do not say, the answer is: unknown."
_FIELD = re.compile(r"\{(rules|question|thoughts|history)\}")


@dataclass(frozen=True)
class Prompt:
    """One prompt: the whole text.

    ``begun`` is what the model has written of its answer and is to continue. ``parts`` are the words of the template
    and what was filled in, in turn: only the former may hold control tokens of a model.
    """

    text: str
    begun: str = ""
    parts: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Template:
    """A prompt template."""

    name: str  # with the version what reports call it
    version: str
    sha256: str  # of the file's bytes
    chat: bool = True  # goes through the model's chat template where it has one; else it is text to continue
    separator: str = "\n"  # between two rules
    remove: tuple[str, ...] = ()  # marks of the model's own format that are taken out of its output
    # Beginning of a line with which the model asks for rules, if it was trained to; empty: it was not. Where nobody
    # answers, a local model's answer cannot open with the first token of it, so steps should open with another one.
    request: str = ""
    # Section -> text, or section -> representation -> text.
    sections: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def id(self) -> str:
        """Name, version and hash: what a spec holds."""
        return f"{self.name}-{self.version}@{self.sha256[:12]}"

    def has(self, section: str) -> bool:
        """Say whether the template has a section."""
        return section in self.sections

    def render(
        self, section: str, representation: str, question: str, rules: Sequence[str] = (), **fields: str
    ) -> Prompt:
        """Fill a section in.

        Parameters
        ----------
        section : str
        representation : {"fol", "nl"}
        question : str
        rules : sequence of str
            Written one after another with the template's separator.
        **fields
            What the section names besides.

        Raises
        ------
        ValueError
            If the template has no such section.
        """
        text = self.sections.get(section)
        if isinstance(text, Mapping):
            text = text.get(representation)
        if not isinstance(text, str):
            raise ValueError(
                f"prompt template {self.name!r} has no section {section!r} for {representation!r}; it has: "
                f"{', '.join(self.sections)}"
            )
        values = {"question": question, "rules": self.separator.join(rules), **fields}
        # In one pass: what is filled in is never looked at again.
        pieces = enumerate(_FIELD.split(text))
        parts = tuple(values.get(piece, f"{{{piece}}}") if at % 2 else piece for at, piece in pieces)
        return Prompt("".join(parts), parts=parts)

    def clean(self, output: str) -> str:
        """Return a model's output without the marks of its own format."""
        for mark in self.remove:
            output = output.replace(mark, "")
        return output


@cache
def answer_template(version: str = VERSION) -> Template:
    """Return this package's template for a version of the data: ``answer`` and ``answer_without_rules``."""
    name = "answer.toml" if version == VERSIONS[0] else f"answer-{version}.toml"
    return parse_template(files(__name__).joinpath(name).read_bytes(), name)


def template_named(identity: str) -> Template:
    """Return the template of this package that has an id; for any other id that of the current data."""
    return next((made for made in map(answer_template, VERSIONS) if made.id == identity), answer_template())


def with_refusal(question: str, subtask: str) -> str:
    """Return a question as it is asked: in a sub-task where some have no answer, with what to answer then."""
    return f"{question} {REFUSAL}" if subtask.startswith("unknown") else question


def parse_template(body: bytes, where: str) -> Template:
    """Read the bytes of a template file; ``where`` names it in messages.

    Raises
    ------
    ValueError
        If it is no TOML, lacks name or version, or a section holds something else than text.
    """
    try:
        values = tomllib.loads(body.decode())
        known = {name: values.pop(name) for name in _KINDS if name in values}
        for name, kind in _KINDS.items():
            if not isinstance(known.get(name, kind()), kind):
                raise TypeError(f"{name} must be a {kind.__name__}, got {known[name]!r:.60}")
        if not all(isinstance(mark, str) and mark for mark in known.get("remove", ())):
            raise TypeError(f"remove must be a list of texts, got {known['remove']!r:.60}")
        known["remove"] = tuple(known.get("remove", ()))
        template = Template(sha256=hashlib.sha256(body).hexdigest(), sections=values, **known)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, TypeError, RecursionError) as error:
        raise ValueError(
            f"{where} is no prompt template ({error}); it needs name, version and a section such as [answer] with "
            "fol and nl, as in ruleworld_data/prompts/answer.toml"
        ) from None
    for section, texts in values.items():
        for text in texts.values() if isinstance(texts, Mapping) else (texts,):
            if not isinstance(text, str):
                raise ValueError(f"{where}: section {section!r} must hold text, got {text!r}")
    return template
