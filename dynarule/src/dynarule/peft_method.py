"""DynaRule as a PEFT method: ``get_peft_model``, ``save_pretrained``, several adapters, ``disable_adapter``.

Importing this module tells PEFT about the method, so import it before loading such an adapter. It wraps the same
`RuleProjection` modules as the plain path, which knows nothing of PEFT. A PEFT model has the projections but no rules;
`rule_adapter` gives what a `RuleMemory` needs:

>>> model = get_peft_model(base, DynaRuleConfig(encoder_dim=1024))  # doctest: +SKIP
>>> with attach(model, RuleMemory(rule_adapter(model), bank, search.id)):  # doctest: +SKIP
...     model.generate(**inputs)

Registration touches an enum that PEFT has no public way to extend, hence the pin ``peft>=0.21,<0.22``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, cast

from torch import nn

from .config import RuleMemoryConfig, UpdateScope
from .projection import RuleAdapter, RuleProjection, check_family

try:
    from peft import PeftConfig, PeftType
    from peft.tuners.tuners_utils import BaseTuner, BaseTunerLayer
    from peft.utils import register_peft_method
except ImportError as error:  # pragma: no cover - the message is all there is
    raise ImportError(
        f"dynarule.peft_method needs PEFT 0.21 ({error}); type: pip install 'dynarule[peft]'"
    ) from error

NAME = "DYNARULE"
_MEMORY_FIELDS = tuple(f.name for f in fields(RuleMemoryConfig))


@dataclass
class DynaRuleConfig(PeftConfig):
    """Configuration of the PEFT method: `RuleMemoryConfig`, and what PEFT itself asks for.

    ``trainable_token_indices`` trains the row of ``<search>``: ``[id]`` with tied embeddings,
    ``{"embed_tokens": [id], "lm_head": [id]}`` with untied ones, or the model cannot learn to emit it. PEFT 0.21 saves
    several adapters of one model only if all of them train rows, or none does.
    """

    encoder_dim: int = field(default=0, metadata={"help": "P, width of the sentence embeddings"})
    every: int = field(default=1, metadata={"help": "rules join every n-th layer, from first_layer"})
    first_layer: int = field(default=0, metadata={"help": "0-based layer from which rules join"})
    key_norm: bool = field(default=True, metadata={"help": "LayerNorm without parameters on projected keys"})
    top_k: int | None = field(default=100, metadata={"help": "K, rules kept per layer; None keeps all"})
    confidence_layer: int | None = field(
        default=None, metadata={"help": "0-based layer that <search> re-reads"}
    )
    update_scope: UpdateScope = field(
        default="confidence", metadata={"help": "layers whose rules <search> replaces"}
    )
    shared_after: bool = field(
        default=False, metadata={"help": "later layers read the rules that the confidence layer keeps"}
    )
    length_shift: float | None = field(default=None, metadata={"help": "C of KBLaM's log C - log M"})
    encoder: str = field(default="", metadata={"help": "name and revision of the encoder"})
    search_token_id: int | None = field(default=None, metadata={"help": "row of <search>, for the record"})
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
        if isinstance(self.target_modules, list):
            self.target_modules = set(self.target_modules)
        _ = self.memory  # validates

    @property
    def memory(self) -> RuleMemoryConfig:
        """The part that is not PEFT's."""
        return RuleMemoryConfig(**{name: getattr(self, name) for name in _MEMORY_FIELDS})

    @classmethod
    def of(cls, memory: RuleMemoryConfig, **changes: Any) -> DynaRuleConfig:
        """Build from a `RuleMemoryConfig`, such as `dynarule_config`, `srki_config` or `kblam_config` return."""
        return cls(**(memory.to_dict() | {"task_type": "CAUSAL_LM"} | changes))


class DynaRuleLayer(nn.Module, BaseTunerLayer):
    """An attention block, with the projections of every adapter beside it.

    The block runs as it is; the hooks of `dynarule.attach` find the wrapper in its place, and hand the rules through.
    """

    adapter_layer_names = ("dynarule_projection",)

    def __init__(self, base_layer: nn.Module, adapter_name: str, config: DynaRuleConfig) -> None:
        super().__init__()
        self.base_layer = base_layer
        self.dynarule_projection = nn.ModuleDict({})
        self.merged_adapters: list[str] = []
        self._active_adapter = adapter_name
        self.update_layer(adapter_name, config)

    def update_layer(self, adapter_name: str, config: DynaRuleConfig) -> None:
        """Add an adapter's projections."""
        projection = RuleProjection(self.get_base_layer(), config.encoder_dim, config.key_norm)
        self.dynarule_projection[adapter_name] = projection
        projection.requires_grad_(adapter_name in self.active_adapters and not config.inference_mode)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the attention block."""
        return self.base_layer(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        """Look like the attention block: q_proj, q_norm, head_dim and the like are its own."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "base_layer":
                raise
            return getattr(self.base_layer, name)


