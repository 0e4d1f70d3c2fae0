"""The dataset and the metric as repositories of the Hugging Face Hub, each sent in one commit.

All talk with the hub goes through huggingface_hub, which reads HF_TOKEN, HF_ENDPOINT and HF_HUB_OFFLINE.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import yaml

CARD = "README.md"
DATASET_FILES = (CARD, "eval.yaml", "*/*.parquet")
METRIC_FILES = (CARD, "app.py", "requirements.txt", "ruleworld_em.py", "tests.py")
NO_REPO = "OWNER/NAME"
"""Stands in a card for the repository's own name until the card is sent."""


@dataclass(frozen=True)
class Pushed:
    """What was sent, or would be: ``files`` maps names to bytes; ``sent_to`` is the address, None of a dry run."""

    repo: str
    kind: str
    private: bool
    files: dict[str, int]
    bytes: int
    sent_to: str | None

    def to_text(self) -> str:
        """Return a line per file, and where they went."""
        there = f"{'private ' if self.private else ''}{self.kind} {self.repo}"
        end = f"; nothing sent to {there}" if self.sent_to is None else f" sent to {self.sent_to}"
        lines = [f"{size:>12,}  {name}" for name, size in self.files.items()]
        return "\n".join([*lines, f"{len(self.files)} files, {self.bytes:,} bytes{end}"])


def push_dataset(folder: Path, repo: str, *, private: bool = False, dry_run: bool = False) -> Pushed:
    """Send a folder made by `ruleworld_data.io.export`; shards of an earlier build go from the repository.

    Parameters
    ----------
    folder : Path
    repo : str
        ``OWNER/NAME``, made if there is none; a card that says so is sent with the repository's name instead.
    private : bool
        Of a repository that is made; one that is there keeps its own.
    dry_run : bool
        Send nothing.

    Raises
    ------
    FileNotFoundError, ValueError
        For a wrong name, no such folder, no card, a configuration without files, a file that is a link, or no token.
    OSError
        If the hub is switched off, cannot be reached or refuses; the text holds its answer.
    """
    files = _find_files(folder, DATASET_FILES)
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
    return _push(folder, files, repo, "dataset", private, dry_run)


def push_metric(repo: str, *, private: bool = False, dry_run: bool = False) -> Pushed:
    """Send the Space of the metric, which `evaluate.load("OWNER/ruleworld_em")` finds; raises as `push_dataset`."""
    from .. import METRIC_PATH

    folder = Path(METRIC_PATH)
    return _push(folder, _find_files(folder, METRIC_FILES), repo, "space", private, dry_run)


def _push(
    folder: Path, files: list[str], repo: str, kind: Literal["dataset", "space"], private: bool, dry_run: bool
) -> Pushed:
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, get_token

    _check_repo(repo)
    card = (folder / CARD).read_text(encoding="utf-8").replace(NO_REPO, repo).encode()
    sizes = {name: len(card) if name == CARD else (folder / name).stat().st_size for name in files}
    if dry_run:
        return Pushed(repo, kind, private, sizes, sum(sizes.values()), None)
    token = get_token()
    if not token:
        raise ValueError("no token of the hub; set HF_TOKEN, or type: hf auth login")
    api = HfApi()
    is_dataset = kind == "dataset"
    try:
        sdk = None if is_dataset else "gradio"
        url = api.create_repo(repo, repo_type=kind, private=private, exist_ok=True, space_sdk=sdk)
        there = api.list_repo_files(repo, repo_type=kind)
        old = [name for name in there if is_dataset and name.endswith(".parquet") and name not in files]
        changes: list[Any] = [CommitOperationAdd(n, card if n == CARD else folder / n) for n in files]
        changes += [CommitOperationDelete(name) for name in old]
        # Not upload_folder, which can make several commits: between two of them one loads shards of two builds.
        message = f"RuleWorld: {'dataset' if is_dataset else 'metric'}"
        api.create_commit(repo, changes, repo_type=kind, commit_message=message)
    except Exception as error:  # of any kind: what a hub answers can break the library in ways of its own
        lines = str(error).strip().splitlines()
        reason = _without_token(lines[0], token) if lines else type(error).__name__
        raise OSError(f"the hub at {api.endpoint} did not take {repo}: {reason}") from None
    return Pushed(repo, kind, private, sizes, sum(sizes.values()), _without_token(str(url), token))


def _without_token(text: str, token: str) -> str:
    """Return a hub's answer without the token, plain or escaped, and without signs that steer a terminal."""
    for form in {token, quote(token, safe="")}:
        text = re.sub(re.escape(form), "[token]", text, flags=re.IGNORECASE)
    return "".join(sign if sign.isprintable() else " " for sign in text)


def _check_repo(repo: str) -> None:
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(repo)
    except HFValidationError as error:
        raise ValueError(f"--to {repo!r} is no repository name ({error}); give --to OWNER/NAME") from None
    if repo.count("/") != 1:
        raise ValueError(f"--to {repo!r} does not say whose repository it is; give --to OWNER/{repo}")


def _find_files(folder: Path, patterns: Sequence[str]) -> list[str]:
    """Return the files of a folder that match, relative and sorted, a card among them."""
    if not folder.is_dir():
        raise FileNotFoundError(
            f"no folder {folder}; make it first (a dataset: ruleworld export BUILD --out {folder})"
        )
    paths = {path for pattern in patterns for path in folder.glob(pattern) if path.is_file()}
    for path in paths:
        if path.is_symlink() or not path.resolve().is_relative_to(folder.resolve()):
            raise ValueError(f"{path} is a link out of the folder; put the file itself there")
    if folder / CARD not in paths:
        raise FileNotFoundError(f"{folder} has no {CARD}, so nobody could know what it is; export it again")
    return sorted(path.relative_to(folder).as_posix() for path in paths)
