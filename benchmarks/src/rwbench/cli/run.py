"""`rwbench run`: from a recipe to samples and results."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .report import show_results, write_page
from .shared import JsonFlag, printable

if TYPE_CHECKING:
    from ..backends import Backend
    from ..run.data import DataSource
    from ..run.folder import Plan


def run(
    recipe: Annotated[str, typer.Argument(help="Name of a recipe; `rwbench list` shows all.")],
    book: Annotated[Path | None, typer.Argument(help="Folder of rules and questions.jsonl (`book`).")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="N questions a sub-task, from all folds.")] = None,
    split: Annotated[
        str, typer.Option(help="Questions to ask: unseen, heldout, test, mini, validation, train.")
    ] = "mini",
    scale: Annotated[str, typer.Option(help="Size of world: tiny, paper, full.", show_default="paper")] = "",
    seed: Annotated[int | None, typer.Option(min=0, help="World seed.", show_default="0")] = None,
    dials: Annotated[
        str,
        typer.Option(help="Departures from the paper's world, e.g. hops=6,crowd=16.", show_default="none"),
    ] = "",
    data_version: Annotated[str, typer.Option(help="Questions as in 1.1 or 1.2.", show_default="1.1")] = "",
    sizes: Annotated[str, typer.Option(help="Pool sizes: 100,1000 or all.", show_default="recipe's")] = "",
    form: Annotated[str, typer.Option(help="Rules in one form only: fol or nl.", show_default="both")] = "",
    method: Annotated[
        list[str] | None,
        typer.Option(help="Only what the recipe has of this method; may be repeated."),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="A shipped model, a model folder, a name on the Hub, or with --endpoint a name there; several times."
        ),
    ] = None,
    endpoint: Annotated[str | None, typer.Option(metavar="BASE_URL", help="OpenAI-compatible API.")] = None,
    temperature: Annotated[float, typer.Option(min=0.0, help="Of a model behind --endpoint.")] = 0.0,
    batch_size: Annotated[int, typer.Option(min=1, help="Prompts per forward of a local model.")] = 16,
    device: Annotated[
        str,
        typer.Option(help="Where local models run: cpu, cuda, ...", show_default="cuda where there is one"),
    ] = "",
    dtype: Annotated[
        str,
        typer.Option(
            help="float32, bfloat16 or float16.", show_default="float32; large models on cuda: their own"
        ),
    ] = "",
    encoder: Annotated[str, typer.Option(help="Of dense retrieval: minilm, a folder or a name.")] = "minilm",
    out: Annotated[Path, typer.Option(help="Folder of run folders.")] = Path("runs"),
    jobs: Annotated[int, typer.Option(min=1, help="Runs at a time, one process each.")] = 1,
    ray: Annotated[str, typer.Option(metavar="ADDRESS", help="Runs as tasks of a Ray cluster.")] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show runs, samples left and the first prompt; run nothing.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Run a recipe; running it again takes up where it stopped.

    Example: rwbench run smoke --limit 5
    """
    from ruleworld_data.io import Progress
    from ruleworld_data.spec import VERSIONS, Dials, check_name

    from ..backends.local import DEVICE
    from ..recipes import Options, parse_sizes, recipes
    from ..run.data import DataSource
    from ..run.folder import make_plan
    from ..run.runner import run_all, run_on_cluster, usable
    from ..spec import REPRESENTATIONS, usual_version

    made = recipes.get(recipe)
    if (made.name == "book") != (book is not None):
        raise ValueError("recipe `book` and it alone takes a folder; type: rwbench run book FOLDER")
    if made.source is not None:
        world = {"scale": scale, "seed": seed is not None, "dials": dials, "data-version": data_version}
        world |= {"sizes": sizes, "form": form, "split": split != "mini"}
        if given := [f"--{name}" for name, value in world.items() if value]:
            what = f"{made.name} brings its own questions and rules"
            raise ValueError(f"{what}; leave out {', '.join(given)}")
        source = made.source() if book is None else made.source(book)
    else:
        version = check_name("version", data_version or usual_version(split), VERSIONS)
        source = DataSource(scale or "paper", seed or 0, version=version, dials=Dials.parse(dials))
    models = [
        _backend(name, endpoint, source.version, temperature, batch_size, dtype) for name in model or []
    ]
    if device:
        os.environ[DEVICE] = device  # of every process that runs a part
    if endpoint is not None and not models:
        raise ValueError("--endpoint needs the name of a model there; add --model NAME")
    forms = (form,) if form else REPRESENTATIONS
    options = Options(source, split, limit, tuple(models), encoder, parse_sizes(sizes), forms)
    specs = made(options)
    there = sorted({str(spec.method["name"]) for spec in specs})
    names = [check_name("method of this recipe", name, there) for name in method or there]
    specs, skipped = usable([spec for spec in specs if spec.method["name"] in names])
    plans = [make_plan(spec, source, out) for spec in specs]
    for note in skipped:
        typer.echo(f"not run here: {note}", err=True)
    if not plans and not skipped:
        typer.echo(f"no runs here: {made.name} makes {len(specs)}. {made.help}", err=True)
    if dry_run:
        _show_plans(plans, source, skipped, as_json)
        return
    if not plans:
        if as_json:
            typer.echo(json.dumps({"runs": [], "skipped": skipped, "report": None}))
        raise typer.Exit(2 if skipped else 0)
    with _resumable():
        if ray:
            run_on_cluster(plans, source, ray)  # what follows finds all of them finished
        with Progress("samples", 0 if ray else sum(plan.left for plan in plans)) as progress:
            results = run_all(plans, source, jobs, progress)
        page = write_page(results, out, _command(), skipped, recipe=made.name)
    show_results(results, page, as_json, skipped)