class DynaRuleModel(BaseTuner):
    """What ``get_peft_model`` puts around a base model."""

    prefix = "dynarule_"
    tuner_layer_cls = DynaRuleLayer

    def _prepare_adapter_config(self, peft_config: Any, model_config: dict[str, Any]) -> Any:
        check_family(self.model)
        count = model_config["num_hidden_layers"]
        layer = peft_config.confidence_layer
        if layer is not None and layer >= count:
            raise ValueError(
                f"confidence_layer {layer} is not among the model's layers 0 to {count - 1}; "
                "the adapter belongs to another base model, or the layer is not 0-based"
            )
        held = peft_config.memory.layers(count)
        if peft_config.layers_to_transform not in (None, held):
            raise ValueError(
                f"layers_to_transform {peft_config.layers_to_transform} does not follow from first_layer="
                f"{peft_config.first_layer}, every={peft_config.every} on {count} layers; the adapter belongs to "
                "another base model, or set these two"
            )
        peft_config.layers_to_transform = held
        return peft_config

    def _create_and_replace(
        self,
        peft_config: Any,
        adapter_name: str,
        target: nn.Module,
        target_name: str,
        parent: nn.Module,
        current_key: str,
        parameter_name: str | None = None,
    ) -> None:
        if isinstance(target, DynaRuleLayer):
            target.update_layer(adapter_name, peft_config)
            return
        if not hasattr(target, "q_proj"):
            raise ValueError(
                f"{current_key} has no q_proj: DynaRule joins attention blocks of Qwen2, Qwen3, Llama and alike"
            )
        active = self.active_adapters
        layer = DynaRuleLayer(target, adapter_name, peft_config)
        layer.dynarule_projection[adapter_name].requires_grad_(
            adapter_name in active and not peft_config.inference_mode
        )
        self._replace_module(parent, target_name, layer, target)

    @classmethod
    def _remove_adapter_name_from_key(cls, key: str, adapter_name: str) -> str:
        """Take the name out where it is, right after the module dict; PEFT looks only at the last but one part."""
        held = f".{DynaRuleLayer.adapter_layer_names[0]}."
        if f"{held}{adapter_name}." in key:
            return key.replace(f"{held}{adapter_name}.", held)
        return super()._remove_adapter_name_from_key(key, adapter_name)

    def _replace_module(self, parent: nn.Module, child_name: str, new_module: nn.Module, child: Any) -> None:
        """Swap the block; PEFT's own way assumes a layer with a weight."""
        setattr(parent, child_name, new_module)

    def _cast_adapter_dtype(self, adapter_name: str, autocast_adapter_dtype: bool = True) -> None:
        """Stay in the base model's dtype, as the plain path does; for fp32 weights load the base in fp32."""


class PeftRuleAdapter(RuleAdapter):
    """The active adapter of a PEFT model, as a `RuleMemory` reads it: empty while adapters are disabled.

    Attributes
    ----------
    name : str
        The adapter's name in the PEFT model.
    """

    def __init__(self, model: nn.Module) -> None:
        nn.Module.__init__(self)
        tuned = [
            (name, module) for name, module in model.named_modules() if isinstance(module, DynaRuleLayer)
        ]
        if not tuned:
            raise ValueError(
                f"{type(model).__name__} has no DynaRule adapter; "
                "make one with get_peft_model(model, DynaRuleConfig(...))"
            )
        self._blocks = {int(module.get_base_layer().layer_idx): module for _, module in tuned}  # type: ignore[arg-type]
        self._model = [model]  # in a list, so that the model does not become a part of the adapter
        self.name = self._active()
        self.num_layers = int(model.config.num_hidden_layers)  # type: ignore[union-attr,arg-type]

    @property
    def config(self) -> RuleMemoryConfig:  # type: ignore[override]
        """Of the active adapter."""
        return self._peft_config().memory

    @property
    def encoder(self) -> str:  # type: ignore[override]
        """Of the active adapter."""
        return self._peft_config().encoder

    @property
    def layers(self) -> nn.ModuleDict:  # type: ignore[override]
        """The active adapter's projections, as `dynarule.save_adapter` writes them."""
        return nn.ModuleDict({str(layer): self[layer] for layer in sorted(self._blocks) if self._has(layer)})

    def __getitem__(self, layer: int) -> RuleProjection:
        if self._active() != self.name:
            raise ValueError(
                f"the active adapter changed from {self.name!r} to {self._active()!r}, and a rule memory keeps what it "
                "computed for one; make a new RuleMemory(rule_adapter(model), bank) after set_adapter"
            )
        return cast(RuleProjection, self._blocks[layer].dynarule_projection[self.name])

    def __contains__(self, layer: int) -> bool:
        return self._has(layer) and not self._blocks[layer].disable_adapters

    def _has(self, layer: int) -> bool:
        return layer in self._blocks and self.name in self._blocks[layer].dynarule_projection

    def _active(self) -> str:
        active = next(iter(self._blocks.values())).active_adapters
        if len(active) != 1:
            raise ValueError(
                f"exactly one DynaRule adapter can be active, got {active}; call set_adapter(name)"
            )
        return active[0]

    def _peft_config(self) -> DynaRuleConfig:
        return cast(Any, self._model[0]).peft_config[self.name]


def rule_adapter(model: nn.Module) -> PeftRuleAdapter:
    """Return a PEFT model's active adapter for a `RuleMemory`; inside ``disable_adapter()`` it is empty.

    Make a new `RuleMemory` after ``set_adapter``, since a memory keeps what it computed for one adapter.

    Raises
    ------
    ValueError
        If the model has no DynaRule adapter.
    """
    return PeftRuleAdapter(model)


def register() -> None:
    """Tell PEFT about the method; a second call changes nothing."""
    if NAME not in PeftType.__members__:
        member = str.__new__(PeftType, NAME)
        member._name_ = member._value_ = NAME
        PeftType._member_map_[NAME] = member
        PeftType._member_names_.append(NAME)
        PeftType._value2member_map_[NAME] = member
        type.__setattr__(PeftType, NAME, member)  # Python 3.12 looks names up on the class
    from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING

    if PeftType(NAME) not in PEFT_TYPE_TO_CONFIG_MAPPING:
        register_peft_method(name=NAME.lower(), config_cls=DynaRuleConfig, model_cls=DynaRuleModel)


register()
