"""What a run would cost, estimated without running it."""

from __future__ import annotations

from typing import Any

from ..methods import Method
from .folder import Plan
from .workspace import Workspace

CHARACTERS_PER_TOKEN = 4
"""Where a model's tokenizer is not at hand (endpoints)."""


def planned_cost(plan: Plan, workspace: Workspace) -> tuple[dict[str, Any], str | None]:
    """Look at the first question of a plan; nothing is asked, searched or written.

    Returns
    -------
    (dict, str or None)
        The plan and what is left of it to do as JSON values, and the first prompt. ``calls`` is a maximum;
        ``prompt_tokens`` counts first prompts, each taken to be as long as this one; ``fits`` says whether this one
        and its answer fit the model's context (None: not known before asking).
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
    cost = {
        "run_id": spec.run_id,
        "method": spec.method,
        "label": method.label,
        "representation": spec.representation,
        "pool_size": spec.pool_size,
        "pool_scope": spec.pool_scope,
        "scheduled": plan.scheduled,
        "done": plan.done,
        "state": plan.state,
        "folder": str(plan.folder),
        "calls": plan.left * first.calls,
        "prompt_tokens": plan.left * tokens,
        "fits": fits,
    }
    return cost, first.prompt


def cost_line(cost: dict[str, Any]) -> str:
    """Return a plan and its cost as a line for a terminal."""
    where = f"{cost['representation'].upper():<3} {cost['pool_size']:>6,} rules per {cost['pool_scope']}"
    line = f"{cost['folder']}  {cost['state']:<8} {cost['done']}/{cost['scheduled']}  {where:<27}  {cost['label']}"
    line += f"  {cost['calls']:,} calls" if cost["calls"] else ""
    line += f", about {cost['prompt_tokens']:,} tokens" if cost["prompt_tokens"] else ""
    return line + (", DOES NOT FIT the model's context" if cost["fits"] is False else "")
