"""A build: the benchmark in a folder of shards; resumable, and the same bytes for any number of workers.

The folder holds one sub-folder per configuration and, once complete, ``build.json``. A build that was killed goes on
where it stopped.

Machines that share the folder build it together, and so do those that share any folder which fsspec opens
(`ruleworld_data.io.remote`). The contract is also that of ``dynarule bank build`` and ``rwbench run``: the work is a
list of units in an order that depends on the input alone; each is written whole or not at all and says what it is of.
``--shard i/n`` makes every n-th unit from the i-th on and leaves those that are there, so that any n, any order and any
number of tries make the same files. ``--merge`` makes none, says what is missing, and finishes the whole.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from ..spec import PAPER_POINT, VERSION, Dials, WorldSpec, check_count, data_version
from .files import PART, file_digest, write_whole
from .shards import Shard, ShardFile, make_shard, plan
from .workers import start_worker

FORMAT = 1
MANIFEST = "build.json"
STARTED = ".build-started.json"
_AGAIN = (
    "run ruleworld build on the folder again (it makes only what is damaged), or ruleworld verify to see more"
)


def build(
    out: str | Path,
    scale: str = "paper",
    seed: int = 0,
    jobs: int = 1,
    progress: Callable[[ShardFile, int, int], None] | None = None,
    *,
    version: str = VERSION,
    dials: Dials = PAPER_POINT,
    part: tuple[int, int] | None = None,
    merge: bool = False,
) -> dict[str, Any]:
    """Build a benchmark, or finish one that was interrupted.

    Parameters
    ----------
    out : path
        An empty, new or unfinished folder.
    scale, seed, version, dials
        What to build.
    jobs : int
        Worker processes. They are spawned, so a script that asks for more than one needs the usual
        ``if __name__ == "__main__":``.
    progress : callable, optional
        Called after every shard with the shard, the number done and the total.
    part : tuple of int, optional
        ``(i, n)``: make every n-th shard from the i-th on only, and no manifest.
    merge : bool
        Make no shard; all must be there.

    Returns
    -------
    dict
        The manifest, as in ``build.json``; of a part, only its own shards.

    Raises
    ------
    ValueError
        For a bad argument, a folder that holds something else, or shards that are missing where nothing is made.
    """
    shards = plan(scale, seed, version, dials)
    check_count("jobs", jobs, 1)
    out = Path(out)
    head = manifest_head(WorldSpec(scale, seed=seed, version=version, dials=dials))
    if merge:
        check_all_there(shards, lambda shard: shard.is_whole(out), out)
    _claim(out, head)
    if part is not None:
        shards = shards[part[0] - 1 :: part[1]]
    entries: dict[str, dict[str, Any]] = {}
    for done, made in enumerate(_make_all(shards, out, jobs), 1):
        entries[made.shard.path] = manifest_entry(made)
        if progress:
            progress(made, done, len(shards))
    manifest = head | {"shards": [entries[shard.path] for shard in shards]}
    if part is not None:
        return manifest
    write_whole(out / MANIFEST, json.dumps(manifest, indent=1) + "\n")
    (out / STARTED).unlink(missing_ok=True)
    return manifest


def manifest_head(spec: WorldSpec) -> dict[str, Any]:
    """Return what a manifest says of the whole build."""
    head: dict[str, Any] = {
        "format": FORMAT,
        "generator_version": spec.generator,
        "scale": spec.scale,
        "seed": spec.seed,
    }
    if turned := spec.dials.to_dict():
        head["dials"] = turned
    return head


def manifest_entry(made: ShardFile) -> dict[str, Any]:
    """Return what a manifest says of a shard."""
    shard = made.shard
    return {
        "path": shard.path,
        "config": shard.config,
        "split": shard.split,
        "rows": shard.rows,
        "bytes": made.size,
        "sha256": made.digest,
    }


def check_all_there(shards: list[Shard], is_there: Callable[[Shard], bool], out: object) -> None:
    """Raise ValueError with the shards that are missing, if any are."""
    missing = [shard.path for shard in shards if not is_there(shard)]
    if missing:
        raise ValueError(
            f"{len(missing)} of {len(shards)} shards are missing in {out}, such as {', '.join(missing[:3])}; make them "
            "with the same command and --shard i/n, or with neither --shard nor --merge"
        )


def _make_all(shards: list[Shard], out: Path, jobs: int) -> Iterator[ShardFile]:
    # The digests of a finished build, so that a shard that was damaged is made again.
    listed = read_manifest(out)["shards"] if (out / MANIFEST).is_file() else []
    known = {entry.get("path"): entry.get("sha256") for entry in listed if isinstance(entry, dict)}
    if jobs == 1:
        yield from (make_shard(shard, out, known.get(shard.path)) for shard in shards)
        return
    # Spawned, so that no worker inherits locks of Arrow's threads.
    with ProcessPoolExecutor(
        min(jobs, len(shards)), mp_context=get_context("spawn"), initializer=_start_maker
    ) as executor:
        futures = [executor.submit(make_shard, shard, out, known.get(shard.path)) for shard in shards]
        try:
            yield from (future.result() for future in as_completed(futures))
        except BaseException:
            executor.shutdown(wait=False, cancel_futures=True)
            raise


def _start_maker() -> None:
    """Start a worker that collects no cycles: it makes millions of small tuples, none is in one, and it ends soon."""
    start_worker()
    gc.disable()


def _claim(out: Path, head: dict[str, Any]) -> None:
    """Make sure that the folder is ours to write: new, empty, or a build of the same thing."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out {out} is a file; name a new or empty folder")
    # Looked at first: another machine may begin the same build meanwhile, and what it writes first says so.
    held = set(out.iterdir()) - set(out.glob(f".*{PART}")) if out.is_dir() else set()
    there = next((out / name for name in (MANIFEST, STARTED) if (out / name).is_file()), None)
    if there is not None:
        check_same_build(_read(there), head, out)
    if there is None and held:
        raise ValueError(f"{out} is not empty and holds no build; choose a new or empty folder")
    out.mkdir(parents=True, exist_ok=True)
    if not (out / MANIFEST).is_file():
        write_whole(out / STARTED, json.dumps(head, indent=1) + "\n")


