"""How rules join a model's attention: one PEFT configuration for DynaRule, SR-KI and KBLaM alike."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, cast

import torch
from huggingface_hub import hf_hub_download
from peft import PeftConfig
from peft.utils import CONFIG_NAME, SAFETENSORS_WEIGHTS_NAME, WEIGHTS_NAME
from torch import nn

from ._files import read_shapes, write_whole
from .base_model import LARGEST, BaseModel, check_fields
from .projection import RuleProjection

if TYPE_CHECKING:
    from .memory.serving import RuleMemory

__all__ = ["DynaRuleConfig", "dynarule_config", "kblam_config", "srki_config"]

UpdateScope = Literal["confidence", "none"]
SearchPlace = Literal["before", "behind", "premise"]
MAY_BE_ZERO = (
    "first_layer confidence_layer score_weight min_support search_offsets search_tail lookahead word_weight"
).split()
NAME = "DYNARULE"
CONFIG_FILE, WEIGHTS_FILE = CONFIG_NAME, SAFETENSORS_WEIGHTS_NAME
"""The two files of an adapter folder, under PEFT's names."""
PICKLED = WEIGHTS_NAME
"""What PEFT reads where the second is missing."""
HUB_OPTIONS = "revision", "cache_dir", "token", "local_files_only", "force_download"
LARGEST_CONFIG = 1 << 20
"""Bytes; the curve of a confidence layer is the longest thing in it."""
BLOCKS = {"self_attn"}
"""What attention blocks are called in all families."""

UNUSED: dict[str, Any] = {
    "key_norm": True, "reading": "vector", "together": False, "score_limit": None,
    "word_weight": 0.0, "word_stemmer": "", "search_heads": 0, "search_offsets": 0, "search_tail": 0,
    "lookahead": 0, "lookahead_width": 16, "exclude_modules": None, "layers_pattern": None, "modules_to_save": None,
}  # fmt: skip
"""What files of dynarule 0.2 say in any adapter, and what means nothing at these values."""


class _PeftType(str):
    """The method's name, with the ``value`` that members of PEFT's enum have.

    PEFT 0.21, the latest, registers members of the enum alone (``register_peft_method``), and to an enum nothing can be
    added. Its tables take any text.
    """

    @property
    def value(self) -> str:
        """The name."""
        return str(self)


class _OfFile(type):
    def __call__(cls, *args: Any, **values: Any) -> Any:
        """Make the configuration that a file means, of which PEFT would drop what `DynaRuleConfig` does not have."""
        if cls is DynaRuleConfig and values.get("peft_type") == NAME:
            return _from_values(values)
        return super().__call__(*args, **values)


