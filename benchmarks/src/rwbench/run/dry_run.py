"""What a run would cost, estimated without running it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..methods import Method
from .folder import Plan
from .workspace import Workspace

CHARACTERS_PER_TOKEN = 4
"""Where a model's tokenizer is not at hand (endpoints)."""


@dataclass(frozen=True)
class PlannedCost:
    """A plan and what is left of it to do.

    Attributes
    ----------
    plan : Plan
    label : str
        The method's.
    calls, prompt_tokens : int
        At most, and about: first prompts only, each taken to be as long as the one that was looked at.
    prompt : str or None
        The first prompt.
    fits : bool or None
        Whether the first prompt and its answer fit the model's context; None: not known before asking.
    """

    plan: Plan
    label: str
    calls: int
    prompt_tokens: int
    prompt: str | None
    fits: bool | None

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        plan, spec = self.plan, self.plan.spec
        return {
            "run_id": spec.run_id,
            "method": spec.method,
            "representation": spec.representation,
            "pool_size": spec.pool_size,
            "scheduled": plan.scheduled,
            "done": plan.done,
            "state": plan.state,
            "folder": str(plan.folder),
            "calls": self.calls,
            "prompt_tokens": self.prompt_tokens,
            "fits": self.fits,
        }

    def line(self) -> str:
        """Return one line for a terminal."""
        plan, spec = self.plan, self.plan.spec
        where = f"{spec.representation.upper():<3} {spec.pool_size:>6,} rules per {spec.pool_scope}"
        cost = f"  {self.calls:,} calls" if self.calls else ""
        cost += f", about {self.prompt_tokens:,} tokens" if self.prompt_tokens else ""
        cost += ", DOES NOT FIT the model's context" if self.fits is False else ""
        return f"{plan.folder}  {plan.state:<8} {plan.done}/{plan.scheduled}  {where:<27}  {self.label}{cost}"


def planned_cost(plan: Plan, workspace: Workspace) -> PlannedCost:
    """Look at the first question of a plan; nothing is asked, searched or written."""
    spec = plan.spec
    method: Method = Method.from_dict(spec.method)
    pool = workspace.pools(spec)[0]
    first = method.preview(pool, pool.questions[0], spec.top_k)
    tokens, context = first.tokens, getattr(getattr(method, "model", None), "context_length", None)
    fits = None
    if tokens is not None and context is not None:
        fits = tokens + getattr(method, "max_new_tokens", 0) <= context
    if tokens is None and first.prompt is not None:
        tokens = len(first.prompt) // CHARACTERS_PER_TOKEN
    return PlannedCost(
        plan, method.label, plan.left * first.calls, plan.left * (tokens or 0), first.prompt, fits
    )
