"""Embeddings on disk by encoder and text, so that no text is encoded twice, in this build or the next."""

import hashlib
import sqlite3
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from os import PathLike
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from .._files import changing
from .sources import listed

Encode = Callable[[Sequence[str]], Tensor]
"""Texts to embeddings (N, P), the document side of a sentence encoder."""
BLOCK = 16_384  # texts that are encoded together: what shares a batch decides the last bits of an embedding

_TABLE = "CREATE TABLE IF NOT EXISTS embeddings (text BLOB PRIMARY KEY, embedding BLOB, checksum INTEGER)"
_SELECT = "SELECT text, embedding, checksum FROM embeddings"
_FORGET = "DELETE FROM embeddings WHERE rowid <= (SELECT max(rowid) FROM embeddings) - ?"
_PER_QUERY = 500  # texts: one query each took most of a build's time beside the encoder


def unique_texts(texts: Sequence[str]) -> tuple[list[str], Tensor]:
    """Return the different texts, in order, and the place of each text among them."""
    places: dict[str, int] = {}
    at = torch.tensor([places.setdefault(text, len(places)) for text in texts], dtype=torch.long)
    return list(places), at


def embed(
    encode: Encode,
    texts: Sequence[str],
    dtype: torch.dtype | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Tensor:
    """Encode texts block by block, each into its place; return embeddings (N, P), all finite in the dtype."""
    if not callable(encode):
        raise ValueError(
            f"encode must be a function from texts to embeddings, got {encode!r:.60}; dynarule.open_encoder gives one"
        )
    rows_NP = torch.empty(0)
    for start in range(0, len(texts) or 1, BLOCK):
        block = texts[start : start + BLOCK]
        given = torch.as_tensor(encode(block))
        if given.ndim != 2 or len(given) != len(block):
            raise ValueError(
                f"the encoder must return ({len(block)}, width) for {len(block)} texts, got {tuple(given.shape)}"
            )
        rows = given.to(dtype or given.dtype)
        bad = (~torch.isfinite(rows).all(-1)).nonzero()[:, 0]
        if len(bad):
            text = block[int(bad[0])]
            if torch.isfinite(given[bad[0]]).all():
                raise ValueError(f"the embedding of {text!r:.80} does not fit {dtype}; use --dtype fp32")
            raise ValueError(f"the encoder returned {len(bad)} embeddings not finite, as of {text!r:.80}")
        if not start:
            rows_NP = rows.new_empty(len(texts), rows.shape[1])
        rows_NP[start : start + len(block)] = rows
        if progress:
            progress(start + len(block), len(texts))
    return rows_NP


class EmbeddingCache:
    """An encoder that remembers on disk.

    One SQLite file per encoder fingerprint holds embeddings (fp32) by the hash of their text, each with a checksum.
    Processes that share a cache take turns encoding, so no text is encoded by two of them. A damaged embedding is said
    and encoded again.

    Parameters
    ----------
    encode : callable
        Texts to embeddings, such as `dynarule.bank.SentenceEncoder`.
    folder : path
        The cache; made if it is not there.
    fingerprint : str, optional
        None: ``encode.fingerprint``.
    batch : int
        Texts encoded between two writes: what a kill loses at most.
    most : int, optional
        Embeddings that are kept, the newest, as of questions that come without end; None: all.

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
        encode: Encode,
        folder: str | PathLike[str],
        fingerprint: str | None = None,
        batch: int = 4_096,
        most: int | None = None,
    ) -> None:
        name = getattr(encode, "fingerprint", None) if fingerprint is None else fingerprint
        if not name:
            raise ValueError(
                "the encoder has no fingerprint, so its embeddings could mix with another's; give fingerprint="
            )
        self.encode, self.fingerprint, self.batch, self.most = encode, name, batch, most
        self.path = Path(folder) / hashlib.sha256(name.encode()).hexdigest()[:16] / "embeddings.sqlite"

    def __call__(self, texts: Sequence[str]) -> Tensor:
        """Return embeddings, fp32 (N, P), on the CPU; new texts are encoded and written.

        Raises
        ------
        OSError
            If the file cannot be read or written.
        """
        texts = listed("texts", texts)
        # With the fingerprint: what was copied here from another encoder's cache is never taken.
        keys = [hashlib.sha256(f"{self.fingerprint}\0{text}".encode()).digest() for text in texts]
        wanted = dict(zip(keys, texts, strict=True))
        if not wanted:
            return self.encode([])
        known = self._read(wanted)
        missing = [key for key in wanted if key not in known]
        if missing:
            with changing(self.path.parent):
                known |= self._read(missing)  # another process may have encoded them while this one waited
                missing = [key for key in missing if key not in known]
                for start in range(0, len(missing), self.batch):
                    part = missing[start : start + self.batch]
                    rows = embed(self.encode, [wanted[key] for key in part]).detach().float().cpu().numpy()
                    new = dict(zip(part, rows, strict=True))
                    self._write(new)
                    known |= new
        return torch.from_numpy(np.stack([known[key] for key in keys]))

    def _read(self, keys: Iterable[bytes]) -> dict[bytes, np.ndarray]:
        """Return the embeddings that are known."""
        known: dict[bytes, np.ndarray] = {}
        if not self.path.is_file():
            return known
        damaged, wanted = 0, list(keys)
        with self._open("read") as database:
            for start in range(0, len(wanted), _PER_QUERY):
                part = wanted[start : start + _PER_QUERY]
                query = f"{_SELECT} WHERE text IN ({','.join('?' * len(part))})"
                for key, row, checksum in database.execute(query, part):
                    if {type(key), type(row)} == {bytes} and zlib.crc32(key + row) == checksum:
                        known[key] = np.frombuffer(row, np.float32)
                    else:
                        damaged += 1
        if damaged:
            warnings.warn(f"encoding {damaged} texts again that are damaged in {self.path}", stacklevel=3)
        return known

    def _write(self, rows: dict[bytes, np.ndarray]) -> None:
        values = [(key, row.tobytes(), zlib.crc32(key + row.tobytes())) for key, row in rows.items()]
        with self._open("write") as database:
            database.executemany("INSERT OR REPLACE INTO embeddings VALUES (?, ?, ?)", values)
            if self.most is not None:
                database.execute(_FORGET, (self.most,))

    @contextmanager
    def _open(self, use: str) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self.path, timeout=600)) as database, database:
                database.text_factory = bytes  # a flipped bit may turn an embedding into a text
                database.execute(_TABLE)
                yield database
        except sqlite3.DatabaseError as error:
            raise OSError(
                f"cannot {use} the embedding cache {self.path}: {error}; if it is damaged, delete it"
            ) from error
