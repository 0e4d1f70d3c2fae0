"""`rwbench kit`, `import`, `submit`, `validate`, `board`: from predictions to a row of the board."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated

import typer

from ..cli.shared import JsonFlag, user_errors
from .cli_round import app as rounds

app = typer.Typer()
app.add_typer(rounds, name="round")

SUBMISSIONS = Path("benchmarks/leaderboard/submissions")
Representation = Annotated[str, typer.Option(help="How rules were written: fol or nl.")]
PoolSize = Annotated[int, typer.Option(help="Rules per pool.")]
Scale = Annotated[str, typer.Option(help="Size of the world: tiny, paper, full.")]
Split = Annotated[str, typer.Option(help="Questions: mini or test.")]
Subtasks = Annotated[
    list[str] | None, typer.Option("--subtask", help="Sub-task; may be given several times. Default: all.")
]
Root = Annotated[Path, typer.Option(help="Folder of submissions.")]
Rounds = Annotated[
    Path | None, typer.Option(help="Folder of rounds; default: rounds/ beside the submissions.")
]


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
        from .kit import write_kit
        from .rescore import PUBLIC_SEED, Judge

        write_kit(folder, Judge(), scale, split, pool_size, PUBLIC_SEED, subtask or ())
    typer.echo(f"{folder}: questions.jsonl, pools.jsonl, rules.parquet")
    setting = ["--scale", scale, "--split", split, "--pool-size", str(pool_size)]
    setting += [word for name in subtask or () for word in ("--subtask", name)]
    typer.echo(f"next: rwbench import PREDICTIONS --name NAME --representation nl {shlex.join(setting)}")


@app.command("import")
def import_(
    predictions: Annotated[Path, typer.Argument(help="JSON Lines: id and output, answers or retrieved.")],
    name: Annotated[str, typer.Option(help="What reports call the method.")],
    representation: Representation = "nl",
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
        from .imports import import_predictions
        from .rescore import Judge

        folder = import_predictions(
            predictions, name, representation, pool_size, out, Judge(), scale, split, subtask or ()
        )
    typer.echo(str(folder))
    typer.echo(
        f"next: rwbench report {out}, or rwbench submit {folder} --name NAME --submitter WHO --description WORDS"
    )


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
    code: Annotated[str | None, typer.Option(help="https link.")] = None,
    paper: Annotated[str | None, typer.Option(help="https link.")] = None,
    hardware: Annotated[str | None, typer.Option(help="What it ran on.")] = None,
    cost_usd: Annotated[float | None, typer.Option(help="US dollars for the whole run.")] = None,
    date: Annotated[str | None, typer.Option(help="YYYY-MM-DD; default: today.")] = None,
    slug: Annotated[str | None, typer.Option(help="Short name at the end of the folder's.")] = None,
    to: Root = SUBMISSIONS,
) -> None:
    """Write the submission of a run, after the checks that a pull request gets.

    Example: rwbench submit runs/0123456789ab --name "My method" --submitter "My team" --description "What it does."
    """
    from datetime import date as day

    with user_errors():
        from .metadata import Metadata
        from .rescore import Judge
        from .submit import only_run
        from .submit import submit as write

        chosen = only_run(run)
        words = Metadata(
            name=name,
            submitter=submitter,
            date=date or day.today().isoformat(),
            model=model,
            open_weights=open_weights,
            trained="yes" if trained else "no",
            description=description,
            kind=kind,
            code=code,
            paper=paper,
            hardware=hardware,
            cost_usd=cost_usd,
        )
        folder = write(chosen, words, to, Judge(), slug)
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
        typer.Option(help="Instead of DIR: `git diff --name-only -z` of a pull request, as a file."),
    ] = None,
    head: Annotated[Path, typer.Option(help="With --changed: checkout of the pull request.")] = Path(),
    base: Annotated[Path | None, typer.Option(help="With --changed: checkout of the main branch.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Check submissions: everything is recomputed from their samples. Nothing is run, nothing is written.

    Example: rwbench validate benchmarks/leaderboard/submissions/2026-01-31_my-method
    """
    from .refusals import Problem, Refused

    reports: list[dict[str, object]] = []
    with user_errors():
        from .rescore import Judge
        from .submit import contents
        from .submit import folders as all_folders
        from .validate import validate as check

        try:
            chosen = list(folders or [])
            if changed is not None:
                from .changes import PLACE, added_submissions

                board = base / PLACE if base is not None and board is None else board
                names = changed.read_bytes().decode("utf-8", "surrogateescape").split("\0")
                chosen += added_submissions([name for name in names if name], head, base)
        except Refused as error:
            chosen = []
            reports.append(_report("pull request", error.problems))
        if not chosen and not reports:
            raise ValueError("nothing to check; name a folder: rwbench validate DIR")
        judge = Judge()
        # Folders given together must not be copies of each other either.
        known = dict(contents(all_folders(board))) if board is not None else {}
        for path in chosen:
            problems: tuple[Problem, ...] = ()
            try:
                accepted = check(
                    path, judge, {name: found for name, found in known.items() if name != path.name}
                )
                known[path.name] = accepted.content
            except Refused as error:
                problems = error.problems
            reports.append(_report(path.name, problems))
    if as_json:
        typer.echo(json.dumps({"submissions": reports}))
    else:
        for report in reports:
            typer.echo(
                f"{ascii(report['submission'])[1:-1]}: {'accepted' if report['accepted'] else 'refused'}"
            )
            for line in report["problems"]:  # type: ignore[attr-defined]
                typer.echo(f"  {line['text']}")
    if not all(report["accepted"] for report in reports):
        raise typer.Exit(1)


@app.command()
def board(
    submissions: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of submissions.")] = SUBMISSIONS,
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

        out = out or submissions.parent / "site"
        built = build_board(submissions, rounds or submissions.parent / "rounds")
        page = write_board(built, out, submissions)
    if as_json:
        typer.echo(json.dumps({"page": str(page), "rows": len(built["rows"])}))
    else:
        typer.echo(f"page: {page} ({len(built['rows'])} submissions)")


@app.command()
def push(
    submissions: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of submissions.")] = SUBMISSIONS,
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
        from .space import push_space

        check_repo(to)  # before the minute that the checks take
        built = build_board(submissions, rounds or submissions.parent / "rounds")
        try:
            pushed = push_space(built, submissions, Path(place), to, private=private, dry_run=dry_run)
        except OSError as error:
            raise ValueError(str(error)) from None
        typer.echo(json.dumps(pushed.to_dict()) if as_json else pushed.to_text())


def _report(name: str, problems: tuple) -> dict[str, object]:
    listed = [
        {
            "file": problem.file,
            "line": problem.line,
            "what": problem.what,
            "value": problem.value,
            "mend": problem.mend,
            "text": str(problem),
        }
        for problem in problems
    ]
    return {"submission": name, "accepted": not problems, "problems": listed}
