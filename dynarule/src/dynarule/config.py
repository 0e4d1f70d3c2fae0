"""How rules join a model's attention: one frozen configuration for DynaRule, SR-KI and KBLaM alike."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, Self, get_args

UpdateScope = Literal["confidence", "confidence_and_after", "all", "none"]


@dataclass(frozen=True)
class RuleMemoryConfig:
    """What a rule memory looks like and when it is read.

    The three methods are settings of it: see `dynarule_config`, `srki_config` and `kblam_config`.
    """

    encoder_dim: int = field(metadata={"help": "P, width of the sentence embeddings"})
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
        default=False,
        metadata={
            "help": "layers after the confidence layer read the rules that it keeps, not a choice of their own"
        },
    )
    length_shift: float | None = field(
        default=None, metadata={"help": "C: adds log C - log(rules attended) to rule scores (KBLaM)"}
    )

    def __post_init__(self) -> None:
        for name in ("encoder_dim", "every", "top_k"):
            value = getattr(self, name)
            if (value is not None or name != "top_k") and (
                isinstance(value, bool) or not isinstance(value, int) or value < 1
            ):
                raise ValueError(f"{name} must be a positive integer, got {value!r}")
        if (
            isinstance(self.first_layer, bool)
            or not isinstance(self.first_layer, int)
            or self.first_layer < 0
        ):
            raise ValueError(f"first_layer must be 0 or more, got {self.first_layer!r}")
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
        if self.update_scope not in get_args(UpdateScope):
            raise ValueError(
                f"update_scope must be one of {get_args(UpdateScope)}, got {self.update_scope!r}"
            )
        if self.length_shift is not None and self.length_shift <= 0:
            raise ValueError(f"length_shift must be positive or None, got {self.length_shift!r}")

    def layers(self, num_layers: int) -> list[int]:
        """Return the layers that hold rules."""
        return list(range(self.first_layer, num_layers, self.every))

    def shares(self, layer: int) -> bool:
        """Return whether a layer reads the rules that the confidence layer keeps."""
        return self.shared_after and self.confidence_layer is not None and layer > self.confidence_layer

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
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Read what `to_dict` wrote.

        Raises
        ------
        ValueError
            If a key is unknown.
        """
        known = {f.name for f in fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise ValueError(f"unknown configuration keys {unknown}; known: {sorted(known)}")
        return cls(**values)


def dynarule_config(
    encoder_dim: int, confidence_layer: int | None = None, **changes: Any
) -> RuleMemoryConfig:
    """Return the paper's setting: every layer, K = 100, ``<search>`` re-reads the confidence layer."""
    return RuleMemoryConfig(encoder_dim, confidence_layer=confidence_layer, **changes)


def srki_config(encoder_dim: int, confidence_layer: int | None = None, **changes: Any) -> RuleMemoryConfig:
    """Return SR-KI's setting: every layer, K = 100, one selection at prefill and no ``<search>``.

    Its retrieval loss is at ``confidence_layer``. Unlike the published code, pads never count in the selection, any
    batch decodes with the rules of its prefill, and no rule is favoured by its place.
    """
    return RuleMemoryConfig(
        encoder_dim, confidence_layer=confidence_layer, **({"update_scope": "none"} | changes)
    )


def kblam_config(encoder_dim: int, length_shift: float | None = None, **changes: Any) -> RuleMemoryConfig:
    """Return KBLaM's setting: every third layer, all rules attended, optional length shift.

    The shift log C - log(rules attended) is off by default, as in the published code. Unlike there, keys are normalised
    within a layer (there across all layers' slices at once), and with ``top_k`` the scores of the selected rules are
    used, selected once at prefill (there the first columns' scores, selected again at every token).
    """
    return RuleMemoryConfig(
        encoder_dim, **({"every": 3, "top_k": None, "length_shift": length_shift} | changes)
    )
