"""The command ``dynarule``: answer with rules, train, measure the confidence layer, keep banks, see an example."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from .bank import app as bank_app
from .bank import show_bank
from .chat import chat
from .shared import (
    AdapterOption,
    DeviceOption,
    EncoderOption,
    FolOption,
    Json,
    MaxNewTokensOption,
    ModelOption,
    QuestionsOption,
    RulesOption,
    load_all,
    load_model,
    load_rules,
    print_json,
    quiet_libraries,
    read_rows,
    user_errors,
)

app = typer.Typer(
    name="dynarule",
    help="DynaRule: rules as memory inside a frozen language model.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(bank_app, name="bank")
app.command()(chat)


def main() -> None:
    """Run the command line; user errors end with exit code 2 and one line, never a traceback."""
    try:
        app()
    except BrokenPipeError:
        # The reader of our output has gone (as in `| head`); nobody is left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None


@app.command()
@user_errors
def generate(
    model: ModelOption,
    adapter: AdapterOption,
    rules: RulesOption,
    question: Annotated[
        list[str] | None, typer.Option("--question", "-q", help="May be given several times.")
    ] = None,
    questions: QuestionsOption = None,
    encoder: EncoderOption = None,
    fol: FolOption = False,
    max_new_tokens: MaxNewTokensOption = 256,
    max_searches: Annotated[int, typer.Option("--max-searches", min=0, help="<search> per answer.")] = 16,
    temperature: Annotated[
        float | None, typer.Option("--temperature", min=0.01, help="Sample.", show_default="greedy")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of sampling.")] = 0,
    batch_size: Annotated[int, typer.Option("--batch-size", min=1, help="Questions at once.")] = 8,
    trace: Annotated[bool, typer.Option("--trace", help="Show the rules read at each step.")] = False,
    top: Annotated[int, typer.Option("--top", min=1, help="Rules shown per step.")] = 5,
    device: DeviceOption = None,
    as_json: Json = False,
) -> None:
    """Answer questions with rules.

    Example: dynarule generate --model MODEL --adapter adapter --rules rules.txt -q "If a tiny cat ..." --trace
    """
    asked = [*(question or []), *([row["question"] for row in read_rows(questions)] if questions else [])]
    if not asked:
        raise ValueError("no question; give --question TEXT, or --questions FILE")
    base, tokenizer, adapted, bank = load_all(model, adapter, rules, encoder, fol, device)
    import torch

    from ..generation import generate as run
    from ..generation import question_prompts

    torch.manual_seed(seed)
    sampling: dict[str, Any] = {} if temperature is None else {"do_sample": True, "temperature": temperature}
    answers = run(
        base,
        tokenizer,
        (adapted, bank),
        question_prompts(tokenizer, asked),
        max_new_tokens=max_new_tokens,
        max_searches=max_searches,
        batch_size=batch_size,
        **sampling,
    )
    results = []
    for text, answer in zip(asked, answers, strict=True):
        steps = [
            {
                "step": r.step,
                "layer": r.layer,
                "ids": r.ids[:top],
                "rules": r.texts[:top],
                "scores": r.scores[:top],
            }
            for r in answer.trace
        ]
        results.append({"question": text, "answer": answer.text} | ({"trace": steps} if trace else {}))
    if as_json:
        print_json({"answers": results})
        return
    for result in results:
        if len(results) > 1:
            typer.echo(f"# {result['question']}")
        typer.echo(str(result["answer"]).strip())
        for step in result.get("trace", []):
            typer.echo(f"  step {step['step']}, layer {step['layer']}")
            for name, rule, score in zip(step["ids"], step["rules"], step["scores"], strict=True):
                typer.echo(f"    {score:7.3f}  [{name}] {rule}")


@app.command()
@user_errors
def confidence(
    model: ModelOption,
    adapter: AdapterOption,
    rules: RulesOption,
    questions: QuestionsOption = None,
    encoder: EncoderOption = None,
    fol: FolOption = False,
    batch_size: Annotated[int, typer.Option("--batch-size", min=1, help="Questions at once.")] = 8,
    write: Annotated[bool, typer.Option("--write", help="Store layer and curve in the adapter.")] = False,
    device: DeviceOption = None,
    as_json: Json = False,
) -> None:
    """Measure the entropy of rule attention in every layer; the lowest is the confidence layer.

    Example: dynarule confidence --model MODEL --adapter stage1 --rules bank --questions questions.txt --write
    """
    if questions is None:
        raise ValueError("no questions; give --questions FILE, 200 questions or more")
    asked = [row["question"] for row in read_rows(questions)]
    base, tokenizer, adapted, bank = load_all(model, adapter, rules, encoder, fol, device, searched=False)
    import warnings
    from dataclasses import replace

    from ..adapter_info import read_adapter_info, write_adapter_info
    from ..generation import question_prompts
    from ..memory.confidence import measure_confidence

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        curve = measure_confidence(
            base, tokenizer, adapted, bank, question_prompts(tokenizer, asked), batch_size
        )
    for warning in said:
        if warning.category is UserWarning and "entropy" in str(warning.message):
            typer.echo(f"dynarule: {warning.message}", err=True)
    if write:
        info = read_adapter_info(adapter)
        memory = replace(info.memory, confidence_layer=curve.confidence_layer)
        write_adapter_info(adapter, replace(info, memory=memory, curve=curve.to_dict()))
    if as_json:
        print_json(curve.to_dict())
        return
    _show_curve(curve.to_dict())


@app.command()
@user_errors
def inspect(
    folder: Annotated[Path, typer.Argument(help="Adapter or bank folder.", show_default=False)],
    as_json: Json = False,
) -> None:
    """Say what an adapter or a bank is: shapes, layers, encoder, confidence curve.

    Example: dynarule inspect adapter
    """
    if (folder / "bank.json").is_file():
        from ..bank.bank import RuleBank

        show_bank(folder, RuleBank.load(folder), as_json)
        return
    if not (folder / "adapter.json").is_file():
        raise FileNotFoundError(f"{folder} has neither adapter.json nor bank.json; give an adapter or a bank")
    from ..adapter_info import read_adapter_info
    from ..adapter_io import read_shapes

    info = read_adapter_info(folder)
    shapes = read_shapes(folder)
    count = sum(
        rows * columns for rows, columns in ((s[0], s[1] if len(s) > 1 else 1) for s in shapes.values())
    )
    layers = info.memory.layers(info.base.num_layers)
    if as_json:
        tensors = {name: list(shape) for name, shape in shapes.items()}
        print_json(
            info.to_dict() | {"kind": "adapter", "layers": layers, "parameters": count, "tensors": tensors}
        )
        return
    base, memory = info.base, info.memory
    typer.echo(f"{folder}: adapter of {base.name or base.model_type}, {count:,} parameters")
    typer.echo(
        f"base       {base.model_type}, {base.num_layers} layers, hidden {base.hidden_size}, ", nl=False
    )
    typer.echo(f"query {base.query_size}, head {base.head_dim}, vocabulary {base.vocabulary:,}")
    typer.echo(f"encoder    {info.encoder or '(unknown)'}, width {memory.encoder_dim}")
    typer.echo(f"layers     {layers} (0-based), top_k {memory.top_k}, update_scope {memory.update_scope}")
    layer = memory.confidence_layer
    typer.echo(f"confidence {'not measured' if layer is None else f'layer {layer} (0-based)'}")
    typer.echo(
        f"search     {f'{info.search.token} = {info.search.id}' if info.search else 'no row of its own'}"
    )
    if info.curve is not None:
        _show_curve(info.curve)


@app.command()
@user_errors
def train(
    model: ModelOption,
    rules: RulesOption,
    out: Annotated[Path, typer.Option("--out", help="Checkpoints, and the adapter.", show_default=False)],
    questions: QuestionsOption = None,
    held_out: Annotated[
        Path | None, typer.Option("--held-out", help="Questions to measure on, in the same format.")
    ] = None,
    stage: Annotated[int, typer.Option("--stage", min=1, max=2, help="1: all rules; 2: top K.")] = 1,
    adapter: Annotated[
        Path | None, typer.Option("--adapter", help="Start from it.", show_default="new")
    ] = None,
    method: Annotated[str, typer.Option("--method", help="dynarule, srki or kblam.")] = "dynarule",
    confidence_layer: Annotated[
        int | None, typer.Option("--confidence-layer", min=0, help="0-based.", show_default="the adapter's")
    ] = None,
    encoder: EncoderOption = None,
    fol: FolOption = False,
    step_text: Annotated[
        str | None,
        typer.Option("--step-text", help="Key of a step's text.", show_default="text, else nl, or fol"),
    ] = None,
    opening: Annotated[
        bool,
        typer.Option(
            "--opening", help="<search> before the first step too, not only between steps (stage 2)."
        ),
    ] = False,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="name=value of the recipe, e.g. --set batch_size=4; a wrong name lists them."
        ),
    ] = None,
    add: Annotated[
        list[str] | None,
        typer.Option(
            "--add", help="What the paper has not, e.g. --add muon:value_rate=6; a wrong name lists them."
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the newest whole checkpoint in --out.")
    ] = False,
    report_to: Annotated[str, typer.Option("--report-to", help="none, tensorboard, wandb, ...")] = "none",
    device: DeviceOption = None,
) -> None:
    """Train one stage; run stage 1, `dynarule confidence --write`, then stage 2 from it.

    Questions are .jsonl or .parquet rows of question, steps (text, rule_ids) and answers. With --held-out, losses and
    Recall@1 of other questions are measured ten times on the way.

    Example: dynarule train --model MODEL --rules bank --questions train.jsonl --out stage1
    """
    from ..adapter_info import read_adapter_info
    from .train import Request, plan, run

    if questions is None:
        raise ValueError("no questions; give --questions FILE, .jsonl or .parquet")
    rows = read_rows(questions)
    measured = read_rows(held_out) if held_out else None
    request = Request(
        out,
        stage,
        method,
        adapter,
        confidence_layer,
        tuple(setting or ()),
        tuple(add or ()),
        resume,
        report_to,
        step_text,
        fol,
        opening,
    )
    recipe = plan(request, rows)
    base, tokenizer = load_model(model, adapter, device)
    like = "" if adapter is None else read_adapter_info(adapter).encoder
    bank = load_rules(rules, encoder, fol, like=like, model=base, tokenizer=tokenizer)
    run(request, recipe, base, tokenizer, bank, rows, measured)


@app.command()
@user_errors
def example(folder: Annotated[Path, typer.Argument(help="New folder.", show_default=False)]) -> None:
    """Write rules, questions and a small random model, to try the other commands on.

    Example: dynarule example depot
    """
    from ..example import write_example

    quiet_libraries()
    write_example(folder)
    typer.echo(f"dynarule: wrote {folder}: rules.txt, train.jsonl, held_out.jsonl, model", err=True)


@app.command()
@user_errors
def push(
    folder: Annotated[Path, typer.Argument(help="Adapter folder with its card.", show_default=False)],
    to: Annotated[str, typer.Option("--to", help="Repository: OWNER/NAME.", show_default=False)],
    private: Annotated[bool, typer.Option("--private", help="If the repository is made by this.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List files and sizes; send nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Send an adapter and its card to the Hugging Face Hub, in one commit. The token is read from HF_TOKEN.

    Example: dynarule push stage2 --to OWNER/NAME --dry-run
    """
    from ..hub import plan_push, send

    plan = plan_push(folder, to, private)
    for note in plan.notes:
        typer.echo(f"dynarule: {note}", err=True)
    url = None if dry_run else send(plan)
    size = sum(plan.files.values())
    if as_json:
        print_json({"repo": to, "private": private, "files": plan.files, "bytes": size, "sent_to": url})
        return
    for name, count in plan.files.items():
        typer.echo(f"{count:>12,}  {name}")
    said = f"{len(plan.files)} files, {size:,} bytes"
    there = f"{'private ' if private else ''}model {to}"
    typer.echo(f"{said}; nothing sent to {there}" if dry_run else f"{said} sent to {url}")


def _show_curve(curve: dict[str, Any]) -> None:
    uniform, chosen = curve["uniform"], curve["confidence_layer"]
    typer.echo(
        f"entropy over {curve['questions']} questions, {curve['rules']:g} rules; uniform {uniform:.3f}"
    )
    for layer, mean, std in zip(curve["layers"], curve["mean"], curve["std"], strict=True):
        bar = "#" * round(40 * mean / uniform) if uniform else ""
        typer.echo(
            f"{layer:>5} {mean:7.3f} +- {std:5.3f} {bar}{'  <- confidence layer' if layer == chosen else ''}"
        )
