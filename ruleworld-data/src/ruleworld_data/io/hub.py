"""Folders as repositories of the Hugging Face Hub, each sent in one commit: dataset, metric, leaderboard.

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
NO_REPO = "OWNER/NAME"
"""Stands in a card for the repository's own name until the card is sent."""
METRIC_FILES = (CARD, "app.py", "requirements.txt", "ruleworld_em.py", "tests.py")


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


def push_folder(
    folder: Path,
    repo: str,
    kind: Literal["dataset", "space", "model"],
    patterns: Sequence[str],
    message: str,
    *,
    stale: Sequence[str] = (),
    private: bool = False,
    space_sdk: str | None = None,
    dry_run: bool = False,
) -> Pushed:
    """Send files of a folder in one commit; the repository is made if there is none.

    Not by `HfApi.upload_folder`: where the chunked upload is installed it makes several commits, and whoever loads the
    dataset between two of them gets shards of two builds.

    Parameters
    ----------
    folder : Path
    repo : str
        ``OWNER/NAME``; a card that says so is sent with the repository's name instead.
    kind : {"dataset", "space", "model"}
    patterns : sequence of str
        Files that are sent, relative to the folder; ``*`` stops at a slash. A card must be among them.
    message : str
        Of the commit.
    stale : sequence of str
        Patterns of files that are deleted there when they are not sent: shards of an earlier build would be read with
        the new ones.
    private : bool
        Of a repository that is made; one that is there keeps its own.
    space_sdk : str, optional
        What runs a Space: ``"gradio"``, ``"static"``.
    dry_run : bool
        Send nothing.

    Raises
    ------
    FileNotFoundError, ValueError
        For a wrong name, no such folder, no card, a file that is a link, or no token.
    OSError
        If the hub is switched off, cannot be reached or refuses; the text holds its answer.
    """
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, get_token

    check_repo(repo)
    found = find_files(folder, patterns)
    card = (folder / CARD).read_text(encoding="utf-8").replace(NO_REPO, repo).encode()
    sizes = {name: len(card) if name == CARD else (folder / name).stat().st_size for name in found}
    if dry_run:
        return Pushed(repo, kind, private, sizes, sum(sizes.values()), None)
    token = get_token()
    if not token:
        raise ValueError("no token of the hub; set HF_TOKEN, or type: hf auth login")
    api = HfApi()
    try:
        url = api.create_repo(repo, repo_type=kind, private=private, exist_ok=True, space_sdk=space_sdk)
        there = api.list_repo_files(repo, repo_type=kind)
        old = [name for name in there if name not in found and any(fnmatch(name, p) for p in stale)]
        changes: list[Any] = [
            CommitOperationAdd(name, card if name == CARD else folder / name) for name in found
        ]
        changes += [CommitOperationDelete(name) for name in old]
        api.create_commit(repo, changes, repo_type=kind, commit_message=message)
    except Exception as error:  # of any kind: what a hub answers can break the library in ways of its own
        lines = str(error).strip().splitlines()
        why = _shown(lines[0], token) if lines else type(error).__name__
        raise OSError(f"the hub at {api.endpoint} did not take {repo}: {why}") from None
    return Pushed(repo, kind, private, sizes, sum(sizes.values()), _shown(str(url), token))


def _shown(text: str, token: str) -> str:
    """Return what a hub said without the token, plain or escaped, and without signs that steer a terminal."""
    for form in {token, quote(token, safe="")}:
        text = re.sub(re.escape(form), "[token]", text, flags=re.IGNORECASE)
    return "".join(sign if sign.isprintable() else " " for sign in text)


def push_dataset(folder: Path, repo: str, *, private: bool = False, dry_run: bool = False) -> Pushed:
    """Send a folder made by `ruleworld_data.io.export`.

    Raises
    ------
    FileNotFoundError, ValueError, OSError
        As `push_folder`, and if a configuration of the card has no file.
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
    options: dict[str, Any] = {"stale": ("*.parquet",), "private": private, "dry_run": dry_run}
    return push_folder(folder, repo, "dataset", DATASET_FILES, "RuleWorld: dataset", **options)


def push_metric(repo: str, *, private: bool = False, dry_run: bool = False) -> Pushed:
    """Send the Space of the metric, which `evaluate.load("OWNER/ruleworld_em")` finds; raises as `push_folder`."""
    from .. import METRIC_PATH

    options: dict[str, Any] = {"space_sdk": "gradio", "private": private, "dry_run": dry_run}
    return push_folder(Path(METRIC_PATH), repo, "space", METRIC_FILES, "RuleWorld: metric", **options)


def check_repo(repo: str) -> None:
    """Check that a name is one of a repository, OWNER/NAME.

    Raises
    ------
    ValueError
        If it is none.
    """
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(repo)
    except HFValidationError as error:
        raise ValueError(f"--to {repo!r} is no repository name ({error}); give --to OWNER/NAME") from None
    if repo.count("/") != 1:
        raise ValueError(f"--to {repo!r} does not say whose repository it is; give --to OWNER/{repo}")


def find_files(folder: Path, patterns: Sequence[str]) -> list[str]:
    """Return the files of a folder that match, relative and sorted; raises as `push_folder`."""
    if not folder.is_dir():
        raise FileNotFoundError(
            f"no folder {folder}; make it first (a dataset: ruleworld export BUILD --out {folder})"
        )
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    # fnmatch lets * cross a slash, so the depth is compared too.
    taken = [n for n in names if any(fnmatch(n, p) and n.count("/") == p.count("/") for p in patterns)]
    for name in taken:
        path = folder / name
        if path.is_symlink() or not path.resolve().is_relative_to(folder.resolve()):
            raise ValueError(f"{path} is a link out of the folder; put the file itself there")
    if CARD not in taken:
        raise FileNotFoundError(f"{folder} has no {CARD}, so nobody could know what it is; export it again")
    return taken