@contextmanager
def _resumable() -> Iterator[None]:
    """Say how to go on where the command is interrupted, the disk is full, or the model answers no more."""
    from ..backends import GoneError

    try:
        yield
        return
    except KeyboardInterrupt:
        why = "stopped"
    except (FileNotFoundError, FileExistsError):
        raise
    except (GoneError, OSError) as error:
        why = f"error: {printable(str(error))}"
    typer.echo(f"{why}; finished samples are kept. To go on: {_command()}", err=True)
    raise typer.Exit(1)


def _command() -> str:
    return shlex.join(["rwbench", *sys.argv[1:]])


def _backend(
    name: str, endpoint: str | None, version: str, temperature: float, batch_size: int, dtype: str
) -> Backend:
    if endpoint is None:
        from ..backends.local import Local
        from ..models import from_hub

        if temperature:
            raise ValueError("--temperature is for a model behind --endpoint; a local one is greedy")
        from_hub(name, download=True)
        return Local.of(name, version, batch_size=batch_size, dtype=dtype)
    from ..backends.endpoint import Endpoint

    return Endpoint.of(name, endpoint, version, temperature=temperature)


def _show_plans(plans: Sequence[Plan], source: DataSource, skipped: list[str], as_json: bool) -> None:
    from ..methods import Method
    from ..run.pools import pools_of

    rows, first, left = list[dict[str, Any]](), None, sum(plan.left for plan in plans)
    for plan in plans:  # the first prompt, without asking or searching; none of a run that asks no model
        spec, method = plan.spec, Method.from_dict(plan.spec.method)
        pool = pools_of(spec, source)[0]
        prompt, excess = method.first_prompt(pool, pool.questions[0], spec.top_k)
        first = first or prompt
        row = {
            name: getattr(spec, name) for name in "run_id method representation pool_size pool_scope".split()
        }
        row |= {name: getattr(plan, name) for name in ("scheduled", "done", "state")}
        rows.append(row | {"label": method.label, "folder": str(plan.folder), "excess_tokens": excess})
    if as_json:
        told = {"runs": rows, "skipped": skipped, "samples_left": left, "first_prompt": first}
        typer.echo(json.dumps(told))
        return
    for row in rows:
        where = f"{row['representation'].upper():<3} {row['pool_size']:>6,} rules per {row['pool_scope']}"
        done = f"{row['state']:<8} {row['done']}/{row['scheduled']}"
        over = row["excess_tokens"]
        long = f"  DOES NOT FIT the model's context: {over:,} tokens too long" if over else ""
        typer.echo(printable(f"{row['folder']}  {done}  {where:<27}  {row['label']}{long}"))
    typer.echo(f"{len(plans)} runs, {left:,} samples to do")
    if first is not None:
        typer.echo(f"\nThe first prompt:\n\n{printable(first)}")
