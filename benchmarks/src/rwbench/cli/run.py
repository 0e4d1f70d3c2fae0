"""`rwbench run` and `rwbench resume`: from a recipe, or from folders that it left, to samples and results."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .report import show_results, write_page
from .shared import (
    Build,
    JsonFlag,
    OutFolder,
    RunsFolder,
    disk_error,
    how_to_continue,
    printable,
    user_errors,
)

if TYPE_CHECKING:
    from ..backends import Backend
    from ..recipes import Options
    from ..run.data import DataSource
    from ..run.folder import Plan
    from ..run.workspace import Workspace
    from ..score.results import Results

DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show samples, tokens, calls and the first prompt; run nothing.")
]
Jobs = Annotated[int, typer.Option(min=1, help="Runs at a time, one process each.")]


def run(
    recipe: Annotated[str, typer.Argument(help="Name of a recipe; `rwbench list` shows all.")],
    limit: Annotated[
        int | None, typer.Option(min=1, help="N questions per sub-task only, from all folds.")
    ] = None,
    split: Annotated[
        str, typer.Option(help="Questions to ask: mini, test, validation, heldout, train.")
    ] = "mini",
    scale: Annotated[
        str, typer.Option(help="Size of the world: tiny, paper, full.", show_default="paper")
    ] = "",
    seed: Annotated[int | None, typer.Option(min=0, help="World seed.", show_default="0")] = None,
    dials: Annotated[
        str,
        typer.Option(
            help="Where the world departs from the paper's, e.g. hops=6,crowd=16.", show_default="none"
        ),
    ] = "",
    data: Build = None,
    sizes: Annotated[
        str, typer.Option(help="Pool sizes, e.g. 100,1000, or all.", show_default="the recipe's")
    ] = "",
    form: Annotated[str, typer.Option(help="Rules in one form only: fol or nl.", show_default="both")] = "",
    method: Annotated[
        list[str] | None,
        typer.Option(help="Only what the recipe has of this method; may be given several times."),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="A shipped model, a model folder, or with --endpoint a name there; may be given several times."
        ),
    ] = None,
    endpoint: Annotated[
        str | None, typer.Option(metavar="URL", help="Base URL of an OpenAI-compatible server.")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(min=0.0, help="Default: 0, but what the paper sets for a model.")
    ] = None,
    price: Annotated[
        str | None, typer.Option(metavar="IN,OUT", help="US dollars per million tokens, to log the cost.")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Prompts per forward of a local model.")] = 16,
    encoder: Annotated[str, typer.Option(help="Of dense retrieval: minilm, a folder or a name.")] = "minilm",
    out: OutFolder = Path("runs"),
    jobs: Jobs = 1,
    shard: Annotated[str, typer.Option(metavar="I/N", help="Every N-th run only, from the I-th on.")] = "",
    merge: Annotated[
        bool, typer.Option("--merge", help="Run nothing; report when all runs are there.")
    ] = False,
    ray: Annotated[str, typer.Option(metavar="ADDRESS", help="Runs as tasks of a Ray cluster.")] = "",
    dry_run: DryRun = False,
    as_json: JsonFlag = False,
) -> None:
    """Run a recipe; running it again takes up where it stopped.

    Machines that share the folder run it together: each with --shard i/n, and one with --merge once all are done.

    Example: rwbench run smoke --limit 5
    """
    with user_errors():
        from ruleworld_data.io import parse_shard
        from ruleworld_data.spec import Dials

        from ..recipes import Options, parse_sizes, recipes
        from ..run.data import DataSource
        from ..run.folder import make_plan
        from ..run.session import check_all_finished, of_methods, take_shard, usable
        from ..run.workspace import Workspace
        from ..spec import REPRESENTATIONS

        if bool(shard) + merge + bool(ray) > 1:
            raise ValueError(
                "--shard runs a part, --merge reports the whole, --ray does both; give one of them"
            )
        world = scale or seed is not None or dials
        if data is not None and world:
            raise ValueError(
                "--data names a build, which says its own --scale, --seed and --dials; leave them out"
            )
        part = parse_shard(shard)
        made = recipes.get(recipe)
        if made.source is not None and (world or data or sizes or form or split != "mini"):
            raise ValueError(
                f"{made.name} brings its own questions and rules; leave out --data, --scale, --seed, --dials, --split, "
                "--sizes and --form"
            )
        source = (
            made.source()
            if made.source is not None
            else DataSource(scale or "paper", seed or 0, dials=Dials.parse(dials))
            if data is None
            else DataSource.from_build(data)
        )
        models = [_backend(name, endpoint, temperature, price, batch_size) for name in model or []]
        if endpoint is not None and not models:
            raise ValueError("--endpoint needs the name of a model there; add --model NAME")
        forms = (form,) if form else REPRESENTATIONS
        options = Options(source, split, limit, tuple(models), encoder, parse_sizes(sizes), forms)
        specs = of_methods(made(options), method or [])
        specs, skipped = usable(specs)
        workspace = Workspace(source)
        plans = [make_plan(spec, workspace, out) for spec in specs]
        if merge:
            check_all_finished(plans)
        if shard:
            total, plans = len(plans), take_shard(plans, part)
    for note in skipped:
        typer.echo(f"not run here: {note}", err=True)
    if not plans and not skipped:
        empty = (
            f"part {shard} of {total} runs has none" if shard else f"{made.name} makes no runs. {made.help}"
        )
        typer.echo(empty, err=True)
    if dry_run:
        _show_plans(plans, workspace, skipped, as_json)
        return
    if not plans:
        if as_json:
            typer.echo(json.dumps({"runs": [], "skipped": skipped, "report": None}))
        raise typer.Exit(2 if skipped else 0)
    results = _run_plans(plans, workspace, jobs, ray)
    if shard:
        typer.echo(
            f"{out}: part {shard} of {total} runs is finished; when all are, --merge reports them", err=True
        )
        return
    command = _command(made.name, source, options, method or [], model or [], endpoint)
    page = write_page(results, out, command, skipped, recipe=made.name, source=source)
    show_results(results, page, as_json, skipped)


def resume(
    folder: RunsFolder,
    data: Build = None,
    endpoint: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="Endpoint that these runs may ask; may be repeated."),
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="Model folder that these runs may load; may be repeated.")
    ] = None,
    encoder: Annotated[
        list[str] | None, typer.Option(help="Encoder that these runs may load; may be repeated.")
    ] = None,
    jobs: Jobs = 1,
    dry_run: DryRun = False,
    as_json: JsonFlag = False,
) -> None:
    """Finish every run below a folder that is not finished; the recipe need not be known.

    A folder may come from somebody else: an endpoint, or a model that is not shipped, is used only where you name it.

    Example: rwbench resume runs
    """
    with user_errors():
        from ruleworld_data.io import trust_endpoint

        from ..run.books import source_of
        from ..run.data import DataSource
        from ..run.folder import find_specs, make_plan
        from ..run.workspace import Workspace

        for url in endpoint or []:
            trust_endpoint(url)
        workspaces: dict[DataSource, Workspace] = {}
        unfinished: dict[DataSource, list[Plan]] = {}
        found = find_specs(folder)
        for spec, out in found:
            source = source_of(spec) if data is None else DataSource.from_build(data)
            if source not in workspaces:
                workspaces[source] = Workspace(source)
            plan = make_plan(spec, workspaces[source], out)
            if not plan.finished:
                # A dry run asks nobody, but loads what counts tokens.
                asked = {} if dry_run else {"--endpoint": endpoint or []}
                _check_places(plan, asked | {"--model": model or [], "--encoder": encoder or []})
                unfinished.setdefault(source, []).append(plan)
    if not unfinished:
        typer.echo(f"all {len(found)} runs below {folder} are finished", err=True)
    results = []
    for source, plans in unfinished.items():
        if dry_run:
            _show_plans(plans, workspaces[source], [], as_json)
        else:
            results += _run_plans(plans, workspaces[source], jobs)
    if results:
        page = write_page(results, folder, f"rwbench resume {folder.name}", [])
        show_results(results, page, as_json, [])


def _check_places(plan: Plan, typed: Mapping[str, Sequence[str]]) -> None:
    """Refuse what only the run's folder names, by the option that chooses it: servers, which get the key, and files."""
    from ..models import shipped
    from ..retrievers.dense import ENCODERS
    from ..spec import parts_of

    parts = list(parts_of(plan.spec.method))
    named = {
        "--endpoint": {str(part["url"]) for part in parts if "url" in part},
        "--model": {str(part.get("model")) for part in parts if part.get("name") == "local"} - {*shipped()},
        "--encoder": {str(part["encoder"]) for part in parts if "encoder" in part} - {*ENCODERS},
    }
    does = {
        "--endpoint": "asks a model at {}, which would get every question and the key in RULEWORLD_API_KEY",
        "--model": "loads the model {}",
        "--encoder": "loads the encoder {}",
    }
    for option, chosen in typed.items():
        for value in sorted(named[option] - {*chosen}):
            raise ValueError(
                f"{plan.folder} {does[option].format(ascii(value))}; if you chose that, type {option} "
                f"{shlex.quote(value)}, else delete the folder"
            )


