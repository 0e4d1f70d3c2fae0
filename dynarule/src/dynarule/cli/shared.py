"""What the commands share: errors of the user as one line, and loading of models, rules and questions."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from ..bank.bank import RuleBank

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
ModelOption = Annotated[
    str, typer.Option("--model", help="Base model: a folder, or a name on the Hub.", show_default=False)
]
AdapterOption = Annotated[Path, typer.Option("--adapter", help="Adapter folder.", show_default=False)]
RulesOption = Annotated[
    Path,
    typer.Option(
        "--rules",
        help="A bank folder, or .parquet, .tsv (rule, tab, conclusion), or text with a rule per line.",
        show_default=False,
    ),
]
EncoderOption = Annotated[
    str | None,
    typer.Option(
        "--encoder",
        help="minilm, a sentence-transformers folder or name, or layers:N, the first N layers of the model.",
        show_default="what adapter or bank were made with, else minilm",
    ),
]
FolOption = Annotated[bool, typer.Option("--fol", help="The rules are logic; encode them as words.")]
DeviceOption = Annotated[
    str | None,
    typer.Option("--device", help="cpu, cuda, ...", show_default="cuda where there is one"),
]
MaxNewTokensOption = Annotated[int, typer.Option("--max-new-tokens", min=1, help="Length of an answer.")]
QuestionsOption = Annotated[
    Path | None,
    typer.Option("--questions", help="Text with a question per line, or .jsonl / .parquet with `question`."),
]


def user_errors(command: Callable[..., Any]) -> Callable[..., Any]:
    """Turn what a user can cause into one line on stderr and exit code 2; Ctrl-C into exit code 1."""

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except (ValueError, OSError, ImportError, KeyError) as error:
            said = error.args[0] if isinstance(error, KeyError) and error.args else error
            typer.echo(f"dynarule: {' '.join(str(said).split())}", err=True)
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            typer.echo("dynarule: stopped", err=True)
            raise typer.Exit(1) from None

    return run


def print_json(value: object) -> None:
    """Print one JSON object."""
    typer.echo(json.dumps(value, indent=1, ensure_ascii=False))


def quiet_libraries() -> None:
    """Keep transformers' bars and notices out of our stderr; errors still come through."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


def load_model(name: str, adapter: Path | None, device: str | None) -> tuple[Any, Any]:
    """Load a base model and its tokenizer, the adapter's own tokenizer if it has one."""
    import torch
    from transformers import AutoModelForCausalLM

    from ..tokenizer import load_tokenizer

    quiet_libraries()
    source = adapter if adapter is not None and (adapter / "tokenizer_config.json").is_file() else name
    try:
        tokenizer = load_tokenizer(source)
        model: Any = AutoModelForCausalLM.from_pretrained(name, dtype="auto")
    except (OSError, ValueError) as error:
        first = str(error).strip().splitlines()[0]
        raise ValueError(
            f"cannot load the model {name!r} ({first}); give the folder of a causal model, or its name on the Hub"
        ) from None
    return model.to(device or ("cuda" if torch.cuda.is_available() else "cpu")).eval(), tokenizer


def load_rules(
    path: Path,
    encoder: str | None,
    fol: bool,
    cache: Path | None = None,
    text: str | None = None,
    conclusion: str | None = None,
    id: str = "id",
    *,
    like: str = "",
    model: Any = None,
    tokenizer: Any = None,
) -> RuleBank:
    """Load a bank folder, or encode a file of rules; by default with that of fingerprint ``like``."""
    from ..bank.bank import RuleBank

    if path.is_dir():
        bank = RuleBank.load(path)
        _check_encoder(path, bank.encoder, encoder)
        return bank
    if not path.is_file():  # before an encoder is loaded for nothing
        raise FileNotFoundError(f"no rules at {path}; give a bank folder, .parquet, .tsv or a text file")
    from ..bank.embedding_cache import EmbeddingCache
    from ..bank.encoder_choice import encoder_of, open_encoder

    quiet_libraries()
    if encoder is None and like:
        encode: Any = encoder_of(like, model, tokenizer)
        if fol and not getattr(encode, "fol", True):
            raise ValueError(
                f"--fol would write logic as words, but {like.split('@')[0]} was given rules as they are for this "
                "adapter or bank; leave --fol out, or make them with --fol"
            )
    else:
        encode = open_encoder(encoder or "minilm", fol, model, tokenizer)
    if cache is not None:
        encode = EmbeddingCache(encode, cache)
    column = text or ("fol" if fol else "nl")
    return RuleBank.from_file(path, encode, column, conclusion or f"conclusion_{column}", id)


