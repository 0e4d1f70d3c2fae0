"""The samples of the runs, packed for the page: compressed JSON per run, opened in the reader's browser on demand.

Limits, all of them told on the page where they bite: `MAX_SAMPLES` per run, `SHOWN_RULES` rules per search,
`MAX_TEXT` characters per output, `MAX_BYTES` for all runs together.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from ruleworld_data.spec import VERSIONS, Dials, data_version

from ..run.books import BookSource
from ..run.data import DataSource, Question
from ..run.workspace import Workspace
from ..score.errors import ERROR_CLASSES, diagnose
from ..score.packed import UNKNOWN_RULE
from ..score.results import Results, find_samples
from ..score.samples import SAMPLES_FILE, Sample
from ..spec import BOOKS_DATA

MAX_SAMPLES = 2_000
SHOWN_RULES = 10
MAX_TEXT = 4_000
MAX_BYTES = 20_000_000
"""Compressed bytes of all samples; the page is a third larger, since it holds them as text."""


@dataclass(frozen=True)
class Browser:
    """What the page's sample browser shows.

    Attributes
    ----------
    parts : dict
        Name -> base64 of raw-deflated JSON: ``questions``, ``rules`` and one part per run id.
    runs : list of dict
        ``id``, ``label`` and ``count`` of every run that has a part.
    errors : dict
        Run id -> error class -> number of samples.
    notes : list of str
        What is not shown, and why.
    """

    parts: dict[str, str] = field(default_factory=dict)
    runs: list[dict[str, Any]] = field(default_factory=list)
    errors: dict[str, dict[str, int]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def build_browser(
    runs: Sequence[tuple[Results, str]], folder: Path, source: DataSource | None = None
) -> Browser:
    """Read the samples below a folder and pack them.

    Parameters
    ----------
    runs : sequence of (Results, str)
        Runs, and what the page calls each.
    folder : Path
        Folder of run folders, or one run's.
    source : DataSource, optional
        Where questions and rules come from; by default the world that each run names is generated.
    """
    browser = Browser()
    other_data: list[str] = []
    worlds: list[_World] = []

    @cache
    def world_of(scale: str, seed: int, data: str, split: str, dials: Dials) -> _World | None:
        known = [f"{version}.0" for version in VERSIONS]
        found = source
        if data.startswith(BOOKS_DATA):
            found = BookSource.of_data(data)
        elif found is None and data in known:
            found = DataSource(scale, seed, version=data_version(data), dials=dials)
        if found and (found.scale, found.seed, found.data, found.dials) == (scale, seed, data, dials):
            worlds.append(_World(found, split))
            return worlds[-1]
        here = found.data if found else " and ".join(known)
        other_data.append(
            f"questions, rule texts and error classes of scale {scale}, seed {seed}: the runs used data {data}, here "
            f"is {here}; give the build they used with --data"
        )
        return None

    size = 0
    for run, label in runs:
        samples = find_samples(folder, run["run_id"])
        if samples is None:
            browser.notes.append(f"{label}: no {SAMPLES_FILE} beside its results")
            continue
        spec = run["spec"]
        dials = Dials.parse(spec.get("dials", ""))
        world = world_of(spec["scale"], spec["world_seed"], spec["data"], spec["split"], dials)
        try:
            errors = world.diagnose(samples) if world else [None] * len(samples)
        except ValueError as error:
            raise ValueError(f"run {run['run_id']} is not of these questions and rules: {error}") from None
        counts = Counter(errors)
        if found := {name: counts[name] for name in ERROR_CLASSES if counts[name]}:
            browser.errors[run["run_id"]] = found
        shown = list(zip(samples, errors, strict=True))[:MAX_SAMPLES]
        rows = [_row(sample, error) | {"question": _asked(sample, world)} for sample, error in shown]
        part = _packed(rows)
        if size + len(part) > MAX_BYTES:
            browser.notes.append(f"{label}: left out, the page would be too large; report this run alone")
            continue
        size += len(part)
        if len(samples) > MAX_SAMPLES:
            browser.notes.append(f"{label}: the first {MAX_SAMPLES:,} of {len(samples):,} samples")
        browser.parts[f"run-{run['run_id']}"] = part
        browser.runs.append({"id": run["run_id"], "label": label, "count": len(rows)})
    if browser.runs:
        browser.parts["questions"] = _packed({k: v for world in worlds for k, v in world.questions.items()})
        browser.parts["rules"] = _packed({k: v for world in worlds for k, v in world.texts().items()})
    browser.notes.extend(other_data)
    return browser


class _World:
    """One split's data, and what of it the page shows."""

    def __init__(self, source: DataSource, split: str) -> None:
        self.workspace, self.split = Workspace(source), split
        parts: tuple[object, ...] = (source.scale, source.seed, source.version, source.dials.tag, split)
        if isinstance(source, BookSource):
            parts = (source.data,)
        self.name = "-".join(str(part) for part in parts if part != "")
        self.questions: dict[str, dict[str, Any]] = {}
        self.rules: set[int] = set()

    @cache  # noqa: B019 - lives as long as the page is made
    def by_id(self, subtask: str) -> dict[str, Question]:
        """Return the questions of a sub-task by id."""
        return {question.id: question for question in self.workspace.questions(subtask, self.split)}

    def diagnose(self, samples: Sequence[Sample]) -> list[str | None]:
        """Return the error class of every sample; None where its method answers nothing or its question is unknown.

        The classes compare an answer with the logic of RuleWorld's rules, which those of rule books have not.
        """
        if isinstance(self.workspace.source, BookSource):
            return [None] * len(samples)
        asked = [self.by_id(sample["subtask"]).get(sample["id"]) for sample in samples]
        gold = sorted({rule for question in asked if question for rule in question.gold})
        rules = {row["id"]: row for row in self.workspace.rules(self.split).take(gold).to_pylist()}
        found = [
            diagnose(sample, question.row["steps"], rules) if question else None
            for sample, question in zip(samples, asked, strict=True)
        ]
        return [each.error if each else None for each in found]

    def texts(self) -> dict[str, list[str]]:
        """Return FOL and NL of every rule shown, by world and id."""
        ids, table = sorted(self.rules), self.workspace.rules(self.split)
        both = zip(ids, table.texts(ids, "fol"), table.texts(ids, "nl"), strict=True)
        return {f"{self.name}/{rule}": texts for rule, *texts in both}


