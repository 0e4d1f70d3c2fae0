"""What a run would cost, estimated without running it."""

from __future__ import annotations

from typing import Any

from ..methods import Method
from .folder import Plan
from .workspace import Workspace

CHARACTERS_PER_TOKEN = 4
"""Where a model's tokenizer is not at hand (endpoints)."""


def planned_cost(plan: Plan, workspace: Workspace) -> tuple[dict[str, Any], str, str | None]:
    """Look at the first question of a plan; nothing is asked, searched or written.

    Returns
    -------
    (dict, str, str or None)
        The plan and what is left of it to do as JSON values, as a line for a terminal, and the first prompt. ``calls``
        are at most so many; ``prompt_tokens`` are about those of first prompts, each taken to be as long as this one;
        ``fits``: whether this one and its answer fit the model's context (None: not known before asking).
    """
    spec = plan.spec
    method: Method = Method.from_dict(spec.method)
    pool = workspace.pools(spec)[0]
    first = method.preview(pool, pool.questions[0], spec.top_k)
    tokens, context = first.tokens, getattr(getattr(method, "model", None), "context_length", None)
    fits = None
    if tokens is not None and context is not None:
        fits = tokens + getattr(method, "max_new_tokens", 0) <= context
    if tokens is None:
        tokens = len(first.prompt or "") // CHARACTERS_PER_TOKEN
    found = {
        "run_id": spec.run_id,
        "method": spec.method,
        "representation": spec.representation,
        "pool_size": spec.pool_size,
        "scheduled": plan.scheduled,
        "done": plan.done,
        "state": plan.state,
        "folder": str(plan.folder),
        "calls": plan.left * first.calls,
        "prompt_tokens": plan.left * tokens,
        "fits": fits,
    }
    where = f"{spec.representation.upper():<3} {spec.pool_size:>6,} rules per {spec.pool_scope}"
    cost = f"  {found['calls']:,} calls" if found["calls"] else ""
    cost += f", about {found['prompt_tokens']:,} tokens" if found["prompt_tokens"] else ""
    cost += ", DOES NOT FIT the model's context" if fits is False else ""
    line = f"{plan.folder}  {plan.state:<8} {plan.done}/{plan.scheduled}  {where:<27}  {method.label}{cost}"
    return found, line, first.prompt