def check_same_build(found: dict[str, Any], head: dict[str, Any], out: object) -> None:
    """Raise ValueError if a folder holds another build, with what differs of both."""
    names = [*head, *({"dials"} - head.keys())]
    differs = [f"{k} {found.get(k)!r} (wanted {head.get(k)!r})" for k in names if found.get(k) != head.get(k)]
    if differs:
        raise ValueError(f"{out} holds another build: {', '.join(differs)}; choose another folder")


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
    path, started = folder / MANIFEST, folder / STARTED
    if not path.is_file():
        if started.is_file():
            spec = world_spec(_read(started), started)
            raise FileNotFoundError(
                f"{folder} is an unfinished build; finish it with: {build_command(folder, spec)}"
            )
        raise FileNotFoundError(
            f"{folder} holds no {MANIFEST}, so it is no build; make one with: ruleworld build --out {folder}"
        )
    manifest = _read(path)
    if manifest.get("format") != FORMAT or not isinstance(manifest.get("shards"), list):
        raise ValueError(f"{path} is damaged; build the folder again")
    return manifest


def _read(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise ValueError(f"{path} is damaged; remove the folder and build it again, or choose another")
    return values


def world_spec(manifest: dict[str, Any], path: Path = Path(MANIFEST)) -> WorldSpec:
    """Return what a manifest says was built; `ValueError` if it says so of nothing that can be."""
    try:
        return WorldSpec(
            manifest.get("scale", ""),
            seed=manifest.get("seed", -1),
            version=data_version(manifest.get("generator_version")),
            dials=Dials.from_dict(manifest.get("dials", {})),
        )
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"{path} names nothing that can be built, so other code made it or it was changed ({error}); build it "
            "again in a new folder"
        ) from None


def build_command(folder: str | Path, spec: WorldSpec) -> str:
    """Return what to type to make, or finish, a build."""
    dials = f" --dials {spec.dials}" if spec.dials.tag else ""
    return (
        f"ruleworld build --out {folder} --scale {spec.scale} --seed {spec.seed} "
        f"--data-version {spec.version}{dials}"
    )


def read_build(folder: str | Path) -> dict[str, Any]:
    """Read a build that is to be used: ``build.json``, checked against the plan, and every shard's bytes against it.

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
    planned = plan(spec.scale, spec.seed, spec.version, spec.dials)
    keys = ("path", "config", "split", "rows")
    listed = [isinstance(entry, dict) and [entry.get(key) for key in keys] for entry in manifest["shards"]]
    if listed != [[getattr(shard, key) for key in keys] for shard in planned]:
        raise ValueError(f"{folder / MANIFEST} does not list the shards of such a build; {_AGAIN}")
    for entry in manifest["shards"]:
        path = folder / entry["path"]
        if not path.is_file():
            raise ValueError(f"shard {path} is missing; {_AGAIN}")
        if file_digest(path) != entry.get("sha256"):
            raise ValueError(f"shard {path} was changed since it was built; {_AGAIN}")
    return manifest
