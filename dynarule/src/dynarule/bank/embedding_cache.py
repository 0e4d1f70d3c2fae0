"""Embeddings on disk by encoder and text, so that no text is encoded twice, in this build or the next."""

from __future__ import annotations

import fcntl
import hashlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path

import torch
from torch import Tensor

from .._files import write_whole

FLUSH = 4_096
"""Texts encoded between two writes: what a kill loses at most."""


def encode_unique(encode: Callable[[Sequence[str]], Tensor], texts: Sequence[str]) -> Tensor:
    """Encode every different text once; return embeddings (N, P) of all.

    Raises
    ------
    ValueError
        If the encoder returns another number of rows.
    """
    places: dict[str, int] = {}
    at = [places.setdefault(text, len(places)) for text in texts]
    unique = encode(list(places))
    if unique.ndim != 2 or len(unique) != len(places):
        raise ValueError(
            f"the encoder must return ({len(places)}, width) for {len(places)} texts, got {tuple(unique.shape)}"
        )
    return unique[torch.tensor(at, dtype=torch.long, device=unique.device)]


def _digest(hashes: Tensor, rows: Tensor) -> str:
    """Return what tells a shard as written from a damaged one."""
    shape = f"{hashes.dtype} {tuple(hashes.shape)} {rows.dtype} {tuple(rows.shape)}".encode()
    return hashlib.sha256(shape + hashes.numpy().tobytes() + rows.numpy().tobytes()).hexdigest()


class EmbeddingCache:
    """An encoder that remembers on disk.

    One folder per encoder fingerprint holds shards, safetensors files of text hashes and embeddings (fp32). A shard is
    written under a temporary name, synced and renamed, so a killed build leaves whole shards only. Processes that share
    a cache take turns encoding, so no text is encoded by two of them. A shard that is damaged (by its checksum) is set
    aside with a warning and its texts are encoded again.

    Parameters
    ----------
    encode : callable
        Texts to embeddings, such as `dynarule.bank.encoders.SentenceEncoder`.
    folder : path
        The cache; made if it is not there.
    fingerprint : str, optional
        None: ``encode.fingerprint``.
    shard_size : int, optional
        Texts encoded between two writes: what a kill loses at most. None: `FLUSH`.

    Raises
    ------
    ValueError
        If there is no fingerprint: embeddings of two encoders would mix.

    Examples
    --------
    >>> encode = EmbeddingCache(SentenceEncoder("minilm"), "cache")  # doctest: +SKIP
    >>> bank = RuleBank.from_file("rules.txt", encode)  # doctest: +SKIP
    """

    def __init__(
        self,
        encode: Callable[[Sequence[str]], Tensor],
        folder: str | PathLike[str],
        fingerprint: str | None = None,
        shard_size: int | None = None,
    ) -> None:
        name = getattr(encode, "fingerprint", None) if fingerprint is None else fingerprint
        if not name:
            raise ValueError(
                "the encoder has no fingerprint, so its embeddings could mix with another's; give fingerprint="
            )
        self.encode, self.fingerprint, self.shard_size = encode, name, shard_size
        self.folder = Path(folder) / hashlib.sha256(name.encode()).hexdigest()[:16]
        self.folder.mkdir(parents=True, exist_ok=True)
        self._places: dict[bytes, tuple[Tensor, int]] = {}
        self._read: set[str] = set()

    def __call__(self, texts: Sequence[str], store: bool = True) -> Tensor:
        """Return embeddings, fp32 (N, P), on the CPU; new texts are encoded and written.

        With ``store=False`` new embeddings stay in this process, as for queries that come one by one and never again.
        """
        hashes = [hashlib.sha256(text.encode()).digest() for text in texts]
        wanted = dict(zip(hashes, texts, strict=True))
        if self._missing(wanted):
            self.refresh()
        if store and self._missing(wanted):
            with self._turn():
                self.refresh()  # another process may have encoded them while this one waited
                todo, size = list(self._missing(wanted).items()), self.shard_size or FLUSH
                for start in range(0, len(todo), size):
                    part = todo[start : start + size]
                    self._write([h for h, _ in part], self.encode([text for _, text in part]))
        elif new := self._missing(wanted):
            rows = self._checked(self.encode(list(new.values())), len(new))
            self._places |= {h: (rows, place) for place, h in enumerate(new)}
        if not hashes:
            return self.encode([])
        first, _ = self._places[hashes[0]]
        out = torch.empty(len(hashes), first.shape[1])
        for row, h in enumerate(hashes):
            shard, place = self._places[h]
            out[row] = shard[place]
        return out

    def _missing(self, wanted: dict[bytes, str]) -> dict[bytes, str]:
        return {h: text for h, text in wanted.items() if h not in self._places}

    @contextmanager
    def _turn(self) -> Iterator[None]:
        with (self.folder / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def __len__(self) -> int:
        """Return how many texts are known."""
        return len(self._places)

    def refresh(self) -> None:
        """Take in shards that other processes wrote; a damaged one is set aside, and its texts are encoded again."""
        from safetensors import SafetensorError, safe_open

        for path in sorted(self.folder.glob("*.safetensors")):
            if path.name in self._read:
                continue
            try:
                with safe_open(path, "pt") as file:
                    hashes, rows = file.get_tensor("hashes"), file.get_tensor("embeddings")
                    about = file.metadata() or {}
                if about.get("sha256") != _digest(hashes, rows):
                    raise ValueError("its checksum is another, or none")
                if about.get("fingerprint") != self.fingerprint:
                    raise ValueError("it belongs to another encoder")
            except (SafetensorError, OSError, ValueError, TypeError) as error:
                aside = path.with_suffix(".damaged")
                with suppress(OSError):
                    path.replace(aside)
                warnings.warn(
                    f"the embedding shard {path} is set aside as {aside.name} ({error}); its texts are encoded again",
                    stacklevel=2,
                )
                continue
            self._take(path.name, hashes, rows)

    def _take(self, name: str, hashes: Tensor, rows: Tensor) -> None:
        self._read.add(name)
        for place, row in enumerate(hashes.numpy()):
            self._places[row.tobytes()] = (rows, place)

    def _write(self, hashes: list[bytes], rows: Tensor) -> None:
        from safetensors.torch import save

        rows = self._checked(rows, len(hashes))
        codes = torch.frombuffer(bytearray(b"".join(hashes)), dtype=torch.uint8).view(len(hashes), 32)
        name = hashlib.sha256(b"".join(hashes)).hexdigest()[:32] + ".safetensors"
        about = {"fingerprint": self.fingerprint, "sha256": _digest(codes, rows)}
        shard = save({"hashes": codes, "embeddings": rows}, about)
        write_whole(self.folder / name, shard)
        self._take(name, codes, rows)

    @staticmethod
    def _checked(rows: Tensor, count: int) -> Tensor:
        if rows.ndim != 2 or len(rows) != count:
            raise ValueError(
                f"the encoder must return ({count}, width) for {count} texts, got {tuple(rows.shape)}"
            )
        rows = rows.detach().float().cpu().contiguous()
        bad = (~torch.isfinite(rows).all(-1)).nonzero()
        if len(bad):  # never remembered
            raise ValueError(f"the encoder returned {len(bad)} embeddings that are not finite")
        return rows
