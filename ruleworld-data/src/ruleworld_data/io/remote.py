"""Builds in whatever folder fsspec opens (``s3://``, ``gs://``, ``memory://``), and on a Ray cluster.

A shard is made in a folder of this machine and appears at the URL whole or not at all; nothing else is shared.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ..spec import WorldSpec
from .builds import MANIFEST, STARTED, build, check_all_there, check_same_build, manifest_entry, manifest_head
from .cluster import run_on_ray
from .shards import METADATA_KEY, Shard, ShardFile, make_shard, plan

Report = Callable[[ShardFile, int, int], None]


def build_anywhere(
    out: str | Path,
    spec: WorldSpec,
    jobs: int = 1,
    progress: Report | None = None,
    *,
    part: tuple[int, int] | None = None,
    merge: bool = False,
    ray: str = "",
) -> dict[str, Any]:
    """Build in a folder or at a URL, here or on a Ray cluster; see `build`.

    Parameters
    ----------
    out : path or str
        A folder, or a URL of fsspec. Nodes of a cluster share it.
    spec : WorldSpec
        What to build; its split does not matter.
    jobs, progress, part, merge
        As of `build`; at a URL, shards are made one at a time.
    ray : str
        Address of a Ray cluster, whose tasks make the shards, a few each; a node that is lost costs the shards that it
        was making.

    Raises
    ------
    ImportError
        For a cluster without Ray, or a URL without its file system.
    ValueError
        As of `build`.
    """
    made: dict[str, Any] = {"version": spec.version, "dials": spec.dials}
    if ray:
        everything = plan(spec.scale, spec.seed, **made)
        place = out if "://" in str(out) else Path(out).absolute()  # tasks run in folders of their own

        def work(number: int, total: int) -> None:
            build_anywhere(place, spec, part=(number, total))

        def report(done: int, total: int) -> None:
            if progress:
                shard = everything[min(len(everything), len(everything) * done // total) - 1]
                progress(ShardFile(shard, "", 0, False), len(everything) * done // total, len(everything))

        run_on_ray(ray, work, len(everything), report)
        return build_anywhere(out, spec, merge=True)
    if "://" not in str(out):
        return build(out, spec.scale, spec.seed, jobs, progress, part=part, merge=merge, **made)
    return _Remote(str(out), spec).build(progress, part, merge)


class _Remote:
    """A build at a URL."""

    def __init__(self, url: str, spec: WorldSpec) -> None:
        from fsspec.core import url_to_fs

        self.url, self.head = url, manifest_head(spec)
        self.system, self.root = url_to_fs(url)
        self.shards = plan(spec.scale, spec.seed, spec.version, spec.dials)

    def build(self, progress: Report | None, part: tuple[int, int] | None, merge: bool) -> dict[str, Any]:
        """Make what is missing, or a part of it, or nothing; see `build_anywhere`."""
        if merge:
            check_all_there(self.shards, self._is_there, self.url)
        self._claim()
        mine = self.shards if part is None else self.shards[part[0] - 1 :: part[1]]
        entries = []
        for done, shard in enumerate(mine, 1):
            made = self._found(shard) if self._is_there(shard) else self._make(shard)
            entries.append(manifest_entry(made))
            if progress:
                progress(made, done, len(mine))
        manifest = self.head | {"shards": entries}
        if part is None:
            self._put(MANIFEST, (json.dumps(manifest, indent=1) + "\n").encode())
            if self.system.exists(self._path(STARTED)):
                self.system.rm(self._path(STARTED))
        return manifest

    def _claim(self) -> None:
        for name in (MANIFEST, STARTED):
            if self.system.exists(self._path(name)):
                found = json.loads(self.system.cat_file(self._path(name)))
                check_same_build({k: v for k, v in found.items() if k != "shards"}, self.head, self.url)
                return
        self._put(STARTED, (json.dumps(self.head, indent=1) + "\n").encode())

    def _is_there(self, shard: Shard) -> bool:
        """Say whether a file is there and says that it is this shard; what is half or foreign is made again."""
        if not self.system.exists(self._path(shard.path)):
            return False
        try:
            with self.system.open(self._path(shard.path), "rb") as file:
                found = pq.read_metadata(file)
        except (pa.ArrowException, OSError):
            return False
        return (found.metadata or {}).get(METADATA_KEY.encode(), b"").decode() == shard.fingerprint

    def _found(self, shard: Shard) -> ShardFile:
        digest, size = sha256(), 0
        with self.system.open(self._path(shard.path), "rb") as file:
            while block := file.read(1 << 22):
                digest.update(block)
                size += len(block)
        return ShardFile(shard, digest.hexdigest(), size, resumed=True)

    def _make(self, shard: Shard) -> ShardFile:
        with TemporaryDirectory(prefix="ruleworld-") as folder:
            made = make_shard(shard, Path(folder))
            self._put(shard.path, Path(folder) / shard.path)
        return replace(made, resumed=False)

    def _put(self, name: str, content: bytes | Path) -> None:
        """Write a file in one step: a transaction of fsspec makes it appear when it is whole."""
        path = self._path(name)
        try:
            self.system.makedirs(path.rpartition("/")[0], exist_ok=True)
            with self.system.transaction, self.system.open(path, "wb") as file:
                if isinstance(content, bytes):
                    file.write(content)
                else:
                    with content.open("rb") as local:
                        shutil.copyfileobj(local, file)
        except NotImplementedError:  # of a web server, an archive
            raise ValueError(
                f"nothing can be written to {self.url}; give a folder, or a URL such as s3://bucket/data"
            ) from None

    def _path(self, name: str) -> str:
        return f"{self.root.rstrip('/')}/{name}"
