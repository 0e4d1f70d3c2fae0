"""From predictions to a row of the board: `rwbench kit`, `import`, `submit`, `validate`, `board` and more."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated

import typer

from ..cli.shared import JsonFlag, user_errors
from .cli_round import PoolSize, Scale, Split
from .cli_round import app as rounds

app = typer.Typer()
app.add_typer(rounds, name="round")

SUBMISSIONS = Path("benchmarks/leaderboard/submissions")
Subtasks = Annotated[
    list[str] | None, typer.Option("--subtask", help="Sub-task; may be given several times. Default: all.")
]
Submissions = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of submissions.")]
Rounds = Annotated[
    Path | None, typer.Option(help="Folder of rounds; default: rounds/ beside the submissions.")
]
Link = Annotated[str | None, typer.Option(help="https link.")]


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
        from .judge import Judge
        from .kit import kit_spec, write_kit

        write_kit(folder, Judge(), kit_spec(pool_size, scale, split, subtask or ()))
    typer.echo(f"{folder}: questions.jsonl, pools.jsonl, rules.parquet")
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
        from .judge import Judge
        from .submit import import_predictions

        setting = {"scale": scale, "split": split, "subtasks": subtask or ()}
        folder = import_predictions(predictions, name, representation, pool_size, out, Judge(), **setting)
    typer.echo(str(folder))
    submit = f"rwbench submit {folder} --name NAME --submitter WHO --description WORDS"
    typer.echo(f"next: rwbench report {out}, or {submit}")


@app.command()
def submit(
    run: Annotated[
        list[Path],
        typer.Argument(metavar="RUN", help="Folder of one finished run; what is no run folder is ignored."),
    ],
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
    values = locals()
    with user_errors():
        from datetime import date as day

        from .judge import Judge
        from .metadata import Metadata
        from .submit import only_run
        from .submit import submit as write

        values |= {"date": date or day.today().isoformat(), "trained": "yes" if trained else "no"}
        metadata = Metadata.of({field: values[field] for field in Metadata.model_fields})
        folder = write(only_run(run), metadata, to, Judge(), slug)
    typer.echo(str(folder))
    typer.echo("accepted here; next: commit this folder, alone, and open a pull request")


@app.command()
def validate(
    folders: Annotated[
        list[Path] | None, typer.Argument(metavar="DIR...", help="Submissions to check.")
    ] = None,
    board: Annotated[
        Path | None, typer.Option(help="Submissions on the board already, to tell copies.")
    ] = None,
    changed: Annotated[
        Path | None,
        typer.Option(help="Instead of DIR: file of `git diff --raw --no-renames -z` of a pull request."),
    ] = None,
    head: Annotated[Path, typer.Option(help="With --changed: checkout of the pull request.")] = Path(),
    base: Annotated[Path | None, typer.Option(help="With --changed: checkout of the main branch.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Check submissions: everything is recomputed from their samples. Nothing is run, nothing is written.

    Example: rwbench validate benchmarks/leaderboard/submissions/2026-01-31_my-method
    """
    from .files import SUBMISSIONS as PLACE
    from .files import added_submissions
    from .parsing import Refused

    with user_errors():
        from .judge import Judge
        from .validate import check_all, fingerprints

        chosen = list(folders or [])
        try:
            if changed is not None:
                board = base / PLACE if base is not None and board is None else board
                chosen += added_submissions(changed.read_bytes(), head, base)
            if not chosen:
                raise ValueError("nothing to check; name a folder: rwbench validate DIR")
            checked = check_all(chosen, Judge(), fingerprints(board) if board is not None else None)
            problems_of = {name: getattr(found, "problems", ()) for name, found in checked.items()}
        except Refused as error:
            problems_of = {"pull request": error.problems}
    if as_json:
        listed = [
            {
                "submission": name,
                "accepted": not problems,
                "problems": [vars(problem) | {"text": str(problem)} for problem in problems],
            }
            for name, problems in problems_of.items()
        ]
        typer.echo(json.dumps({"submissions": listed}))
    else:
        for name, problems in problems_of.items():
            typer.echo(f"{ascii(name)[1:-1]}: {'refused' if problems else 'accepted'}")
            for problem in problems:
                typer.echo(f"  {problem}")
    if any(problems_of.values()):
        raise typer.Exit(1)


@app.command()
def board(
    submissions: Submissions = SUBMISSIONS,
    out: Annotated[Path | None, typer.Option(help="Folder to write; default: site/ beside DIR.")] = None,
    rounds: Rounds = None,
    as_json: JsonFlag = False,
) -> None:
    """Check all submissions and write the board: index.html and board.json.

    Example: rwbench board benchmarks/leaderboard/submissions
    """
    with user_errors():
        from .board import build_board
        from .page import write_board

        built = build_board(submissions, rounds or submissions.parent / "rounds")
        page = write_board(built, out or submissions.parent / "site", submissions)
    rows = len(built["rows"])
    typer.echo(
        json.dumps({"page": str(page), "rows": rows}) if as_json else f"page: {page} ({rows} submissions)"
    )


@app.command()
def reproduced(
    runs: Annotated[Path, typer.Argument(metavar="RUNS", help="Folder of runs, made again by maintainers.")],
    submissions: Annotated[Path, typer.Option(help="Folder of submissions.")] = SUBMISSIONS,
    as_json: JsonFlag = False,
) -> None:
    """Mark the submissions whose runs were made again with the same outputs, answers and rules, question by question.

    Example: rwbench reproduced again
    """
    with user_errors():
        from datetime import date as day

        from .submit import mark_reproduced

        found = mark_reproduced(runs, submissions, day.today().isoformat())
        if not found:
            raise ValueError(f"no finished run below {runs} has the spec of a submission in {submissions}")
    if as_json:
        typer.echo(json.dumps(found))
    else:
        for name, why in found.items():
            typer.echo(f"{name}: {'reproduced' if why is None else f'not reproduced: {why}'}")
    if any(found.values()):
        raise typer.Exit(1)


@app.command()
def push(
    submissions: Submissions = SUBMISSIONS,
    to: Annotated[str, typer.Option(help="Space: OWNER/NAME.")] = "",
    rounds: Rounds = None,
    private: Annotated[bool, typer.Option("--private", help="If the Space is made by this.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the files and sizes; send nothing.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Check all submissions and send board and submissions to a Space of the Hugging Face Hub, in one commit.

    The token is read from HF_TOKEN.

    Example: rwbench push --to OWNER/ruleworld-leaderboard --dry-run
    """
    from tempfile import TemporaryDirectory

    with user_errors(), TemporaryDirectory() as place:
        from ruleworld_data.io import check_repo

        from .board import build_board
        from .page import push_space

        check_repo(to)  # before the minute that the checks take
        built = build_board(submissions, rounds or submissions.parent / "rounds")
        try:
            pushed = push_space(built, submissions, Path(place), to, private=private, dry_run=dry_run)
        except OSError as error:
            raise ValueError(str(error)) from None
        typer.echo(json.dumps(vars(pushed)) if as_json else pushed.to_text())
