"""What an adapter says about itself: ``adapter.json``, and the fingerprint of its base model."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from . import __version__
from .config import RuleMemoryConfig
from .memory.search import SEARCH_TOKEN
from .projection import attention_blocks

FILE = "adapter.json"
FORMAT = 1
HASHED = ("q_proj", "k_proj", "v_proj", "o_proj")
HASHED_ROWS = 2  # of each matrix: another training, or another seed, changes every row


@dataclass(frozen=True)
class BaseModel:
    """What an adapter must find in a model: its shapes, and some of its weights.

    Attributes
    ----------
    name : str
        ``name_or_path`` of the model, for people; not compared.
    model_type : str
        Family, such as ``qwen2``.
    num_layers, hidden_size, query_size, head_dim, vocabulary : int
        Shapes; ``query_size`` is the width of ``q_proj``, ``vocabulary`` the rows of the embedding matrix.
    weights_hash : str
        `weights_hash` of the model; ``""`` (an older adapter, a quantised model) is not compared.
    """

    name: str
    model_type: str
    num_layers: int
    hidden_size: int
    query_size: int
    head_dim: int
    vocabulary: int
    weights_hash: str = ""

    @classmethod
    def of(cls, model: nn.Module) -> BaseModel:
        """Read a model's fingerprint."""
        blocks, config = attention_blocks(model), model.config
        return cls(
            name=str(getattr(config, "name_or_path", "") or ""),
            model_type=str(config.model_type),  # type: ignore[union-attr]
            num_layers=len(blocks),
            hidden_size=blocks[0].q_proj.in_features,  # type: ignore[union-attr,arg-type]
            query_size=blocks[0].q_proj.out_features,  # type: ignore[union-attr,arg-type]
            head_dim=int(blocks[0].head_dim),  # type: ignore[arg-type]
            vocabulary=model.get_input_embeddings().num_embeddings,  # type: ignore[operator]
            weights_hash=weights_hash(model),
        )


def weights_hash(model: nn.Module) -> str:
    """Hash a few rows of every layer's attention matrices, which no training here changes; ``""`` where it cannot be.

    Values are hashed as bf16, so a checkpoint has one hash whether it is loaded in fp32 or bf16. In fp16 small values
    are lost; quantised weights are other numbers, and offloaded ones are elsewhere: none of these is hashed. Nor are
    embeddings, of which training changes a row or all, nor LoRA's matrices beside the base model's.
    """
    digest = hashlib.sha256()
    for block in attention_blocks(model):
        for name in HASHED:
            weight = getattr(getattr(block, name), "weight", None)
            if not isinstance(weight, Tensor) or weight.dtype not in (torch.float32, torch.bfloat16):
                return ""
            data = weight.detach()
            # Subclasses (torchao's, a shard of several devices) claim a float dtype and hold something else.
            if type(weight) not in (Tensor, nn.Parameter) or data.is_meta or data.ndim != 2:
                return ""
            rows = data[:HASHED_ROWS].to("cpu", torch.bfloat16).contiguous()
            digest.update(f"{name} {tuple(data.shape)}".encode())
            digest.update(rows.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


@dataclass(frozen=True)
class SearchInfo:
    """The ``<search>`` token of an adapter: its text and row."""

    token: str
    id: int


@dataclass(frozen=True)
class AdapterInfo:
    """What ``adapter.json`` says.

    Attributes
    ----------
    memory : RuleMemoryConfig
        Its ``confidence_layer`` is 0-based, as ``layer_convention`` states in the file.
    base : BaseModel
        The model it was trained for.
    encoder : str
        Name and revision of the encoder; ``""`` if unknown.
    search : SearchInfo or None
        The token whose trained rows are stored with the adapter.
    curve : dict or None
        The measured entropies behind the confidence layer (`dynarule.memory.confidence.ConfidenceCurve.to_dict`).
    weights : str
        Name of the safetensors file.
    """

    memory: RuleMemoryConfig
    base: BaseModel
    encoder: str = ""
    search: SearchInfo | None = None
    curve: dict[str, Any] | None = field(default=None, repr=False)
    weights: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {"format": FORMAT, "dynarule": __version__, "layer_convention": "0-based"} | asdict(self)


def write_adapter_info(folder: str | Path, info: AdapterInfo) -> None:
    """Write ``adapter.json``, at once or not at all; for example with a confidence layer measured since."""
    partial = Path(folder) / f".{FILE}.part"
    partial.write_text(json.dumps(info.to_dict(), indent=1) + "\n", encoding="utf-8")
    partial.replace(Path(folder) / FILE)


def read_adapter_info(folder: str | Path) -> AdapterInfo:
    """Read ``adapter.json``, without weights.

    Raises
    ------
    FileNotFoundError
        If the folder holds no adapter.
    ValueError
        If the file is damaged, has unknown keys or a newer format.
    """
    path = Path(folder) / FILE
    if not path.is_file():
        raise FileNotFoundError(
            f"no {FILE} in {folder}: not an adapter folder; save one with dynarule.save_adapter"
        )
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        if values["format"] != FORMAT:
            raise ValueError(
                f"{path} has format {values['format']}, this version reads {FORMAT}; update dynarule"
            )
        convention = values["layer_convention"]
        if convention != "0-based":
            raise ValueError(f"{path}: layer_convention must be '0-based', got {convention!r}")
        parts = {f.name for f in fields(AdapterInfo)}
        unknown = sorted(set(values) - parts - {"format", "dynarule", "layer_convention"})
        if unknown:
            raise ValueError(f"{path} has unknown keys {unknown}; known: {sorted(parts)}")
        if Path(values["weights"]).name != values["weights"]:
            raise ValueError(f"{path}: weights must name a file of this folder, got {values['weights']!r}")
        return AdapterInfo(
            RuleMemoryConfig.from_dict(values["memory"]),
            BaseModel(**values["base"]),
            values["encoder"],
            SearchInfo(**values["search"]) if values["search"] else None,
            values["curve"],
            values["weights"],
        )
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is damaged ({error!r}); copy or save the adapter again") from None


def check_base(info: AdapterInfo, model: nn.Module) -> None:
    """Raise ValueError if a model has not the shape, or not the weights, that an adapter was trained for."""
    wanted, seen = info.base, BaseModel.of(model)
    for f in fields(BaseModel):
        a, b = getattr(wanted, f.name), getattr(seen, f.name)
        if f.name not in ("name", "weights_hash") and a != b:
            hint = (
                f"call dynarule.prepare_search(model, tokenizer) first, so that {SEARCH_TOKEN} has its row"
                if f.name == "vocabulary" and b < a
                else f"load the base model {wanted.name or wanted.model_type!r}"
            )
            raise ValueError(
                f"the adapter was trained for a base with {f.name} {a}, this one has {b}; {hint}"
            )
    if wanted.weights_hash and seen.weights_hash and wanted.weights_hash != seen.weights_hash:
        raise ValueError(
            f"the adapter was trained for {wanted.name or wanted.model_type!r} with weights {wanted.weights_hash}, "
            f"this model ({seen.name or seen.model_type!r}) has the same shape but weights {seen.weights_hash}; load "
            "the base model that the adapter was trained for, or train an adapter for this one"
        )
