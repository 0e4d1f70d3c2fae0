"""Folders as repositories of the Hugging Face Hub: what would be sent, and one commit that sends it.

Used for the dataset, the metric's Space and the leaderboard's. All talk with the hub goes through huggingface_hub,
which reads HF_TOKEN, HF_ENDPOINT and HF_HUB_OFFLINE.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Literal

import yaml

CARD = "README.md"
DATASET_FILES = (CARD, "eval.yaml", "*/*.parquet")
METRIC_FILES = (CARD, "app.py", "requirements.txt", "ruleworld_em.py", "tests.py")


@dataclass(frozen=True)
class Push:
    """A folder as it goes to a hub.

    Attributes
    ----------
    folder : Path
    repo : str
        ``OWNER/NAME``.
    kind : {"dataset", "space", "model"}
    private : bool
        Of a repository that is made; one that is there keeps its own.
    files : tuple of str
        What is sent, relative to the folder, sorted.
    stale : tuple of str
        Patterns of files that are deleted there when they are not among ``files``: shards of an earlier build would
        be read with the new ones.
    space_sdk : str or None
        What runs a Space: ``"gradio"``, ``"static"``.
    """

    folder: Path
    repo: str
    kind: Literal["dataset", "space", "model"]
    private: bool = False
    files: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    space_sdk: str | None = None

    def sizes(self) -> dict[str, int]:
        """Return the bytes of every file that is sent."""
        return {name: (self.folder / name).stat().st_size for name in self.files}

    def to_dict(self) -> dict[str, Any]:
        """Return what a dry run prints as JSON."""
        return {
            "repo": self.repo,
            "kind": self.kind,
            "private": self.private,
            "files": self.sizes(),
            "bytes": sum(self.sizes().values()),
        }

    def to_text(self, url: str | None) -> str:
        """Return what a push prints: a line per file, and where they went; ``url`` is None after a dry run."""
        sizes = self.sizes()
        said = f"{len(sizes)} files, {sum(sizes.values()):,} bytes"
        there = f"{'private ' if self.private else ''}{self.kind} {self.repo}"
        last = f"{said}; nothing sent to {there}" if url is None else f"{said} sent to {url}"
        return "\n".join([*(f"{size:>12,}  {name}" for name, size in sizes.items()), last])


def check_repo(repo: str) -> str:
    """Return a repository's name if it is one.

    Raises
    ------
    ValueError
        Otherwise.
    """
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(repo)
    except HFValidationError as error:
        raise ValueError(f"--to {repo!r} is no repository name ({error}); give --to OWNER/NAME") from None
    if repo.count("/") != 1:
        raise ValueError(f"--to {repo!r} does not say whose repository it is; give --to OWNER/{repo}")
    return repo


def find_files(folder: Path, patterns: Sequence[str]) -> tuple[str, ...]:
    """Return the files of a folder that a repository takes, relative and sorted; there is always a card.

    Raises
    ------
    FileNotFoundError, ValueError
        If there is no such folder or card, or a file is a link, which could lead anywhere.
    """
    if not folder.is_dir():
        raise FileNotFoundError(
            f"no folder {folder}; make it first (a dataset: ruleworld export BUILD --out {folder})"
        )
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    names = {path.relative_to(folder).as_posix(): path for path in paths}
    # fnmatch lets * cross a slash, so the depth is compared too.
    taken = [n for n in names if any(fnmatch(n, p) and n.count("/") == p.count("/") for p in patterns)]
    for name in taken:
        if names[name].is_symlink() or not names[name].resolve().is_relative_to(folder.resolve()):
            raise ValueError(f"{folder / name} is a link out of the folder; put the file itself there")
    if CARD not in taken:
        raise FileNotFoundError(f"{folder} has no {CARD}, so nobody could know what it is; export it again")
    return tuple(taken)


def dataset_push(folder: Path, repo: str, private: bool = False) -> Push:
    """Return the push of a folder made by `ruleworld_data.io.export.export`.

    Raises
    ------
    FileNotFoundError, ValueError
        If it is no such folder, or a configuration of its card has no file.
    """
    files = find_files(folder, DATASET_FILES)
    try:
        front = yaml.safe_load((folder / CARD).read_text(encoding="utf-8").split("---\n")[1])
        wanted = {f["path"] for config in front["configs"] for f in config["data_files"]}
    except (IndexError, KeyError, TypeError, yaml.YAMLError):
        raise ValueError(
            f"{folder / CARD} is not the card of an exported dataset; type: ruleworld export BUILD --out NEW"
        ) from None
    missing = sorted(p for p in wanted if not any(fnmatch(name, p) for name in files))
    if missing:
        raise ValueError(
            f"{folder} has no file for {missing[0]!r}, which its card names ({len(missing)} such); export it again"
        )
    return Push(folder, check_repo(repo), "dataset", private, files, stale=("*.parquet",))


def metric_push(repo: str, private: bool = False) -> Push:
    """Return the push of the metric's Space, which `evaluate.load("OWNER/ruleworld_em")` finds."""
    from .. import METRIC_PATH

    folder = Path(METRIC_PATH)
    files = find_files(folder, METRIC_FILES)
    return Push(folder, check_repo(repo), "space", private, files, space_sdk="gradio")


def send(push: Push, message: str) -> str:
    """Make the repository if there is none, send all files in one commit, and return its address.

    Raises
    ------
    ValueError
        Without a token.
    OSError
        If the hub is switched off, cannot be reached or refuses; the text says what it said.
    """
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, get_token

    if not get_token():
        raise ValueError("no token of the hub; set HF_TOKEN, or type: hf auth login")
    api = HfApi()
    try:
        made = api.create_repo(
            push.repo, repo_type=push.kind, private=push.private, exist_ok=True, space_sdk=push.space_sdk
        )
        there = api.list_repo_files(push.repo, repo_type=push.kind)
        old = [n for n in there if n not in push.files and any(fnmatch(n, p) for p in push.stale)]
        operations: list[Any] = [CommitOperationAdd(name, push.folder / name) for name in push.files]
        operations += [CommitOperationDelete(name) for name in old]
        api.create_commit(push.repo, operations, repo_type=push.kind, commit_message=message)
    except OSError as error:
        said = str(error).strip().splitlines()
        raise OSError(
            f"the hub at {api.endpoint} did not take {push.repo}: {said[0] if said else error!r}"
        ) from None
    return str(made)
