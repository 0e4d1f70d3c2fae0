"""An adapter as a model repository of the Hugging Face Hub: what would be sent, and one commit that sends it."""

from __future__ import annotations

from pathlib import Path

from .config import CONFIG_FILE, WEIGHTS_FILE, DynaRuleConfig

CARD = "README.md"
SENT = (
    # Config, weights and card; the tokenizer that knows <search>, how it was trained, and a base model whose embedding
    # matrix was trained too. Checkpoints and optimizer states stay at home.
    CONFIG_FILE,
    WEIGHTS_FILE,
    CARD,
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "recipe.json",
    "log.json",
    "base/*.json",
    "base/*.safetensors",
    "base/*.txt",
    "base/chat_template.jinja",
)
STALE = ("adapter.json", "adapter-*.safetensors")  # of versions before 0.2


def files_to_push(folder: str | Path, repo: str) -> dict[str, int]:
    """Check an adapter folder and the name of a repository, and return the files that are sent, with their bytes.

    Raises
    ------
    FileNotFoundError
        If the folder is no adapter, or has no card.
    ValueError
        If the name is not ``OWNER/NAME``, or a file is a link out of the folder.
    """
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import filter_repo_objects, validate_repo_id

    folder = Path(folder)
    DynaRuleConfig.from_pretrained(folder)
    for name, what in ((WEIGHTS_FILE, "its weights"), (CARD, "a card, which training writes")):
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder} has no {name}: {what}; push the folder that training wrote")
    try:
        validate_repo_id(repo)
    except HFValidationError as error:
        raise ValueError(f"--to {repo!r} is no repository name ({error}); give --to OWNER/NAME") from None
    if repo.count("/") != 1:
        raise ValueError(f"--to {repo!r} does not say whose repository it is; give --to OWNER/{repo}")
    paths = [path for path in sorted([*folder.glob("*"), *folder.glob("base/*")]) if path.is_file()]
    names = [path.relative_to(folder).as_posix() for path in paths]
    sent = list(filter_repo_objects(names, allow_patterns=list(SENT)))
    for name in sent:
        if (folder / name).is_symlink() or not (folder / name).resolve().is_relative_to(folder.resolve()):
            raise ValueError(f"{folder / name} is a link out of the folder; put the file itself there")
    return {name: (folder / name).stat().st_size for name in sent}


def push_adapter(folder: str | Path, repo: str, private: bool = False) -> str:
    """Make the repository if there is none, send `files_to_push` in one commit, and return its address.

    Weights of an earlier push are deleted by the same commit.

    Raises
    ------
    FileNotFoundError, ValueError
        As `files_to_push`; and without a token.
    OSError
        If the hub is switched off, cannot be reached or refuses; the text says what it answered.
    """
    from huggingface_hub import HfApi, get_token

    files = files_to_push(folder, repo)
    if not get_token():
        raise ValueError("no token of the hub; set HF_TOKEN, or type: hf auth login")
    api = HfApi()
    try:
        made = api.create_repo(repo, private=private, exist_ok=True)
        api.upload_folder(
            repo_id=repo,
            folder_path=folder,
            allow_patterns=list(files),
            delete_patterns=list(STALE),
            commit_message="DynaRule adapter",
        )
    except OSError as error:
        first = str(error).strip().splitlines()
        raise OSError(
            f"the hub at {api.endpoint} did not take {repo}: {first[0] if first else error!r}"
        ) from None
    return str(made)