def _backend(
    name: str, endpoint: str | None, temperature: float | None, price: str | None, batch_size: int
) -> Backend:
    from ..models import usual_temperature

    if temperature is None:
        temperature = usual_temperature(name)
    if endpoint is None:
        from ..backends.local import Local

        if price is not None:
            raise ValueError("--price is for a model behind --endpoint; a local model costs time only")
        return Local.of(name, temperature=temperature, batch_size=batch_size)
    from ..backends.endpoint import Endpoint

    prices: dict[str, float] = {}
    if price is not None:
        try:
            prices["price_in"], prices["price_out"] = (float(part) for part in price.split(","))
        except ValueError:
            raise ValueError(
                f"--price must be two numbers, dollars per million tokens in and out, got {price!r}; type for example "
                "--price 0.15,0.60"
            ) from None
    return Endpoint.of(name, endpoint, temperature=temperature, **prices)


def _cpu_hours() -> float:
    """Return what this process and those that it started have used."""
    used = os.times()
    return (used.user + used.system + used.children_user + used.children_system) / 3600


def _run_plans(plans: Sequence[Plan], workspace: Workspace, jobs: int, ray: str = "") -> list[Results]:
    import logging

    from ruleworld_data.io import Progress

    from ..backends import GoneError
    from ..run.session import run_all, run_on_cluster

    left = sum(plan.left for plan in plans)
    progress = Progress("samples", left)

    class Notes(logging.Handler):
        """Shows log messages above the progress bar."""

        def emit(self, record: logging.LogRecord) -> None:
            progress.note(record.getMessage())

    log, handler = logging.getLogger("rwbench"), Notes(logging.INFO)
    log.setLevel(logging.INFO)
    log.addHandler(handler)
    try:
        with user_errors(), progress:
            if ray:
                run_on_cluster(
                    plans, workspace.source, ray, progress
                )  # what follows finds all of them finished
            results = run_all(plans, workspace, jobs, progress)
        if left and not ray:
            typer.echo(f"{left:,} samples took {_cpu_hours():.2f} CPU-hours", err=True)
        return results
    except KeyboardInterrupt:
        why = "stopped"
    except (GoneError, OSError) as error:
        why = f"error: {disk_error(error) if isinstance(error, OSError) else error}"
    finally:
        log.removeHandler(handler)
    typer.echo(how_to_continue(why), err=True)
    raise typer.Exit(1)