@dataclass
class DynaRuleConfig(PeftConfig, metaclass=_OfFile):
    """What a rule memory looks like and when it is read; the three methods are settings of it.

    See `dynarule_config`, `srki_config` and `kblam_config`. ``trainable_token_indices`` is the row of ``<search>``, see
    `dynarule.search_token.token_rows`. PEFT 0.21 saves several adapters of one model only if all of them train rows,
    or none does. A subclass with settings of its own says in `make_projection` and `memory_class` what they change.
    """

    encoder_dim: int = 0  # P, width of the sentence embeddings
    every: int = 1  # rules join every n-th layer, from first_layer
    first_layer: int = 0  # 0-based layer from which rules join
    top_k: int | None = 100  # K, rules kept per layer; None keeps all
    confidence_layer: int | None = None  # 0-based layer that <search> re-reads; measured, never guessed
    update_scope: UpdateScope = "confidence"  # where <search> replaces rules
    shared_after: bool = False  # later layers read the rules that the confidence layer keeps
    score_weight: float = 0.0  # of a kept rule's score, in the attention to it; 0: none, as in the paper
    length_shift: float | None = None  # C: adds log C - log(rules attended) to rule scores (KBLaM)
    encoder: str = ""  # fingerprint of the rules' encoder; "" fits every bank of the width
    search_token: str | None = None  # text of the trained token, <search>
    search_place: SearchPlace = "before"  # of a step: before or behind its header, or behind a rule's premise
    search_cues: list[int] = field(default_factory=list)  # tokens with which a text goes on behind a premise
    min_support: float = 0.0  # of a search's best rule, below which no rule says so; 0: always answers
    curve: dict[str, Any] | None = None  # measured entropies behind the confidence layer
    base: dict[str, Any] | None = None  # shapes and hash of the base model, see BaseModel
    layer_convention: Literal["0-based"] = "0-based"  # how this file counts layers
    target_modules: set[str] | list[str] = field(default_factory=lambda: set(BLOCKS))
    layers_to_transform: list[int] | None = None  # the layers that hold rules, set from `every`
    trainable_token_indices: list[int] | dict[str, list[int]] | None = None  # vocabulary rows to train

    def __post_init__(self) -> None:
        super().__post_init__()
        self.peft_type = _PeftType(NAME)
        self.task_type = self.task_type or "CAUSAL_LM"
        self.validate()

    def validate(self) -> None:
        """Raise ValueError that names the first setting that cannot be."""
        check_fields(self, MAY_BE_ZERO, LARGEST, DynaRuleConfig.__annotations__)
        first, every, layer = self.first_layer, self.every, self.confidence_layer
        if layer is not None and (layer < first or (layer - first) % every):
            raise ValueError(
                f"confidence_layer must be a layer that holds rules ({first}, {first + every}, {first + 2 * every}, "
                f"...), got {layer}"
            )
        if self.shared_after and self.top_k is None:
            raise ValueError("shared_after needs top_k: without it every layer reads all rules")
        reading = getattr(self, "reading", "vector")
        if self.score_weight and not self.shared_after and reading == "vector":
            raise ValueError("score_weight weighs rules that all layers read; set shared_after to true")
        if not all(type(cue) is int and cue >= 0 for cue in self.search_cues):
            raise ValueError(f"search_cues must be ids of tokens, got {self.search_cues!r:.60}")
        if self.length_shift is not None and (self.score_weight or reading != "vector"):
            raise ValueError(
                f"length_shift {self.length_shift} shifts vectors whose scores nothing else weighs, got score_weight "
                f"{self.score_weight} and reading {reading!r:.60}; set length_shift to null"
            )
        if not self.min_support < 2:
            raise ValueError(f"min_support must be a share from 0 to 1, got {self.min_support!r:.60}")
        # Folders come from strangers, and PEFT reads a text here as a regular expression.
        if set(self.target_modules) != BLOCKS:
            raise ValueError(f"target_modules must be {sorted(BLOCKS)}, got {self.target_modules!r:.60}")
        self.target_modules = set(BLOCKS)
        if self.trainable_token_indices is not None and self.search_id is None:
            raise ValueError(
                f"trainable_token_indices must be the one row of <search>, got {self.trainable_token_indices!r:.60}"
            )

    @property
    def search_id(self) -> int | None:
        """Id of the trained ``<search>``, None without one."""
        rows = self.trainable_token_indices
        first, *others = rows.values() if isinstance(rows, dict) and rows else [rows]
        if not isinstance(first, list) or len(first) != 1 or any(ids != first for ids in others):
            return None
        return first[0] if type(first[0]) is int and first[0] >= 0 else None

    @property
    def own_mark(self) -> bool:
        """Whether ``<search>`` is a mark that the base writes by itself, before the first step too."""
        return self.search_token is not None and self.search_id is None

    def layers(self, num_layers: int) -> list[int]:
        """Return the layers that hold rules."""
        return list(range(self.first_layer, num_layers, self.every))

    def shares(self, layer: int) -> bool:
        """Return whether a layer reads the rules that the confidence layer keeps."""
        return self.shared_after and self.confidence_layer is not None and layer > self.confidence_layer

    def make_projection(self, block: nn.Module) -> nn.Module:
        """Return what stands beside an attention block that holds rules."""
        return RuleProjection(block, self.encoder_dim)

    def memory_class(self) -> type[RuleMemory]:
        """Return what reads rules with such an adapter."""
        from .memory.serving import RuleMemory

        return RuleMemory

    @property
    def question_opening(self) -> str:
        """What stands before a question that has no chat template."""
        return ""

    def updated_layers(self, num_layers: int) -> list[int]:
        """Return the layers whose rules a ``<search>`` token replaces."""
        if self.update_scope == "none" or self.confidence_layer is None:
            return []
        held = self.layers(num_layers)
        return [layer for layer in held if layer == self.confidence_layer or self.shares(layer)]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return asdict(self) | {"target_modules": sorted(self.target_modules)}

    def save_pretrained(self, save_directory: Any, **kwargs: Any) -> None:
        """Write ``adapter_config.json``, whole or not at all; PEFT calls it right after it has written the weights."""
        written = [Path(save_directory) / name for name in (WEIGHTS_FILE, PICKLED)]
        newest = max(filter(Path.is_file, written), key=lambda path: path.stat().st_mtime_ns, default=None)
        if newest == written[1]:
            raise ValueError(
                f"{newest} is a pickle, which may run code and is not read; delete it, and save the adapter without "
                "safe_serialization=False"
            )
        values = self.to_dict() | {"auto_mapping": kwargs.get("auto_mapping_dict") or self.auto_mapping}
        Path(save_directory).mkdir(parents=True, exist_ok=True)
        write_whole(Path(save_directory) / CONFIG_FILE, json.dumps(values, indent=2, sort_keys=True))

    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path: Any, subfolder: str | None = None, **kwargs: Any
    ) -> Self:
        """Read ``adapter_config.json``, and check the weights of a folder against it without reading them.

        Raises
        ------
        FileNotFoundError
            If a folder holds no adapter.
        ValueError
            If a file is damaged, has unknown keys, or the two do not belong together.
        """
        folder = Path(pretrained_model_name_or_path) / (subfolder or "")
        path, weights = folder / CONFIG_FILE, folder / WEIGHTS_FILE
        name = pretrained_model_name_or_path
        # A repository of the Hub; a Path, as of the command line, is never one.
        if isinstance(name, str) and not folder.exists() and re.fullmatch(r"[\w.-]+/[\w.-]+", name):
            options = {name: kwargs[name] for name in HUB_OPTIONS if name in kwargs}
            path = Path(hf_hub_download(name, CONFIG_FILE, subfolder=subfolder, **options))
        elif not path.is_file():
            raise FileNotFoundError(
                f"no {CONFIG_FILE} in {folder}: not an adapter folder; save one with model.save_pretrained(folder)"
            )
        if path.stat().st_size > LARGEST_CONFIG:
            raise ValueError(f"{path} has {path.stat().st_size:,} bytes: no adapter's; copy it again")
        if not weights.is_file() and (folder / PICKLED).exists():
            raise ValueError(f"{folder / PICKLED} is a pickle, which may run code; save the adapter again")
        try:
            config = _from_values(json.loads(path.read_text(encoding="utf-8")))
            base = None if config.base is None else BaseModel(**config.base)
        except (UnicodeDecodeError, json.JSONDecodeError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"{path} is damaged ({error!r:.300}); copy or save the adapter again") from None
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        if weights.is_file():
            if base is None:
                raise ValueError(f"{path} does not say which base model it is for; save the adapter again")
            config.check_weights(weights, base)
        return cast(Self, config)

    def check_weights(self, path: Path, base: BaseModel) -> None:
        """Compare names and shapes in a file with those that follow from this configuration."""
        given = read_shapes(path)
        # Of those that a layer may have, the confidence layer's is of one kind, all others' of another.
        own, other = _shapes(self, base, self.confidence_layer), _shapes(self, base, -1)
        older = _shapes(DynaRuleConfig(encoder_dim=self.encoder_dim), base, -1)
        expected: dict[str, tuple[int, ...]] = {}
        for layer in self.layers(base.num_layers):
            place = f"base_model.model.model.layers.{layer}.self_attn.dynarule_projection"
            # Older files, those of the shipped adapters among them, hold projections that nothing reads.
            unread = {name: shape for name, shape in older.items() if f"{place}.{name}" in given}
            shapes = unread | (own if layer == self.confidence_layer else other)
            expected |= {f"{place}.{name}": shape for name, shape in shapes.items()}
        rows = self.trainable_token_indices
        for module in rows if isinstance(rows, dict) else ["embed_tokens"] if rows else []:
            parent = "" if module == "lm_head" else "model."
            name = f"base_model.model.{parent}{module}.token_adapter.trainable_tokens_delta"
            expected[name] = (1, base.hidden_size)
        wrong = sorted(name for name in {*expected, *given} if expected.get(name) != given.get(name))
        if wrong:
            raise ValueError(
                f"{path}: tensor {wrong[0]!r} is missing, unknown or of another shape (file {given.get(wrong[0])}, "
                f"expected {expected.get(wrong[0])}; {len(wrong)} in all); {CONFIG_FILE} and the weights do not belong "
                "together: copy the adapter again"
            )


