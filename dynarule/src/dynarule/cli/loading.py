"""Models, adapters, rules and questions, from what the command line names."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..serve.unfamiliar import unfamiliar
from . import shared
from .shared import note, note_parts, note_unseen

MOST_TEXTS = 2_000
"""Texts whose words are looked at before an answer."""

if TYPE_CHECKING:
    from ..bank.bank import RuleBank
    from ..bank.sources import Rules


def quiet_libraries() -> None:
    """Keep transformers' bars, and notices to developers, out of our stderr; errors still come through."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    warnings.filterwarnings("ignore", category=FutureWarning)


def load_model(name: str, adapter: Path | None, device: str | None) -> tuple[Any, Any]:
    """Load a base model and its tokenizer, the adapter's own tokenizer if it has one."""
    import torch
    from transformers import AutoModelForCausalLM

    from ..tokenizer import load_tokenizer

    quiet_libraries()
    source = adapter if adapter is not None and (adapter / "tokenizer_config.json").is_file() else name
    try:
        tokenizer = load_tokenizer(source)
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            name, dtype="auto", trust_remote_code=False, output_loading_info=True
        )
        model, report = loaded
        if missing := sorted(report["missing_keys"]):  # they would be drawn at random
            raise ValueError(f"{len(missing)} weights are missing, such as {missing[0]}: copy it again")
    except Exception as error:  # whatever a damaged folder makes of a library's loader
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(
            f"cannot load the model {name!r} ({first}); give the folder of a causal model, or its name on the Hub"
        ) from None
    return model.to(device or ("cuda" if torch.cuda.is_available() else "cpu")).eval(), tokenizer


def load_rules(path: Path, encoder: str | None, like: str, model: Any, tokenizer: Any) -> RuleBank:
    """Load a bank folder, or encode a file of rules; by default with the encoder of fingerprint ``like``."""
    from ..bank.bank import RuleBank

    if not path.is_dir():
        rules = read_file(path)  # before an encoder is loaded for nothing
        encode = rule_encoder(encoder, like=like, model=model, tokenizer=tokenizer)
        return RuleBank.from_rules(rules, encode)
    bank = RuleBank.load(path)
    name = bank.encoder.split("@")[0]
    meant = encoder and (encoder, Path(encoder).name, {"minilm": "all-MiniLM-L6-v2"}.get(encoder))
    if meant and name and name not in meant:
        raise ValueError(
            f"--encoder {encoder}, but the bank {path} was built with {name}; leave --encoder out, or build it again: "
            f"dynarule bank build RULES --out BANK --encoder {encoder}"
        )
    return bank


def read_file(path: Path) -> Rules:
    """Read a file of rules."""
    from ..bank.sources import read_rules

    rules = read_rules(path)
    note_parts(rules)
    return rules


def rule_encoder(encoder: str | None, *, like: str = "", model: Any = None, tokenizer: Any = None) -> Any:
    """Open the encoder that is named, else the one of fingerprint ``like``."""
    from ..bank.encoders import encoder_of, open_encoder

    quiet_libraries()
    return open_encoder(encoder, model, tokenizer) if encoder else encoder_of(like, model, tokenizer)


@dataclass(frozen=True)
class Reading:
    """How rules are read from a file, and what encodes them."""

    encoder: shared.EncoderOption = None
    model: Annotated[
        str | None, typer.Option("--model", help="The model that will answer, for --encoder layers:N.")
    ] = None
    adapter: Annotated[
        Path | None, typer.Option("--adapter", help="The adapter that will read it: its encoder is taken.")
    ] = None

    def read(self, path: Path) -> Rules:
        """Read a file of rules."""
        if path.is_dir():
            raise ValueError(f"{path} is a folder; expected a file of rules (.parquet, .csv, .tsv or text)")
        rules = read_file(path)
        note_unseen("rules", rules.texts)
        return rules

    def open_encoder(self, like: str = "") -> Any:
        """Open the encoder that is named, else the one of a fingerprint, or of the adapter."""
        from ..config import DynaRuleConfig

        if self.adapter is not None:
            like = like or DynaRuleConfig.from_pretrained(self.adapter).encoder
        base, tokenizer = (None, None) if self.model is None else load_model(self.model, None, None)
        return rule_encoder(self.encoder, like=like, model=base, tokenizer=tokenizer)


@dataclass(frozen=True)
class Served:
    """The model, the adapter and the rules that a command answers with."""

    model: shared.ModelOption
    adapter: shared.AdapterOption
    rules: shared.RulesOption
    encoder: shared.EncoderOption = None
    device: shared.DeviceOption = None
    min_support: shared.MinSupportOption = None

    def load(self) -> tuple[Any, Any, Any]:
        """Load the base model with its adapter, its tokenizer and a bank for it; cheap checks first."""
        from ..adapter import load_adapter
        from ..config import DynaRuleConfig

        config = DynaRuleConfig.from_pretrained(self.adapter)
        if not self.rules.exists():
            raise FileNotFoundError(f"no rules at {self.rules}; give a bank, .parquet, .csv, .tsv or text")
        base, tokenizer = load_model(self.model, self.adapter, self.device)
        if self.min_support is not None:
            config.min_support = self.min_support
        tuned = load_adapter(base, self.adapter, tokenizer, config=config)
        bank = load_rules(self.rules, self.encoder, config.encoder, tuned, tokenizer)
        warn_of_unknown(tokenizer, bank.texts, "rules")
        bank.to(base.device, base.dtype)
        return tuned, tokenizer, bank


def warn_of_unknown(tokenizer: Any, texts: Sequence[str], what: str = "questions") -> None:
    """Say which words of questions, or of rules, a model's training did not hold: of many texts, of some all over."""
    note_unseen(what, texts)
    unknown, count = unfamiliar(tokenizer, texts[:: max(1, len(texts) // MOST_TEXTS)])
    if unknown:
        note(
            f"the model has no tokens for {len(unknown)} of {count} words of the {what}, such as "
            f"{', '.join(unknown[:5])}, so its answer means little; for rules in words of your own take a language "
            "model that knows them, and train an adapter for it: dynarule train --help"
        )