def _check_encoder(folder: Path, made_with: str, named: str | None) -> None:
    """Raise ValueError if an encoder is named beside a bank that was built with another."""
    name = made_with.split("@")[0]
    if named is None or not name or name in (named, Path(named).name):
        return
    if (named, name) == ("minilm", "all-MiniLM-L6-v2"):
        return
    raise ValueError(
        f"--encoder {named}, but the bank {folder} was built with {name}; leave --encoder out, or build it again: "
        f"dynarule bank build RULES --out BANK --encoder {named}"
    )


def load_all(
    model: str,
    adapter: Path,
    rules: Path,
    encoder: str | None,
    fol: bool,
    device: str | None,
    searched: bool = True,
) -> tuple[Any, Any, Any, Any]:
    """Load a base model, its tokenizer, an adapter and a bank for it; cheap checks first.

    A bank that will be ``searched`` is so exactly up to `dynarule.bank.index.EXACT_UP_TO` rules, and with faiss above.
    """
    from ..adapter_info import read_adapter_info
    from ..adapter_io import load_adapter
    from ..memory.search import prepare_search

    info = read_adapter_info(adapter)
    if not rules.exists():
        raise FileNotFoundError(f"no rules at {rules}; give a bank folder, .parquet, .tsv or a text file")
    base, tokenizer = load_model(model, adapter, device)
    if info.search is not None:
        prepare_search(base, tokenizer, info.search.token)
    adapted = load_adapter(base, adapter, tokenizer)
    bank = load_rules(rules, encoder, fol, like=info.encoder, model=base, tokenizer=tokenizer)
    bank.to(base.device, base.dtype)
    if searched and info.memory.top_k is not None:  # else every layer reads all rules
        choose_index(bank)
    return base, tokenizer, adapted, bank


def choose_index(bank: RuleBank) -> None:
    """Let a bank be searched in the way that fits its size, and say so where that takes long."""
    from ..bank import faiss_index

    many = len(bank) > faiss_index.EXACT_UP_TO and not bank.keys_MP.is_cuda
    if many and faiss_index.installed():
        typer.echo(f"dynarule: {len(bank):,} rules, building a faiss index of them", err=True)
    elif many:
        typer.echo(
            f"dynarule: {len(bank):,} rules, all scored at every search; faster: pip install 'dynarule[faiss-cpu]'",
            err=True,
        )
    faiss_index.use_index(bank)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Read ``.jsonl`` or ``.parquet`` rows, or the lines of a text file as questions.

    Raises
    ------
    FileNotFoundError, ValueError
        If the file is not there, empty, or has no questions.
    """
    if not path.is_file():
        raise FileNotFoundError(f"no question file {path}; expected .jsonl, .parquet, or a question per line")
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        rows = pq.read_table(path).to_pylist()
    else:
        lines = [line for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]
        try:
            rows = [json.loads(li) if path.suffix == ".jsonl" else {"question": li} for li in lines]
        except json.JSONDecodeError as error:
            raise ValueError(f"{path} is not JSON lines: {error}") from None
    bad = next(
        (i for i, row in enumerate(rows, 1) if not isinstance(row, dict) or "question" not in row), None
    )
    if bad is not None or not rows:
        raise ValueError(
            f"{path} {'is empty' if not rows else f'row {bad} has no `question`'}; expected one per row"
        )
    return rows