def _from_values(values: Any) -> DynaRuleConfig:
    """Return the configuration of a file's values."""
    if values.get("peft_type") != NAME:
        raise ValueError(f"peft_type must be {NAME!r}, got {values.get('peft_type')!r:.60}")
    values = {name: value for name, value in values.items() if name not in UNUSED or value != UNUSED[name]}
    kind = config_class(values)
    unknown = sorted(set(values) - {f.name for f in fields(kind)})
    if unknown:
        raise ValueError(f"it has unknown keys {unknown[:5]}; update dynarule")
    return kind(**{name: value for name, value in values.items() if name != "peft_type"})


def config_class(settings: Mapping[str, Any]) -> type[DynaRuleConfig]:
    """Return the class that has all these settings: this module's, or where they name others, DynaRule+'s."""
    if settings.keys() <= {f.name for f in fields(DynaRuleConfig)}:
        return DynaRuleConfig
    from .plus.config import PlusConfig

    return PlusConfig


def _shapes(config: DynaRuleConfig, base: BaseModel, layer: int | None) -> dict[str, tuple[int, ...]]:
    """Return names and shapes of what a layer of a base model has beside its attention; no memory is taken."""
    with torch.device("meta"):
        block: Any = nn.Module()
        block.q_proj = nn.Linear(base.hidden_size, base.query_size, bias=base.query_bias)
        block.head_dim, block.layer_idx = base.head_dim, layer
        projection = config.make_projection(block)
    return {name: tuple(value.shape) for name, value in projection.state_dict().items()}


