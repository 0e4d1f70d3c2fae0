"""How rules join a model's attention: one PEFT configuration for DynaRule, SR-KI and KBLaM alike."""

from __future__ import annotations

import json
import math
import re
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, Self, get_args

from peft import PeftConfig, PeftType
from peft.utils import CONFIG_NAME, SAFETENSORS_WEIGHTS_NAME, WEIGHTS_NAME
from Stemmer import algorithms

from ._files import read_shapes, refuse_unfinished, write_whole
from .base_model import LARGEST, BaseModel
from .plus.reader import KEY_WIDTH, PLACE_WIDTH

__all__ = ["DynaRuleConfig", "dynarule_config", "kblam_config", "srki_config"]

UpdateScope = Literal["confidence", "confidence_and_after", "all", "none"]
Reading = Literal["vector", "tokens"]
NAME = "DYNARULE"
CONFIG_FILE, WEIGHTS_FILE = CONFIG_NAME, SAFETENSORS_WEIGHTS_NAME
"""The two files of an adapter folder, under PEFT's names."""
PICKLED = WEIGHTS_NAME
"""What PEFT reads where the second is missing."""
LARGEST_CONFIG = 1 << 20
"""Bytes; the curve of a confidence layer is the longest thing in it."""

if NAME not in PeftType.__members__:  # an enum that PEFT has no public way to extend, hence peft>=0.21,<0.22
    member = str.__new__(PeftType, NAME)
    member._name_ = member._value_ = NAME
    PeftType._member_map_[NAME] = member
    PeftType._member_names_.append(NAME)
    PeftType._value2member_map_[NAME] = member
    type.__setattr__(PeftType, NAME, member)  # Python 3.12 looks names up on the class


