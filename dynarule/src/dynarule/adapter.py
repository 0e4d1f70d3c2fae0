"""DynaRule, SR-KI and KBLaM as a PEFT method: rule projections beside the attention blocks of a frozen model.

Importing this module, or any name of `dynarule` that uses it, tells PEFT about the method.

>>> model = PeftModel.from_pretrained(base, "adapter")  # doctest: +SKIP
>>> with attach(model, RuleMemory(model, bank)):  # doctest: +SKIP
...     model.generate(**inputs)
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, cast

import torch
from peft import PeftConfig, PeftModel, get_peft_model, set_peft_model_state_dict
from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING, PEFT_TYPE_TO_PREFIX_MAPPING, PEFT_TYPE_TO_TUNER_MAPPING
from peft.tuners.trainable_tokens import TrainableTokensLayer
from peft.tuners.tuners_utils import BaseTuner, BaseTunerLayer
from peft.utils import load_peft_weights
from peft.utils.other import set_additional_trainable_modules
from torch import nn

from ._files import assembled, changing
from .attention_interface import READ_WITH, is_attached
from .base_model import BaseModel, attention_blocks, base_matrix
from .config import CONFIG_FILE, NAME, WEIGHTS_FILE, DynaRuleConfig
from .projection import RuleProjection
from .search_token import SEARCH_TOKEN, prepare_search, search_id, token_rows, vocabulary_matrices

LEFT_OPEN = "encoder", "search_token", "search_cues", "curve", "min_support"
"""Settings that say nothing in a fresh adapter; training and measuring fill them in."""
NOTED = {f.name for f in fields(PeftConfig)} | {"base", "trainable_token_indices", "curve", "min_support"}
"""What a file says besides how its weights are read."""
SEARCHED_WITH = {"encoder", "encoder_dim", "confidence_layer", "lookahead"} | {
    f"search_{part}" for part in ("heads", "offsets", "tail")
}
LARGEST_WEIGHT = torch.finfo(torch.float16).max
"""Trained weights are hundreds at most; larger ones overflow in halves, and swamp the text in any dtype."""


class DynaRuleLayer(nn.Module, BaseTunerLayer):
    """An attention block, with the projections of every adapter beside it.

    The block runs as it is; the hooks of `dynarule.attach` find the wrapper in its place, and hand the rules through.
    """

    adapter_layer_names = ("dynarule_projection",)

    def __init__(self, base_layer: nn.Module, adapter_name: str) -> None:
        super().__init__()
        self.base_layer = base_layer
        self.dynarule_projection = nn.ModuleDict({})
        self.merged_adapters: list[str] = []
        self._active_adapter = adapter_name

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the attention block, unless its text was read with rules that are attached no more."""
        read = READ_WITH in kwargs or hasattr(kwargs.get("past_key_values"), READ_WITH)
        if read and not is_attached(self.base_layer):
            raise ValueError(
                "past_key_values or gradient checkpointing goes on with what was read with rules, and no rule memory "
                "is attached any more; stay inside the block of `attach`, or read the text again without a cache"
            )
        return self._modules["base_layer"](*args, **kwargs)  # type: ignore[misc]  # not through __getattr__

    def unmerge(self) -> None:
        """Do nothing, since nothing is ever merged."""

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
        count = len(attention_blocks(self.model))
        for module in self.model.modules():
            mine = isinstance(module, DynaRuleLayer | TrainableTokensLayer)
            if isinstance(module, PeftModel | BaseTunerLayer) and not mine:
                raise ValueError(
                    f"the model has a PEFT method already ({type(module).__name__}), which no adapter of rules would "
                    "save; call its merge_and_unload() or unload() first"
                )
        layer = peft_config.confidence_layer
        if layer is not None and layer >= count:
            raise ValueError(
                f"confidence_layer {layer} is not among the model's layers 0 to {count - 1}; "
                "the adapter belongs to another base model, or the layer is not 0-based"
            )
        if peft_config.base is None:
            peft_config.base = asdict(BaseModel.of(self.model))
        else:
            BaseModel(**peft_config.base).check(self.model, peft_config.base_model_name_or_path or "")
        held = peft_config.layers(count)
        if peft_config.layers_to_transform not in (None, held):
            raise ValueError(
                f"layers_to_transform {peft_config.layers_to_transform!r:.60} does not follow from first_layer="
                f"{peft_config.first_layer}, every={peft_config.every} on {count} layers; the adapter belongs to "
                "another base model, or set these two"
            )
        rows = base_matrix(self.model.get_input_embeddings()).num_embeddings
        if peft_config.search_id is not None:
            vocabulary_matrices(self.model)  # refuses quantised ones
        if peft_config.search_id is not None and peft_config.search_id >= rows:
            raise ValueError(
                f"{SEARCH_TOKEN} has id {peft_config.search_id}, the model's vocabulary has {rows} rows; call "
                "dynarule.prepare_search(model, tokenizer) with the adapter's tokenizer first"
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
        if not isinstance(target, DynaRuleLayer):
            target = DynaRuleLayer(target, adapter_name)
            self._replace_module(parent, target_name, target, None)
        # In the dtype of hidden states, whatever a quantised weight is held in.
        projection = peft_config.make_projection(target.get_base_layer()).to(cast(Any, self.model).dtype)
        target.dynarule_projection[adapter_name] = projection
        projection.requires_grad_(adapter_name in self.active_adapters and not peft_config.inference_mode)

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

    def _check_merge_allowed(self) -> None:
        raise ValueError(
            "rules are read by attention, and no weight of the base could hold them, so they cannot be merged; call "
            "unload() for the base without them, or keep the adapter beside it"
        )

    @contextmanager
    def _enable_peft_forward_hooks(self, *_args: Any, **kwargs: Any) -> Iterator[None]:
        if kwargs.get("adapter_names") is not None:
            raise ValueError(
                "adapter_names is not supported with rules: all rows read by one adapter; call set_adapter(name)"
            )
        yield

    def _cast_adapter_dtype(self, adapter_name: str, autocast_adapter_dtype: bool = True) -> None:
        """Stay in the base model's dtype, which attention reads without a cast."""


# In PEFT's public tables, see `dynarule.config`; registering twice is the same as once.
cast(Any, PEFT_TYPE_TO_CONFIG_MAPPING)[NAME] = DynaRuleConfig
cast(Any, PEFT_TYPE_TO_TUNER_MAPPING)[NAME] = DynaRuleModel
cast(Any, PEFT_TYPE_TO_PREFIX_MAPPING)[NAME] = DynaRuleModel.prefix


class RuleAdapter(nn.Module):
    """The active DynaRule adapter of a model, as memories and training read it; empty while adapters are disabled.

    Make a new one after ``set_adapter``, since a memory keeps what it computed for one adapter.

    Parameters
    ----------
    model : PeftModel, or the base model inside it
        With ``config``, a base model: it gets a new adapter, in place, as from ``get_peft_model``.
    config : DynaRuleConfig, optional
        Of the new adapter.

    Attributes
    ----------
    layers : nn.ModuleDict
        Its projections, by layer number as text.

    Raises
    ------
    ValueError
        If the model has no DynaRule adapter (with ``config``: has one already), or the family is not supported.
    """

    def __init__(self, model: nn.Module, config: DynaRuleConfig | None = None) -> None:
        super().__init__()
        if config is not None:
            if _tuned(model):
                raise ValueError("the model has a DynaRule adapter already; use PeftModel.add_adapter")
            model = get_peft_model(cast(Any, model), config)
        blocks = _tuned(model)
        if not blocks:
            raise ValueError(
                f"{type(model).__name__} has no DynaRule adapter; load one with PeftModel.from_pretrained(model, "
                "folder), or make one with get_peft_model(model, DynaRuleConfig(...))"
            )
        # In containers, so that the model does not become a part of the adapter.
        self._model, self._blocks = [model], blocks
        self.name = self._active()
        self.num_layers = int(cast(Any, model).config.num_hidden_layers)
        self._projections = {
            layer: cast(RuleProjection, block.dynarule_projection[self.name])
            for layer, block in sorted(blocks.items())
            if self.name in block.dynarule_projection
        }
        self.layers = nn.ModuleDict({str(layer): part for layer, part in self._projections.items()})

    def is_part_of(self, blocks: list[nn.Module]) -> bool:
        """Return whether these are the attention blocks of the model that holds the adapter."""
        return all(layer < len(blocks) and blocks[layer] is own for layer, own in self._blocks.items())

    @property
    def model(self) -> Any:
        """The PEFT model."""
        return self._model[0]

    @property
    def config(self) -> DynaRuleConfig:
        """The adapter's own; what is set in it is saved with it."""
        return cast(DynaRuleConfig, self.model.peft_config[self.name])

    def __getitem__(self, layer: int) -> RuleProjection:
        return self._projections[layer]

    def projections(self) -> dict[int, RuleProjection]:
        """Return the projections by layer; none while adapters are disabled, an error if another is active by now."""
        if self._active() != self.name:
            raise ValueError(
                f"the active adapter changed from {self.name!r} to {self._active()!r}, and a rule memory keeps what it "
                "computed for one; make a new RuleMemory(model, bank) after set_adapter"
            )
        return {} if next(iter(self._blocks.values())).disable_adapters else self._projections

    def train_search(self, row: int, token: str = SEARCH_TOKEN) -> list[nn.Parameter]:
        """Return the trainable rows of ``<search>``, input and, where untied, output; they start from the base's.

        ``row`` is its id, of `dynarule.prepare_search`.
        """
        if self.config.trainable_token_indices is None:
            self._add_rows(token_rows(self.model, row), token)
        return [rows for name, rows in self.model.named_parameters() if self._is_row(name)]

    def _is_row(self, parameter: str) -> bool:
        return f"tokens_delta.{self.name}" in parameter

    def _add_rows(self, rows: Any, token: str | None) -> None:
        config = self.config
        config.trainable_token_indices, config.search_token = rows, token
        set_additional_trainable_modules(self.model, config, self.model.config.to_dict(), self.name)

    def save(self, folder: str | Path, tokenizer: Any = None) -> None:
        """Write ``adapter_model.safetensors`` and, last, ``adapter_config.json``: a kill never leaves two saves mixed.

        Parameters
        ----------
        folder : path
            Made if missing; what else is there stays.
        tokenizer : PreTrainedTokenizerBase or None
            Saved too: the one that knows ``<search>``.
        """
        folder = Path(folder)
        with changing(folder), assembled(folder, CONFIG_FILE) as work:
            self.model.save_pretrained(work, selected_adapters=[self.name], save_embedding_layers=False)
            (work / "README.md").unlink(missing_ok=True)  # PEFT's card; training writes one with its recipe
            if self.name != "default":
                for path in (work / self.name).iterdir():
                    path.replace(work / path.name)
                (work / self.name).rmdir()
            if tokenizer is not None:
                tokenizer.save_pretrained(work)

    def load(self, folder: str | Path) -> None:
        """Read what `save` wrote into this adapter, the row of ``<search>`` included.

        What this adapter's configuration leaves open, such as the encoder, is then the file's. An adapter that reads
        rules otherwise (`dynarule.plus.PlusConfig.reading`) gives encoder and search alone.

        Raises
        ------
        FileNotFoundError, ValueError
            If it is no adapter, or one of another base, shape or setting, with which its weights mean something else.
        """
        config, own = _local_config(folder), self.config
        base = BaseModel(**config.base or {})
        base.check(self.model, config.base_model_name_or_path or "")
        ours, theirs = own.to_dict(), config.to_dict()
        alike = ours.get("reading", "vector") == theirs.get("reading", "vector")
        for name in sorted((ours.keys() | theirs.keys()) - NOTED if alike else SEARCHED_WITH):
            mine, other = ours.get(name), theirs.get(name)
            if mine != other and (name not in LEFT_OPEN or (mine and other)):
                raise ValueError(
                    f"{folder} was trained with {name} {other!r:.90}, this adapter has {mine!r:.90}; take the file's "
                    "settings (dynarule.load_adapter does), or load an adapter that was trained with these"
                )
        if config.trainable_token_indices is not None and own.trainable_token_indices is None:
            self._add_rows(config.trainable_token_indices, config.search_token)
        if alike:
            own.check_weights(Path(folder) / WEIGHTS_FILE, base)
        for name in LEFT_OPEN if alike else ("encoder",):
            setattr(own, name, theirs[name] or ours[name])
        set_peft_model_state_dict(self.model, load_peft_weights(str(folder), device="cpu"), self.name)
        self.check_finite()

    def check_finite(self) -> None:
        """Raise ValueError if a weight is no number of fp16: answers would be noise, and nothing would say so."""
        weights = {
            f"{name} of layer {layer}": value
            for layer, projection in self._projections.items()
            for name, value in projection.named_parameters()
        } | {name: value for name, value in self.model.named_parameters() if self._is_row(name)}
        for name, value in weights.items():
            largest = float(value.detach().abs().max())
            if not largest <= LARGEST_WEIGHT:  # of NaN neither is true
                raise ValueError(
                    f"the adapter's {name} is not finite, or larger than fp16 holds ({largest:.3g}, the largest is "
                    f"{LARGEST_WEIGHT:,.0f}); copy it again, or train it with a lower learning rate"
                )

    def _active(self) -> str:
        active = next(iter(self._blocks.values())).active_adapters
        if len(active) != 1:
            raise ValueError(f"exactly one DynaRule adapter is active, got {active}; call set_adapter(name)")
        return active[0]


def load_adapter(model: nn.Module, folder: str | Path, tokenizer: Any = None, **options: Any) -> PeftModel:
    """Return ``PeftModel.from_pretrained(model, folder)`` of a local folder, whose weights are there and finite.

    With a ``tokenizer``, it and the model are given the ``<search>`` that was trained, as `prepare_search` does.

    Raises
    ------
    FileNotFoundError, ValueError
        As `DynaRuleConfig.from_pretrained`; if the weights are missing (PEFT would ask the Hub) or not finite; if the
        tokenizer has ``<search>`` at another id.
    """
    config = _local_config(folder, options.pop("config", None))
    if tokenizer is not None and config.search_id is not None:
        prepare_search(model, tokenizer, config.search_token or SEARCH_TOKEN)
        search_id(tokenizer, config.search_token, config.search_id)
    tuned = PeftModel.from_pretrained(cast(Any, model), Path(folder), config=config, **options)
    RuleAdapter(tuned).check_finite()
    return tuned


def _local_config(folder: str | Path, config: DynaRuleConfig | None = None) -> DynaRuleConfig:
    """Return a folder's configuration, unless it is given; refuse one whose weights PEFT would ask the Hub for."""
    folder = Path(folder)
    config = config or DynaRuleConfig.from_pretrained(folder)
    if not (folder / WEIGHTS_FILE).is_file():
        raise FileNotFoundError(f"{folder} has no {WEIGHTS_FILE}, its weights; copy the adapter again")
    return config


def _tuned(model: nn.Module) -> dict[int, DynaRuleLayer]:
    layers = (module for module in model.modules() if isinstance(module, DynaRuleLayer))
    return {int(cast(Any, layer.get_base_layer()).layer_idx): layer for layer in layers}


__all__ = ["DynaRuleLayer", "DynaRuleModel", "PeftModel", "RuleAdapter", "load_adapter"]