def _show_plans(plans: Sequence[Plan], workspace: Workspace, skipped: list[str], as_json: bool) -> None:
    from ..run.dry_run import planned_cost

    with user_errors():
        looked_at = [planned_cost(plan, workspace) for plan in plans]
    costs = [cost for cost, _, _ in looked_at]
    lines = [line for _, line, _ in looked_at]
    left = sum(plan.left for plan in plans)
    calls, tokens = (sum(cost[name] for cost in costs) for name in ("calls", "prompt_tokens"))
    first = next((prompt for _, _, prompt in looked_at if prompt is not None), None)
    if as_json:
        totals = {"samples_left": left, "calls": calls, "prompt_tokens": tokens, "first_prompt": first}
        typer.echo(json.dumps({"runs": costs, "skipped": skipped, **totals}))
        return
    total = f"at most {calls:,} model calls, about {tokens:,} prompt tokens" if calls else "no model calls"
    typer.echo(printable("\n".join([*lines, f"{len(plans)} runs, {left:,} samples to do, {total}"])))
    if first is not None:
        typer.echo(f"\nThe first prompt:\n\n{first}")


def _command(
    recipe: str,
    source: DataSource,
    options: Options,
    methods: Sequence[str],
    models: Sequence[str],
    endpoint: str | None,
) -> str:
    """Return the command that makes the same numbers on any machine."""
    words = ["rwbench run", recipe]
    words += [f"--scale {source.scale}"] if source.scale != "paper" else []
    words += [f"--seed {source.seed}"] if source.seed else []
    words += [f"--dials {source.dials}"] if source.dials.tag else []
    words += [f"--split {options.split}"] if options.split != "mini" else []
    words += [f"--limit {options.limit}"] if options.limit else []
    words += [f"--sizes {','.join(map(str, options.sizes))}"] if options.sizes else []
    words += [f"--form {options.forms[0]}"] if len(options.forms) == 1 else []
    words += [f"--method {name}" for name in methods]
    # of a folder only its name: where it lies on this machine is nobody's business
    words += [f"--model {shlex.quote(name if endpoint else Path(name).name)}" for name in models]
    words += [f"--endpoint {shlex.quote(endpoint)}"] if endpoint else []
    return " ".join(words)
