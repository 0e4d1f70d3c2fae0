"""`rwbench round`: a world from a secret seed, published step by step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ..cli.shared import JsonFlag, user_errors

app = typer.Typer(
    help="Sealed rounds: worlds whose seed is secret until all answers are in.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Folder = Annotated[Path, typer.Argument(metavar="ROUND", help="The round's folder.")]
SecretFile = Annotated[
    Path | None,
    typer.Option("--secret", help="The secret's file; default: NAME.secret.json here. Never commit it."),
]


Scale = Annotated[str, typer.Option(help="Size of the world: tiny, paper, full.")]
Split = Annotated[str, typer.Option(help="Questions: mini or test.")]
PoolSize = Annotated[int, typer.Option(help="Rules per pool.")]


@app.command()
def new(
    folder: Folder,
    secret: SecretFile = None,
    scale: Scale = "paper",
    split: Split = "mini",
    pool_size: PoolSize = 1_000,
) -> None:
    """Draw a secret seed and publish its hash.

    Example: rwbench round new benchmarks/leaderboard/rounds/2026-1
    """
    with user_errors():
        from .rounds import new_round

        path = _secret(folder, secret)
        made = new_round(folder, path, scale, split, pool_size)
    typer.echo(f"commitment: {made.commitment}")
    typer.echo(f"publish {folder}, keep {path} to yourself; next: rwbench round seal {folder}")


@app.command()
def seal(folder: Folder, secret: SecretFile = None) -> None:
    """Publish the round's questions, rules and pools, without answers.

    Example: rwbench round seal benchmarks/leaderboard/rounds/2026-1
    """
    with user_errors():
        from .rounds import ENTRIES, KIT, seal_round

        seal_round(folder, _secret(folder, secret))
    typer.echo(f"kit: {folder / KIT}; entries go to {folder / ENTRIES}/SUBMISSION.jsonl")
    typer.echo(f"when they are in: rwbench round reveal {folder}")


@app.command()
def answer(
    folder: Folder,
    submission: Annotated[Path, typer.Argument(help="Submission whose method is to enter.")],
    model: Annotated[
        str | None, typer.Option(help="The model that it asks: its name, or your folder.")
    ] = None,
    endpoint: Annotated[
        str | None, typer.Option(metavar="URL", help="Your OpenAI-compatible server, if the model is on one.")
    ] = None,
    encoder: Annotated[str, typer.Option(help="Of dense retrieval: minilm, a folder or a name.")] = "minilm",
) -> None:
    """Enter with a method of rwbench: run a submission's method on the round's kit.

    Models and servers are those that you name here, never the ones that the submission names.

    Example: rwbench round answer benchmarks/leaderboard/rounds/2026-1 SUBMISSION --model tiny
    """
    with user_errors():
        from ..backends.endpoint import Endpoint
        from ..backends.local import Local
        from .rounds import answer_round

        if endpoint is not None and model is None:
            raise ValueError("--endpoint needs the name of a model there; add --model NAME")
        backend = model and (Endpoint.of(model, endpoint) if endpoint else Local.of(model))
        out, count = answer_round(folder, submission, backend or None, encoder)
    typer.echo(f"{out}: {count} answers")


@app.command()
def reveal(folder: Folder, secret: SecretFile = None) -> None:
    """Publish seed and salt, and the hashes of all entries.

    Example: rwbench round reveal benchmarks/leaderboard/rounds/2026-1
    """
    with user_errors():
        from .rounds import reveal_round

        done = reveal_round(folder, _secret(folder, secret))
    assert done.revealed is not None
    told = f"seed {done.revealed.seed}, {len(done.revealed.entries)} entries"
    typer.echo(f"{told}; next: rwbench round score {folder}")


@app.command()
def score(
    folder: Folder,
    submissions: Annotated[
        Path | None, typer.Option(help="Folder of submissions; default: beside the rounds.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Check a revealed round, score its entries, and show the drop from the public world.

    Example: rwbench round score benchmarks/leaderboard/rounds/2026-1
    """
    with user_errors():
        from .rounds import score_round

        done = score_round(folder, submissions or folder.parent.parent / "submissions")
    if as_json:
        typer.echo(json.dumps(done))
        return
    for found in done["scores"]:
        drop = found["drop"]
        typer.echo(
            f"{found['public']}: {found['metric']} {100 * found['sealed_score']['value']:.1f} %, public "
            f"{100 * found['public_score']['value']:.1f} %, drop {100 * drop['value']:+.1f} "
            f"({100 * drop['ci_low']:.1f} to {100 * drop['ci_high']:.1f})"
        )


def _secret(folder: Path, given: Path | None) -> Path:
    return given if given is not None else Path(f"{folder.name}.secret.json")