def dynarule_config(encoder_dim: int, confidence_layer: int | None = None, **changes: Any) -> DynaRuleConfig:
    """Return the paper's setting: every layer, K = 100, ``<search>`` re-reads the confidence layer.

    It stands behind a step's header, where a model knows what it is about to write; before it in adapters whose file
    says nothing. With settings of `dynarule.plus.PlusConfig` among the changes, one of those.
    """
    changes = {"search_place": "behind"} | changes
    return config_class(changes)(encoder_dim=encoder_dim, confidence_layer=confidence_layer, **changes)


def srki_config(encoder_dim: int, confidence_layer: int | None = None, **changes: Any) -> DynaRuleConfig:
    """Return SR-KI's setting: every layer, K = 100, one selection at prefill and no ``<search>``.

    Its retrieval loss is at ``confidence_layer``. Unlike the published code, pads never count in the selection, any
    batch decodes with the rules of its prefill, and no rule is favoured by its place.
    """
    return dynarule_config(encoder_dim, confidence_layer, **({"update_scope": "none"} | changes))


def kblam_config(encoder_dim: int, length_shift: float | None = None, **changes: Any) -> DynaRuleConfig:
    """Return KBLaM's setting: every third layer, all rules attended, optional length shift.

    The shift log C - log(rules attended) is off by default, as in the published code. Unlike there, keys are normalised
    within a layer (there across all layers' slices at once), and with ``top_k`` the scores of the selected rules are
    used, selected once at prefill (there the first columns' scores, selected again at every token).
    """
    settings: dict[str, Any] = {"every": 3, "top_k": None, "length_shift": length_shift}
    return dynarule_config(encoder_dim, **(settings | changes))
