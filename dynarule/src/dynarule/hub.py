"""An adapter as a model repository of the Hugging Face Hub: what would be sent, and one commit that sends it."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from .adapter_info import FILE, read_adapter_info
from .training.run_folder import RECIPE

CARD = "README.md"
# Beside adapter.json, its weights and the card: the tokenizer that knows <search>, how it was trained, and a base model
# whose embedding matrix was trained too. Checkpoints and optimizer states stay at home.
EXTRAS = (
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    RECIPE,
    "log.json",
    "base/*.json",
    "base/*.safetensors",
    "base/*.txt",
    "base/chat_template.jinja",
)
STALE = ("adapter-*.safetensors",)


@dataclass(frozen=True)
class AdapterPush:
    """An adapter folder as it goes to a hub.

    Attributes
    ----------
    folder : Path
    repo : str
        ``OWNER/NAME``.
    files : dict of str to int
        Path relative to the folder -> bytes, sorted.
    private : bool
        Of a repository that is made; one that is there keeps its own.
    notes : tuple of str
        What others will stumble over.
    """

    folder: Path
    repo: str
    files: dict[str, int]
    private: bool = False
    notes: tuple[str, ...] = ()


def plan_push(folder: str | Path, repo: str, private: bool = False) -> AdapterPush:
    """Check an adapter folder and say what of it is sent.

    Parameters
    ----------
    folder : path
        Written by training or `dynarule.adapter_io.save_adapter`.
    repo : str
        ``OWNER/NAME``.
    private : bool

    Raises
    ------
    FileNotFoundError
        If the folder is no adapter, or has no card.
    ValueError
        If the name is none, or a file is a link out of the folder.
    """
    folder = Path(folder)
    info = read_adapter_info(folder)
    for name, what in ((info.weights, "its weights"), (CARD, "a card, which training writes")):
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder} has no {name}: {what}; push the folder that training wrote")
    _check_repo(repo)
    paths = [p for p in sorted([*folder.glob("*"), *folder.glob("base/*")]) if p.is_file()]
    names = [p.relative_to(folder).as_posix() for p in paths]
    sent = [
        n
        for n in names
        if n in (FILE, info.weights, CARD)
        or any(fnmatch(n, p) and n.count("/") == p.count("/") for p in EXTRAS)
    ]
    for name in sent:
        if (folder / name).is_symlink() or not (folder / name).resolve().is_relative_to(folder.resolve()):
            raise ValueError(f"{folder / name} is a link out of the folder; put the file itself there")
    notes = []
    base = Path(info.base.name)
    if info.base.name and (base.is_absolute() or info.base.name.startswith(".") or base.is_dir()):
        notes.append(
            f"{FILE} names the base model by a path of this machine ({info.base.name}); others cannot load that"
        )
    files = {name: (folder / name).stat().st_size for name in sent}
    return AdapterPush(folder, repo, files, private, tuple(notes))


def _check_repo(repo: str) -> None:
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(repo)
    except HFValidationError as error:
        raise ValueError(f"--to {repo!r} is no repository name ({error}); give --to OWNER/NAME") from None
    if repo.count("/") != 1:
        raise ValueError(f"--to {repo!r} does not say whose repository it is; give --to OWNER/{repo}")


def send(push: AdapterPush) -> str:
    """Make the repository if there is none, send all files in one commit, and return its address.

    Weights of an earlier push are deleted by the same commit.

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
        made = api.create_repo(push.repo, private=push.private, exist_ok=True)
        there = api.list_repo_files(push.repo)
        operations: list[Any] = [CommitOperationAdd(name, push.folder / name) for name in push.files]
        operations += [
            CommitOperationDelete(name)
            for name in there
            if name not in push.files and any(fnmatch(name, pattern) for pattern in STALE)
        ]
        api.create_commit(push.repo, operations, commit_message="DynaRule adapter")
    except OSError as error:
        said = str(error).strip().splitlines()
        raise OSError(
            f"the hub at {api.endpoint} did not take {push.repo}: {said[0] if said else error!r}"
        ) from None
    return str(made)