def _asked(sample: Sample, world: _World | None) -> str:
    """Return under which key the page finds a sample's question; its texts and its rules' go along."""
    question = world.by_id(sample["subtask"]).get(sample["id"]) if world else None
    if world is not None:
        world.rules.update(
            *sample["gold_rules"], *(ranked[:SHOWN_RULES] for ranked in sample["retrieved"] or [])
        )
        world.rules.discard(UNKNOWN_RULE)
    if world is None or question is None:
        return sample["id"]
    steps = [
        {"rules": step["rule_ids"], "nl": step["nl"], "fol": step["fol"]} for step in question.row["steps"]
    ]
    key = f"{world.name}/{sample['id']}"
    world.questions[key] = {"text": question.text, "steps": steps}
    return key


def _row(sample: Sample, error: str | None) -> dict[str, Any]:
    """Return what the page shows of a sample, all but its question."""
    text, found, scores = sample["output"], sample["retrieved"], sample["scores"]
    gold = {rule for step in sample["gold_rules"] for rule in step}
    searches = [
        {
            "top": ranked[:SHOWN_RULES],
            "more": max(0, len(ranked) - SHOWN_RULES),
            "gold": {str(rule): ranked.index(rule) + 1 for rule in gold if rule in ranked},
        }
        for ranked in found or []
    ]
    return {
        "id": sample["id"],
        "subtask": sample["subtask"],
        "answers": sample["answers"],
        "gold": sample["gold_answers"],
        "rules": sample["gold_rules"],
        "searches": None if found is None else searches,
        "score": scores.get("exact_match", scores.get("recall@1")),
        "scores": scores,
        "error_class": error,
        "outcome": sample.get("outcome", "ok" if sample["error"] is None else "failed"),
        "failure": sample["error"],
        "output": text if text is None or len(text) <= MAX_TEXT else text[:MAX_TEXT] + " [cut]",
    }


def _packed(value: Any) -> str:
    """Return base64 of raw-deflated JSON: what a browser's DecompressionStream("deflate-raw") reads."""
    body = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    return base64.b64encode(zlib.compress(body, 9, -15)).decode()
