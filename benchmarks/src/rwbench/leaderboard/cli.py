"""From predictions to a row of the board: `rwbench kit`, `import`, `submit`, `validate`, `board`, `round` and more."""

import json
from pathlib import Path
from typing import Annotated

import typer

from ..cli.shared import JsonFlag, printable

app = typer.Typer()
round_app = typer.Typer(
    help="Sealed rounds: worlds whose seed is secret until all answers are in.", no_args_is_help=True
)
app.add_typer(round_app, name="round")

SUBMISSIONS = Path("benchmarks/leaderboard/submissions")
Scale = Annotated[str, typer.Option(help="Size of the world: tiny, paper, full.")]
Split = Annotated[str, typer.Option(help="Questions: unseen (data 1.2), heldout, mini or test.")]
PoolSize = Annotated[int, typer.Option(help="Rules per pool.")]
Folder = Annotated[Path, typer.Argument(metavar="ROUND", help="The round's folder.")]


@app.command()
def kit(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to write.")],
    scale: Scale = "paper",
    split: Split = "mini",
    pool_size: PoolSize = 1_000,
    subtask: Annotated[list[str] | None, typer.Option(help="May be repeated; default: all.")] = None,
) -> None:
    """Write the questions, rules and pools of a setting, for methods that run elsewhere.

    Example: rwbench kit kit --pool-size 1000
    """
    from .judge import METHOD, board_spec, write_kit

    write_kit(folder, board_spec(METHOD, "nl", pool_size, scale, split, subtask or ()))
    typer.echo(f"next: rwbench import {folder} PREDICTIONS --name NAME")


@app.command("import")
def import_(
    kit: Annotated[Path, typer.Argument(metavar="KIT", help="The kit that was answered.")],
    predictions: Annotated[Path, typer.Argument(help="JSON Lines: id and output, answers or retrieved.")],
    name: Annotated[str, typer.Option(help="Name of the method in reports.")],
    representation: Annotated[str, typer.Option(help="How rules were written: fol or nl.")] = "nl",
    out: Annotated[Path, typer.Option(help="Folder of run folders.")] = Path("runs"),
) -> None:
    """Score predictions made elsewhere, and keep them as a run.

    Example: rwbench import kit predictions.jsonl --name "My method"
    """
    from .submissions import import_predictions

    folder = import_predictions(kit, predictions, name, representation, out)
    typer.echo(str(folder))
    typer.echo(f"next: rwbench report {out}, or rwbench submit {folder} WORDS.toml")


@app.command()
def submit(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run.")],
    words: Annotated[Path, typer.Argument(metavar="WORDS.toml", help="What the board shall say of it.")],
    to: Annotated[Path, typer.Option(help="Folder of submissions.")] = SUBMISSIONS,
) -> None:
    """Write the submission of a run, after the checks that a pull request gets.

    The file says name (of the method), submitter (person or team) and description (a sentence or two). It may say model
    (and revision), open_weights (yes, no, none), trained (yes, no: on RuleWorld's train split), kind (contender, floor,
    ceiling), code, paper (links), hardware, cost_usd (of the whole run) and date. The folder is called after date and
    file.

    Example: rwbench submit runs/0123456789ab my-method.toml
    """
    from ..run.folder import finished_run
    from .submissions import read_words
    from .submissions import submit as write

    folder = write(*finished_run(run), read_words(words), to, words.stem)
    typer.echo(str(folder))
    typer.echo("accepted here; next: commit this folder, alone, and open a pull request")


@app.command()
def validate(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Submissions to check.")],
    board: Annotated[Path | None, typer.Option(help="Submissions on the board, to tell copies.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Check submissions: everything is recomputed from their samples. Nothing is run, nothing is written.

    Example: rwbench validate benchmarks/leaderboard/submissions/2026-11-28_my-method
    """
    from .files import Refused
    from .submissions import check_all

    problems = {
        name: str(result).splitlines() if isinstance(result, Refused) else []
        for name, result in check_all(folders, board).items()
    }
    if as_json:
        listed = [{"submission": name, "accepted": not p, "problems": p} for name, p in problems.items()]
        typer.echo(json.dumps({"submissions": listed}))
    else:
        for name, lines in problems.items():
            head = f"{name}: {'refused' if lines else 'accepted'}"
            typer.echo(printable("\n  ".join([head, *lines])))
    raise typer.Exit(int(any(problems.values())))


@app.command()
def board(
    submissions: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of submissions.")] = SUBMISSIONS,
) -> None:
    """Check all submissions and write the board beside them, in site/: index.html and board.json.

    Rounds in rounds/ beside them that were scored are scored again.

    Example: rwbench board benchmarks/leaderboard/submissions
    """
    from .board import build_board, write_board

    built = build_board(submissions)
    page = write_board(built, submissions.parent / "site")
    typer.echo(f"page: {page} ({len(built['rows'])} submissions)")


@round_app.command()
def new(folder: Folder, scale: Scale = "paper", split: Split = "mini", pool_size: PoolSize = 1_000) -> None:
    """Draw a secret seed; publish its hash and its world's questions, rules and pools, without answers.

    The secret is written to NAME.secret.json here: never commit it.

    Example: rwbench round new benchmarks/leaderboard/rounds/2026-1
    """
    from .rounds import ENTRIES, new_round

    path = _secret(folder)
    new_round(folder, path, scale, split, pool_size)
    typer.echo(f"publish {folder}, keep {path} secret; entrants: rwbench round enter {folder} ENTRY.jsonl")
    typer.echo(f"when all hashes are in {folder / ENTRIES}: rwbench round reveal {folder}")


@round_app.command()
def enter(
    folder: Folder,
    predictions: Annotated[Path, typer.Argument(metavar="SUBMISSION.jsonl", help="Named as its submission.")],
) -> None:
    """Write the hash of an entry to the round; the entry itself stays with you until the reveal.

    Example: rwbench round enter benchmarks/leaderboard/rounds/2026-1 2026-11-28_my-method.jsonl
    """
    from .rounds import enter_round

    path = enter_round(folder, predictions)
    typer.echo(f"hand in {path}; after the reveal, and not before, {path.with_suffix('.jsonl')}")


@round_app.command()
def reveal(folder: Folder) -> None:
    """Publish seed and salt, from NAME.secret.json here, and end the list of hashes.

    Example: rwbench round reveal benchmarks/leaderboard/rounds/2026-1
    """
    from .rounds import reveal_round

    done = reveal_round(folder, _secret(folder))
    typer.echo(f"{len(done.entries or ())} entries; when they are opened: rwbench round score {folder}")


@round_app.command()
def score(folder: Folder) -> None:
    """Check a revealed round, score its entries, and print their scores beside the public ones as JSON.

    An entry's submission lies in submissions/, beside the folder of rounds.

    Example: rwbench round score benchmarks/leaderboard/rounds/2026-1
    """
    from .rounds import score_round

    done = score_round(folder)
    typer.echo(json.dumps(done, indent=1))


def _secret(folder: Path) -> Path:
    return Path(f"{folder.name}.secret.json")
