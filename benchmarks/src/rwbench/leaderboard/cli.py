"""From predictions to a row of the board: `rwbench kit`, `import`, `submit`, `validate`, `board`, `round` and more."""

from __future__ import annotations

import json
import shlex
from datetime import date as day
from pathlib import Path
from typing import Annotated

import typer

from ..cli.shared import JsonFlag, printable, user_errors

app = typer.Typer()
round_app = typer.Typer(
    help="Sealed rounds: worlds whose seed is secret until all answers are in.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(round_app, name="round")

SUBMISSIONS = Path("benchmarks/leaderboard/submissions")
Scale = Annotated[str, typer.Option(help="Size of the world: tiny, paper, full.")]
Split = Annotated[str, typer.Option(help="Questions: unseen (data 1.2), heldout, mini or test.")]
PoolSize = Annotated[int, typer.Option(help="Rules per pool.")]
Subtasks = Annotated[
    list[str] | None, typer.Option("--subtask", help="Sub-task; may be given several times. Default: all.")
]
Link = Annotated[str | None, typer.Option(help="https link.")]
Folder = Annotated[Path, typer.Argument(metavar="ROUND", help="The round's folder.")]


@app.command()
def kit(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to write.")],
    scale: Scale = "paper",
    split: Split = "mini",
    pool_size: PoolSize = 1_000,
    subtask: Subtasks = None,
) -> None:
    """Write the questions, rules and pools of a setting, for methods that run elsewhere.

    Example: rwbench kit kit --pool-size 1000
    """
    with user_errors():
        from .judge import board_spec
        from .kit import METHOD, write_kit

        write_kit(folder, board_spec(METHOD, "nl", pool_size, scale, split, subtask or ()))
    setting = ["--scale", scale, "--split", split, "--pool-size", str(pool_size)]
    setting += [word for name in subtask or () for word in ("--subtask", name)]
    typer.echo(f"next: rwbench import PREDICTIONS --name NAME --representation nl {shlex.join(setting)}")


@app.command("import")
def import_(
    predictions: Annotated[Path, typer.Argument(help="JSON Lines: id and output, answers or retrieved.")],
    name: Annotated[str, typer.Option(help="Name of the method in reports.")],
    representation: Annotated[str, typer.Option(help="How rules were written: fol or nl.")] = "nl",
    pool_size: PoolSize = 1_000,
    scale: Scale = "paper",
    split: Split = "mini",
    subtask: Subtasks = None,
    out: Annotated[Path, typer.Option(help="Folder of run folders.")] = Path("runs"),
) -> None:
    """Score predictions made elsewhere, and keep them as a run.

    Example: rwbench import predictions.jsonl --name "My method" --subtask multi_hop_3 --pool-size 1000
    """
    with user_errors():
        from .submissions import import_predictions

        setting = {"scale": scale, "split": split, "subtasks": subtask or ()}
        folder = import_predictions(predictions, name, representation, pool_size, out, **setting)
    typer.echo(str(folder))
    submit = f"rwbench submit {folder} --name NAME --submitter WHO --description WORDS"
    typer.echo(f"next: rwbench report {out}, or {submit}")


@app.command()
def submit(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run.")],
    name: Annotated[str, typer.Option(help="The method, as the board shows it.")],
    submitter: Annotated[str, typer.Option(help="Person or team.")],
    description: Annotated[str, typer.Option(help="One or two sentences.")],
    model: Annotated[str, typer.Option(help="Language model and revision, or none.")] = "none",
    open_weights: Annotated[str, typer.Option(help="yes, no, or none (no weights at all).")] = "none",
    trained: Annotated[bool, typer.Option(help="Was anything fitted to RuleWorld's train split?")] = False,
    kind: Annotated[
        str, typer.Option(help="contender, floor, or ceiling (looks at gold data).")
    ] = "contender",
    code: Link = None,
    paper: Link = None,
    hardware: Annotated[str | None, typer.Option(help="What it ran on.")] = None,
    cost_usd: Annotated[float | None, typer.Option(help="US dollars for the whole run.")] = None,
    date: Annotated[str | None, typer.Option(help="YYYY-MM-DD; default: today.")] = None,
    slug: Annotated[str | None, typer.Option(help="Short name at the end of the folder's.")] = None,
    to: Annotated[Path, typer.Option(help="Folder of submissions.")] = SUBMISSIONS,
) -> None:
    """Write the submission of a run, after the checks that a pull request gets.

    Example: rwbench submit runs/0123456789ab --name "My method" --submitter "My team" --description "What it does."
    """
    given = locals()
    with user_errors():
        from .entry import Entry
        from .submissions import read_run
        from .submissions import submit as write

        words = {field: given[field] for field in Entry.model_fields if field in given}
        words |= {"date": date or day.today().isoformat(), "trained": "yes" if trained else "no"}
        folder = write(*read_run(run), words, to, slug)
    typer.echo(str(folder))
    typer.echo("accepted here; next: commit this folder, alone, and open a pull request")


@app.command()
def validate(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Submissions to check.")],
    board: Annotated[
        Path | None, typer.Option(help="Submissions on the board already, to tell copies.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Check submissions: everything is recomputed from their samples. Nothing is run, nothing is written.

    Example: rwbench validate benchmarks/leaderboard/submissions/2026-11-28_my-method
    """
    with user_errors():
        from .files import Refused
        from .submissions import check_all

        checked = check_all(folders, board)
    listed = []
    for name, result in checked.items():
        problems = str(result).splitlines() if isinstance(result, Refused) else []
        listed.append({"submission": name, "accepted": not problems, "problems": problems})
        if not as_json:
            lines = [f"{name}: {'refused' if problems else 'accepted'}", *(f"  {line}" for line in problems)]
            typer.echo(printable("\n".join(lines)))
    if as_json:
        typer.echo(json.dumps({"submissions": listed}))
    if not all(each["accepted"] for each in listed):
        raise typer.Exit(1)


@app.command()
def board(
    submissions: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of submissions.")] = SUBMISSIONS,
) -> None:
    """Check all submissions and write the board beside them, in site/: index.html and board.json.

    Scores of sealed rounds are those in rounds/ beside them.

    Example: rwbench board benchmarks/leaderboard/submissions
    """
    with user_errors():
        from .board import build_board
        from .page import write_board

        built = build_board(submissions)
        page = write_board(built, submissions.parent / "site")
    typer.echo(f"page: {page} ({len(built['rows'])} submissions)")


@round_app.command()
def new(
    folder: Folder,
    scale: Scale = "paper",
    split: Split = "mini",
    pool_size: PoolSize = 1_000,
) -> None:
    """Draw a secret seed; publish its hash and its world's questions, rules and pools, without answers.

    The secret is written to NAME.secret.json here: never commit it.

    Example: rwbench round new benchmarks/leaderboard/rounds/2026-1
    """
    with user_errors():
        from .rounds import ENTRIES, new_round

        path = _secret(folder)
        new_round(folder, path, scale, split, pool_size)
    typer.echo(
        f"publish {folder}, keep {path} to yourself; entrants: rwbench round enter {folder} ENTRY.jsonl"
    )
    typer.echo(f"when all hashes are in {folder / ENTRIES}: rwbench round reveal {folder}")


@round_app.command()
def enter(
    folder: Folder,
    predictions: Annotated[
        Path, typer.Argument(metavar="SUBMISSION.jsonl", help="Named after its submission.")
    ],
) -> None:
    """Write the hash of an entry to the round; the entry itself stays with you until the reveal.

    Example: rwbench round enter benchmarks/leaderboard/rounds/2026-1 2026-11-28_my-method.jsonl
    """
    with user_errors():
        from .rounds import enter_round

        path = enter_round(folder, predictions)
    typer.echo(f"hand in {path}; after the reveal, and not before, {path.with_suffix('.jsonl')}")


@round_app.command()
def reveal(folder: Folder) -> None:
    """Publish seed and salt, from NAME.secret.json here, and end the list of hashes.

    Example: rwbench round reveal benchmarks/leaderboard/rounds/2026-1
    """
    with user_errors():
        from .rounds import reveal_round

        done = reveal_round(folder, _secret(folder))
    typer.echo(f"{len(done.entries or ())} entries; when they are opened: rwbench round score {folder}")


@round_app.command()
def score(folder: Folder) -> None:
    """Check a revealed round, score its entries, and print the drop from the public world as JSON.

    An entry's submission lies in submissions/, beside the folder of rounds.

    Example: rwbench round score benchmarks/leaderboard/rounds/2026-1
    """
    with user_errors():
        from .rounds import score_round

        done = score_round(folder)
    typer.echo(json.dumps(done, indent=1))


def _secret(folder: Path) -> Path:
    return Path(f"{folder.name}.secret.json")