@dataclass
class DynaRuleConfig(PeftConfig):
    """What a rule memory looks like and when it is read; the three methods are settings of it.

    See `dynarule_config`, `srki_config` and `kblam_config`. ``trainable_token_indices`` is the row of ``<search>``, see
    `dynarule.search_token.token_rows`. PEFT 0.21 saves several adapters of one model only if all of them train rows,
    or none does.
    """

    encoder_dim: int = field(default=0, metadata={"help": "P, width of the sentence embeddings"})
    every: int = field(default=1, metadata={"help": "rules join every n-th layer, from first_layer"})
    first_layer: int = field(default=0, metadata={"help": "0-based layer from which rules join"})
    key_norm: bool = field(default=True, metadata={"help": "LayerNorm without parameters on projected keys"})
    top_k: int | None = field(default=100, metadata={"help": "K, rules kept per layer; None keeps all"})
    confidence_layer: int | None = field(
        default=None, metadata={"help": "0-based layer that <search> re-reads; measured, never guessed"}
    )
    update_scope: UpdateScope = field(
        default="confidence", metadata={"help": "layers whose rules <search> replaces"}
    )
    shared_after: bool = field(
        default=False, metadata={"help": "later layers read the rules that the confidence layer keeps"}
    )
    reading: Reading = field(
        default="vector",
        metadata={"help": "what is read of a kept rule: one value, or its tokens' own states"},
    )
    score_weight: float = field(
        default=0.0, metadata={"help": "of a kept rule's score, in the attention to its tokens; 0: none"}
    )
    score_limit: float | None = field(
        default=None, metadata={"help": "most that a score takes from that attention; None: any amount"}
    )
    together: bool = field(
        default=False, metadata={"help": "rules found together are read as one text, as in a prompt"}
    )
    word_weight: float = field(
        default=0.0, metadata={"help": "of words that text and rules share, in what a search finds; 0: none"}
    )
    word_stemmer: str = field(
        default="",
        metadata={"help": "of Snowball (english, say): goes by words' stems, not letters; '': as written"},
    )
    length_shift: float | None = field(
        default=None, metadata={"help": "C: adds log C - log(rules attended) to rule scores (KBLaM)"}
    )
    search_heads: int = field(
        default=0, metadata={"help": "heads that read the text for a search; 0: its token alone (paper)"}
    )
    search_offsets: int = field(
        default=0, metadata={"help": "tokens told apart around the last step's place in the question"}
    )
    search_tail: int = field(
        default=0, metadata={"help": "tokens at the end of question and last step that a search tells apart"}
    )
    lookahead: int = field(
        default=0, metadata={"help": "backward levels from what is asked (not the paper's); 0: none"}
    )
    lookahead_width: int = field(default=16, metadata={"help": "rules that a backward level goes on from"})
    encoder: str = field(
        default="", metadata={"help": "fingerprint of the rules' encoder; '' fits every bank of the width"}
    )
    search_token: str | None = field(default=None, metadata={"help": "text of the trained token, <search>"})
    curve: dict[str, Any] | None = field(
        default=None, metadata={"help": "measured entropies behind the confidence layer"}
    )
    base: dict[str, Any] | None = field(
        default=None, metadata={"help": "shapes and hash of the base model, see BaseModel"}
    )
    layer_convention: str = field(default="0-based", metadata={"help": "how this file counts layers"})
    target_modules: set[str] | list[str] | str | None = field(
        default_factory=lambda: {"self_attn"}, metadata={"help": "names of the attention blocks"}
    )
    exclude_modules: list[str] | str | None = field(default=None, metadata={"help": "blocks to leave alone"})
    layers_to_transform: list[int] | int | None = field(
        default=None, metadata={"help": "set from `every`; the layers that hold rules"}
    )
    layers_pattern: list[str] | str | None = field(default=None, metadata={"help": "name of the layer list"})
    modules_to_save: list[str] | None = field(
        default=None, metadata={"help": "modules trained and saved whole"}
    )
    trainable_token_indices: list[int] | dict[str, list[int]] | None = field(
        default=None, metadata={"help": "vocabulary rows to train"}
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.peft_type = PeftType(NAME)
        self.task_type = self.task_type or "CAUSAL_LM"
        if isinstance(self.target_modules, list):
            self.target_modules = set(self.target_modules)
        self.validate()

    def validate(self) -> None:
        """Raise ValueError that names the first setting that cannot be."""
        for name in ("encoder_dim", "every", "top_k"):
            value = getattr(self, name)
            if (value is not None or name != "top_k") and (type(value) is not int or value < 1):
                raise ValueError(f"{name} must be a positive integer, got {value!r:.60}")
        if self.encoder_dim > LARGEST:
            raise ValueError(f"encoder_dim must be {LARGEST:,} at most, got {self.encoder_dim}")
        for name, least in (
            ("first_layer", 0),
            ("search_heads", 0),
            ("search_offsets", 0),
            ("search_tail", 0),
            ("lookahead", 0),
            ("lookahead_width", 1),
        ):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise ValueError(f"{name} must be {least} or more, got {value!r:.60}")
        for name in ("lookahead", "search_offsets", "search_tail", "word_weight"):
            if getattr(self, name) and not self.search_heads:
                raise ValueError(f"{name} needs heads that read the text; set search_heads, such as 4")
        if self.search_heads and self.confidence_layer is None:
            raise ValueError("search_heads read at the confidence layer; set confidence_layer")
        if self.confidence_layer is not None and type(self.confidence_layer) is not int:
            raise ValueError(f"confidence_layer must be a whole number, got {self.confidence_layer!r:.60}")
        first, every = self.first_layer, self.every
        if self.confidence_layer is not None and (
            self.confidence_layer < first or (self.confidence_layer - first) % every
        ):
            raise ValueError(
                f"confidence_layer must be a layer that holds rules ({first}, {first + every}, {first + 2 * every}, "
                f"...), got {self.confidence_layer}"
            )
        if self.shared_after and self.top_k is None:
            raise ValueError("shared_after needs top_k: without it every layer reads all rules")
        known: dict[str, tuple[str, ...]] = {
            "update_scope": get_args(UpdateScope),
            "reading": get_args(Reading),
            "word_stemmer": ("", *algorithms()),
        }
        for name, names in known.items():
            if getattr(self, name) not in names:
                raise ValueError(f"{name} must be one of {names}, got {getattr(self, name)!r:.60}")
        if self.together and self.reading != "tokens":
            raise ValueError(
                f"together is of rules that are read as tokens, got reading={self.reading!r:.60}"
            )
        for name in ("score_weight", "word_weight"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be 0 or more, got {getattr(self, name)!r}")
            if getattr(self, name) and self.reading != "tokens":
                raise ValueError(f'{name} is for rules that are read as tokens; set reading to "tokens"')
        if self.score_limit is not None and not 0 < self.score_limit < math.inf:
            raise ValueError(f"score_limit must be positive or None, got {self.score_limit!r}")
        if self.length_shift is not None and not 0 < self.length_shift < math.inf:
            raise ValueError(f"length_shift must be positive or None, got {self.length_shift!r}")
        self._check_names()
        if self.layer_convention != "0-based":
            raise ValueError(f"layer_convention must be '0-based', got {self.layer_convention!r}")

    def _check_names(self) -> None:
        """Refuse what PEFT would read as a regular expression, and lists of any length: folders come from strangers."""
        for name in ("target_modules", "exclude_modules", "layers_pattern"):
            value = getattr(self, name)
            names = [value] if isinstance(value, str) and name != "target_modules" else value
            if value is not None and not (
                isinstance(names, list | set)
                and all(isinstance(each, str) and re.fullmatch(r"[\w.]+", each) for each in names)
            ):
                raise ValueError(f"{name} must be a list of modules' names, got {value!r:.60}")
        rows = self.trainable_token_indices
        lists = list(rows.values()) if isinstance(rows, dict) else [] if rows is None else [rows]
        if not all(
            isinstance(each, list)
            and len(each) == 1
            and type(each[0]) is int
            and each[0] >= 0
            and each == lists[0]
            for each in lists
        ):
            raise ValueError(f"trainable_token_indices must be the one row of <search>, got {rows!r:.60}")
        for name, kind in (("encoder", str), ("search_token", str | None), ("curve", dict | None)):
            if not isinstance(getattr(self, name), kind):
                raise ValueError(f"{name} must not be a {type(getattr(self, name)).__name__}")

    @property
    def search_id(self) -> int | None:
        """Id of the trained ``<search>``, None without one."""
        rows = self.trainable_token_indices
        found = next(iter(rows.values()), []) if isinstance(rows, dict) else rows
        return found[0] if found else None

    def layers(self, num_layers: int) -> list[int]:
        """Return the layers that hold rules."""
        return list(range(self.first_layer, num_layers, self.every))

    def shares(self, layer: int) -> bool:
        """Return whether a layer reads the rules that the confidence layer keeps."""
        return self.shared_after and self.confidence_layer is not None and layer > self.confidence_layer

    def projects(self, layer: int) -> bool:
        """Return whether a layer that holds rules projects them itself; rules' tokens need the search alone."""
        return self.reading == "vector" or self.confidence_layer in (None, layer)

    def updated_layers(self, num_layers: int) -> list[int]:
        """Return the layers whose rules a ``<search>`` token replaces."""
        held = self.layers(num_layers)
        if self.update_scope == "all":
            return held
        if self.update_scope == "none" or self.confidence_layer is None:
            return []
        if self.update_scope == "confidence":
            return [layer for layer in held if layer == self.confidence_layer or self.shares(layer)]
        return [layer for layer in held if layer >= self.confidence_layer]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        values = asdict(self)
        return values | {"target_modules": sorted(self.target_modules or [])}

    def save_pretrained(self, save_directory: Any, **kwargs: Any) -> None:
        """Write ``adapter_config.json``, whole or not at all."""
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
        path = folder / CONFIG_FILE
        refuse_unfinished(folder)
        remote = re.fullmatch(r"[\w.-]+/[\w.-]+", str(pretrained_model_name_or_path)) and not folder.exists()
        if not remote and not path.is_file():
            raise FileNotFoundError(
                f"no {CONFIG_FILE} in {folder}: not an adapter folder; save one with model.save_pretrained(folder)"
            )
        if remote:  # a repository of the Hub
            return super().from_pretrained(str(pretrained_model_name_or_path), subfolder, **kwargs)
        if path.stat().st_size > LARGEST_CONFIG:
            raise ValueError(f"{path} has {path.stat().st_size:,} bytes: no adapter's; copy it again")
        weights = folder / WEIGHTS_FILE
        if not weights.is_file() and (folder / PICKLED).exists():
            raise ValueError(f"{folder / PICKLED} is a pickle, which may run code; save the adapter again")
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            if values.get("peft_type") != NAME:
                raise ValueError(f"peft_type must be {NAME!r}, got {values.get('peft_type')!r:.60}")
            unknown = sorted(set(values) - {f.name for f in fields(cls)})
            if unknown:
                raise ValueError(f"it has unknown keys {unknown[:5]}; update dynarule")
            config = cls(**values)
            base = None if config.base is None else BaseModel(**config.base)
        except (UnicodeDecodeError, json.JSONDecodeError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"{path} is damaged ({error!r:.300}); copy or save the adapter again") from None
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        if weights.is_file():
            if base is None:
                raise ValueError(f"{path} does not say which base model it is for; save the adapter again")
            config._check_weights(weights, base)
        return config

    def _check_weights(self, path: Path, base: BaseModel) -> None:
        """Compare names and shapes in a file with those that follow from this configuration."""
        expected: dict[str, tuple[int, ...]] = {}
        unused: dict[str, tuple[int, ...]] = {}  # projections that older files hold and nothing reads
        width = base.query_size
        for layer in self.layers(base.num_layers):
            place = f"layers.{layer}.self_attn.dynarule_projection"
            shapes: dict[str, tuple[int, ...]] = {f"{place}.q.weight": (width, base.hidden_size)}
            if base.query_bias:
                shapes[f"{place}.q.bias"] = (width,)
            for part in ("k", "v"):
                shapes |= {
                    f"{place}.{part}.weight": (width, self.encoder_dim),
                    f"{place}.{part}.bias": (width,),
                }
            (expected if self.projects(layer) else unused).update(shapes)
            if layer == self.confidence_layer:
                expected |= self._search_shapes(place, width, base.hidden_size)
        rows = self.trainable_token_indices
        for module in rows if isinstance(rows, dict) else ["embed_tokens"] if rows else []:
            expected[f"{module}.token_adapter.trainable_tokens_delta"] = (1, base.hidden_size)
        # `base_model.model.model.layers.0...`: what stands before is the model's own.
        found = {
            name.removeprefix("base_model.model.").removeprefix("model."): shape
            for name, shape in read_shapes(path).items()
        }
        expected |= {name: shape for name, shape in unused.items() if name in found}
        ours = {*expected, *(found if self.modules_to_save is None else ())}
        wrong = sorted(name for name in ours if expected.get(name) != found.get(name))
        if wrong:
            raise ValueError(
                f"{path}: tensor {wrong[0]!r} is missing, unknown or of another shape (file {found.get(wrong[0])}, "
                f"expected {expected.get(wrong[0])}; {len(wrong)} in all); {CONFIG_FILE} and the weights do not belong "
                "together: copy the adapter again"
            )

    def _search_shapes(self, place: str, width: int, hidden: int) -> dict[str, tuple[int, ...]]:
        """Return names and shapes of what the confidence layer's search has beyond the paper's."""
        narrow, heads, offsets = self.encoder_dim, self.search_heads, self.search_offsets
        shapes: dict[str, tuple[int, ...]] = {}
        readers = ({"reader": width} if heads else {}) | (
            {"lookahead.goal": narrow} if self.lookahead else {}
        )
        for name, out in readers.items():
            shapes |= {
                f"{place}.{name}.query.weight": (heads * KEY_WIDTH, hidden),
                f"{place}.{name}.query.bias": (heads * KEY_WIDTH,),
                f"{place}.{name}.key": (heads, KEY_WIDTH, hidden),
                f"{place}.{name}.kind": (heads, 4),
                f"{place}.{name}.out.weight": (out, (heads + 1) * hidden),
                f"{place}.{name}.out.bias": (out,),
            }
            if offsets:
                shapes |= {
                    f"{place}.{name}.place.weight": (PLACE_WIDTH, hidden),
                    f"{place}.{name}.place.bias": (PLACE_WIDTH,),
                    f"{place}.{name}.offset": (2, heads, 2 * offsets + 1),
                }
            if self.search_tail:
                shapes[f"{place}.{name}.tail"] = (2, heads, self.search_tail + 1)
        if self.lookahead:
            shapes |= {
                f"{place}.lookahead.link.weight": (narrow + 1, narrow),
                f"{place}.lookahead.link.bias": (narrow + 1,),
                f"{place}.lookahead.weight": (),
            }
        return shapes


def dynarule_config(encoder_dim: int, confidence_layer: int | None = None, **changes: Any) -> DynaRuleConfig:
    """Return the paper's setting: every layer, K = 100, ``<search>`` re-reads the confidence layer."""
    return DynaRuleConfig(encoder_dim=encoder_dim, confidence_layer=confidence_layer, **changes)


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
    return dynarule_config(
        encoder_dim, **({"every": 3, "top_k": None, "length_shift": length_shift} | changes)
    )
