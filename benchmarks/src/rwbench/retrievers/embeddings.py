"""Sentence embeddings, kept on disk by hash of the text.

A cache folder holds numbered ``.npz`` segments (keys and vectors), each written whole under another name and
then renamed, so that a killed run loses at most the chunk it was encoding. Two processes on one cache take
turns encoding.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

log = logging.getLogger(__name__)

Vectors = NDArray[np.float32]
CHUNK = 2_048
"""Texts per segment: a few seconds of work on a laptop's core."""


def cache_root() -> Path:
    """Return the cache folder: ``$RWBENCH_CACHE``, else ``rwbench`` in the user's cache folder."""
    named = os.environ.get("RWBENCH_CACHE")
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "rwbench"


class EmbeddingCache:
    """Vectors of texts for one encoder.

    Parameters
    ----------
    folder : Path
        Where segments lie; one folder per encoder id.
    encode : callable
        Maps a list of texts to float32 vectors of shape (n, P); called for texts that are not stored yet.
    """

    def __init__(self, folder: Path, encode: Callable[[list[str]], Vectors]) -> None:
        self.folder = folder
        self.encode = encode
        self._rows: dict[bytes, int] = {}
        self._vectors: Vectors | None = None
        self._read: set[str] = set()

    def get(self, texts: Sequence[str], store: bool = True) -> Vectors:
        """Return the vectors of ``texts``, shape (len(texts), P), encoding what is missing.

        With ``store=False`` new vectors stay in this process: queries that a model made up come one by one and hardly
        ever again, and a segment each would fill the folder.
        """
        keys = [_key(text) for text in texts]
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in self._rows}
        if missing and store:
            self._fill(missing)
        elif missing:
            self._append(list(missing), np.asarray(self.encode(list(missing.values())), dtype=np.float32))
        if self._vectors is None:
            return np.empty((0, 0), dtype=np.float32)
        return self._vectors[[self._rows[key] for key in keys]]

    def _fill(self, wanted: dict[bytes, str]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._load()
        if all(key in self._rows for key in wanted):
            return
        with self._alone():
            self._load()  # another process may have encoded them while this one waited
            # Neighbours in length share a batch, so little of it is padding.
            missing = sorted((text, key) for key, text in wanted.items() if key not in self._rows)
            missing.sort(key=lambda item: len(item[0]))
            if missing:
                log.info("encoding %s texts, kept in %s", f"{len(missing):,}", self.folder)
            for start in range(0, len(missing), CHUNK):
                chunk = missing[start : start + CHUNK]
                vectors = np.asarray(self.encode([text for text, _ in chunk]), dtype=np.float32)
                self._store([key for _, key in chunk], vectors)

    def _load(self) -> None:
        for path in sorted(self.folder.glob("*.npz")):
            if path.name not in self._read:
                with np.load(path) as segment:
                    self._append([bytes(row) for row in segment["keys"]], segment["vectors"])
                self._read.add(path.name)

    def _store(self, keys: list[bytes], vectors: Vectors) -> None:
        name = f"{hashlib.sha256(b''.join(keys)).hexdigest()[:16]}.npz"
        part = self.folder / f"{name}.part"
        with part.open("wb") as file:
            np.savez(
                file, keys=np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(-1, 16), vectors=vectors
            )
        part.replace(self.folder / name)
        self._append(keys, vectors)
        self._read.add(name)

    def _append(self, keys: list[bytes], vectors: Vectors) -> None:
        start = 0 if self._vectors is None else len(self._vectors)
        self._vectors = vectors if self._vectors is None else np.concatenate([self._vectors, vectors])
        for row, key in enumerate(keys, start):
            self._rows.setdefault(key, row)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with (self.folder / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _key(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()[:16]
