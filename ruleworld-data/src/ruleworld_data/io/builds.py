"""A build: the benchmark in a folder of shards; resumable, and the same bytes for any number of workers and machines.

The folder holds one sub-folder per configuration and ``build.json``, which lists the shards once all are there. The
work is a list of shards in an order that depends on the input alone; each is written whole or not at all and says what
it is of. So a build that was killed goes on where it stopped, and tasks of a cluster that share the folder build it
together, a ``part`` each.
"""

import gc
import json
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from shlex import quote
from typing import Any

import pyarrow as pa

from ..spec import PAPER_POINT, VERSION, Dials, WorldSpec, check_count, data_version, read_fields
from .cluster import run_on_ray
from .files import PART, file_digest, part_of, write_whole
from .shards import Shard, plan
from .workers import worker_pool

FORMAT = 1
MANIFEST = "build.json"
_AGAIN = "run ruleworld build on the folder again: it makes only what is damaged"


BuildProgress = Callable[[int, int, str], None]
"""Called with the number of shards done, their total, and what was done last."""


def build(
    out: str | Path,
    scale: str = "paper",
    seed: int = 0,
    jobs: int = 1,
    progress: BuildProgress = lambda done, total, text: None,
    *,
    version: str = VERSION,
    dials: Dials = PAPER_POINT,
    part: tuple[int, int] | None = None,
    ray: str = "",
) -> dict[str, Any]:
    """Build a benchmark, or finish one that was interrupted.

    Parameters
    ----------
    out : path or str
        An empty, new or unfinished folder. Nodes of a cluster share it.
    scale, seed, version, dials
        What to build.
    jobs : int
        Worker processes. They are spawned, so a script that asks for more than one needs the usual
        ``if __name__ == "__main__":``.
    progress : callable
        Called after every shard with the number done, the total, and what was done: "wrote rules/train-...".
    part : tuple of int, optional
        ``(i, n)``: make every n-th shard from the i-th on only, and no manifest.
    ray : str
        Address of a Ray cluster, whose tasks make the shards, a few each; a node that is lost costs the shards that it
        was making.

    Returns
    -------
    dict
        The manifest, as in ``build.json``; of a part, only its own shards.

    Raises
    ------
    ImportError
        For a cluster without Ray.
    ValueError
        For a bad argument, or a folder that holds something else.
    """
    spec = WorldSpec(scale, seed=seed, version=version, dials=dials)
    check_count("jobs", jobs, 1)
    shards = plan(spec)
    if ray:
        place, count = Path(out).absolute(), len(shards)  # tasks run in folders of their own

        def work(number: int, total: int) -> None:
            build(place, scale, seed, part=(number, total), version=version, dials=dials)

        run_on_ray(ray, work, count, lambda done, total: progress(count * done // total, count, ""))
    folder, head = Path(out), {"format": FORMAT} | spec.to_dict()
    manifest = _check_is_ours(folder, head)
    if part is not None:
        shards = shards[part[0] - 1 :: part[1]]
    entries: dict[str, dict[str, Any]] = {}

    def add(shard: Shard, body: bytes, done: str) -> None:
        entries[shard.path] = shard.entry | {"bytes": len(body), "sha256": sha256(body).hexdigest()}
        progress(len(entries), len(shards), f"{done} {shard.path}")

    # A finished build tells the digests, so that a shard that was damaged is made again.
    known = {str(e.get("path")): e.get("sha256") for e in manifest.get("shards", ()) if isinstance(e, dict)}
    for shard in shards:
        path = folder / shard.path
        body = path.read_bytes() if path.is_file() else b""
        if (
            body
            and shard.matches(pa.BufferReader(body))
            and known.get(shard.path) in (None, sha256(body).hexdigest())
        ):
            add(shard, body, "kept")
    missing = [shard for shard in shards if shard.path not in entries]
    if not manifest:
        folder.mkdir(parents=True, exist_ok=True)
        path, begun = folder / MANIFEST, _dump(head | {"shards": []})
        with (
            part_of(path) as part_file,
            suppress(OSError),
        ):  # of writers that begin at once the first one stays
            part_file.write_bytes(begun)
            os.link(part_file, path)
        if not path.exists():  # on a file system that has no links
            write_whole(path, begun)
        _check_is_ours(folder, head)
    for shard, body in _make_all(missing, jobs):
        if (part_folder := (folder / shard.path).parent).is_symlink():
            raise ValueError(f"{part_folder} is a link, so shards would be written elsewhere; remove it")
        part_folder.mkdir(exist_ok=True)
        write_whole(folder / shard.path, body)
        add(shard, body, "wrote")
    manifest = head | {"shards": [entries[shard.path] for shard in shards]}
    if part is None:
        write_whole(folder / MANIFEST, _dump(manifest))
    return manifest


def _check_is_ours(folder: Path, head: dict[str, Any]) -> dict[str, Any]:
    """Return the manifest of a build, finished or not, and nothing of a new or an empty folder."""
    if folder.is_file() or "".join(folder.parts[:1]).endswith(":"):  # as s3://bucket
        raise ValueError(f"--out {folder} is a file or a URL; name a new or empty folder")
    # Listed first: another machine may begin the same build meanwhile, and what it writes first says so.
    names = [path.name for path in folder.iterdir()] if folder.exists() else []
    if (folder / MANIFEST).is_file():
        held = _read(folder / MANIFEST)
        keys = [*head, *({"dials"} - head.keys())]
        differs = [
            f"{k} {held.get(k)!r} (wanted {head.get(k)!r})" for k in keys if held.get(k) != head.get(k)
        ]
        if differs:
            raise ValueError(f"{folder} holds another build: {', '.join(differs)}; choose another folder")
        return held
    if not all(name.startswith(".") and name.endswith(PART) for name in names):  # of a writer, maybe killed
        raise ValueError(f"{folder} is not empty and holds no build; choose a new or empty folder")
    return {}


def _make_all(shards: Sequence[Shard], jobs: int) -> Iterator[tuple[Shard, bytes]]:
    if jobs == 1 or len(shards) < 2:
        yield from ((shard, shard.make()) for shard in shards)
        return
    # A worker makes millions of small tuples, none of which is in a cycle, and ends soon.
    with worker_pool(min(jobs, len(shards)), gc.disable) as pool:
        shard_of = {pool.submit(shard.make): shard for shard in shards}
        for future in as_completed([*shard_of]):
            yield shard_of.pop(future), future.result()


def read_manifest(folder: str | Path) -> dict[str, Any]:
    """Read ``build.json``.

    Raises
    ------
    FileNotFoundError
        If the folder is no build, or an unfinished one.
    ValueError
        If the file is damaged.
    """
    folder = Path(folder)
    path = folder / MANIFEST
    if not path.is_file():
        raise FileNotFoundError(
            f"{folder} holds no {MANIFEST}, so it is no build; make one with: ruleworld build --out {folder}"
        )
    manifest = _read(path)
    if not manifest["shards"]:
        again = build_command(folder, world_spec(manifest, path))
        raise FileNotFoundError(f"{folder} is an unfinished build; finish it with: {again}")
    return manifest


def _dump(values: dict[str, Any]) -> bytes:
    return (json.dumps(values, indent=1) + "\n").encode()


def _read(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        values = None
    listed = isinstance(values, dict) and isinstance(values.get("shards"), list)
    if not listed or values.get("format") != FORMAT:
        raise ValueError(f"{path} is damaged; remove the folder and build it again, or choose another")
    return values


def world_spec(manifest: dict[str, Any], path: Path = Path(MANIFEST)) -> WorldSpec:
    """Return what a manifest says was built; `ValueError` if it says so of nothing that can be."""
    try:
        return WorldSpec(
            manifest.get("scale", ""),
            seed=manifest.get("seed", -1),
            version=data_version(manifest.get("generator_version")),
            dials=read_fields(Dials, manifest.get("dials", {}), "dial"),
        )
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"{path} names nothing that can be built, so other code made it or it was changed ({error}); build it "
            "again in a new folder"
        ) from None


def build_command(folder: str | Path, spec: WorldSpec) -> str:
    """Return what to type to make, or finish, a build."""
    dials = f" --dials {spec.dials}" if str(spec.dials) else ""
    return (
        f"ruleworld build --out {quote(str(folder))} --scale {spec.scale} --seed {spec.seed} "
        f"--data-version {spec.version}{dials}"
    )


def read_build(folder: str | Path, shape: bool = True) -> dict[str, Any]:
    """Read a build that is to be used: ``build.json``, checked against the plan, and every shard against both.

    ``shape``: whether rows and columns are compared, too; who verifies says more of them.

    Raises
    ------
    FileNotFoundError
        If the folder is no finished build.
    ValueError
        If it was made by another generator, or anything in it was changed; the text says what to do.
    """
    folder = Path(folder)
    manifest = read_manifest(folder)
    spec = world_spec(manifest, folder / MANIFEST)
    shards = plan(spec)
    planned = [shard.entry for shard in shards]
    listed = [
        isinstance(entry, dict) and {k: entry.get(k) for k in planned[0]} for entry in manifest["shards"]
    ]
    if listed != planned:
        raise ValueError(f"{folder / MANIFEST} does not list the shards of such a build; {_AGAIN}")
    for shard, entry in zip(shards, manifest["shards"], strict=True):
        path = folder / entry["path"]
        if not path.is_file():
            raise ValueError(f"shard {path} is missing; {_AGAIN}")
        if file_digest(path) != entry.get("sha256"):
            raise ValueError(f"shard {path} was changed since it was built; {_AGAIN}")
        if not shard.matches(path, shape):
            raise ValueError(f"shard {path} is of another build than {MANIFEST} says; {_AGAIN}")
    return manifest
