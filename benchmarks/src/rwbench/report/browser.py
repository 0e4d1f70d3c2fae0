"""The samples of the runs, packed for the page: compressed JSON per run, opened in the reader's browser on demand.

Limits, all of them told on the page where they bite: `MAX_SAMPLES` per run, `SHOWN_RULES` rules per search,
`MAX_TEXT` characters per output, `MAX_BYTES` for all runs together.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..run.data import DataSource, Question
from ..score.errors import ERROR_CLASSES, diagnose
from ..score.results import Results
from ..score.samples import SAMPLES_FILE, Sample, read_samples, samples_path

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
    packer = _Packer(source)
    size = 0
    for run, label in runs:
        path = samples_path(folder, run["run_id"])
        if path is None:
            browser.notes.append(f"{label}: no {SAMPLES_FILE} beside its results")
            continue
        samples = read_samples(path)
        rows, errors = packer.rows(run, samples)
        if errors:
            browser.errors[run["run_id"]] = errors
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
        browser.parts["questions"] = _packed(packer.questions)
        browser.parts["rules"] = _packed(packer.texts())
    browser.notes.extend(packer.notes)
    return browser


class _Packer:
    """Collects what the runs share: questions and rule texts, joined from the source of the data."""

    def __init__(self, source: DataSource | None) -> None:
        self.source = source
        self.questions: dict[str, dict[str, Any]] = {}
        self.notes: list[str] = []
        self._worlds: dict[tuple[Any, ...], SplitData | None] = {}

    def rows(self, run: Results, samples: Sequence[Sample]) -> tuple[list[dict[str, Any]], dict[str, int]]:
        """Return what the page shows of the first `MAX_SAMPLES` samples, and error classes counted over all."""
        world = self._world(run["spec"])
        errors = dict.fromkeys(ERROR_CLASSES, 0)
        rows = []
        for place, sample in enumerate(samples):
            error = world.diagnose(sample) if world else None
            if error is not None:
                errors[error] += 1
            if place < MAX_SAMPLES:
                rows.append(self._row(sample, error, world))
        return rows, {name: count for name, count in errors.items() if count}

    def _row(self, sample: Sample, error: str | None, world: SplitData | None) -> dict[str, Any]:
        key = sample["id"]
        question = world.question(key, sample["subtask"]) if world else None
        if question is not None:
            key = f"{world.name}/{key}" if world else key
            self.questions.setdefault(key, _question(question))
        text = sample["output"]
        found = sample["retrieved"]
        gold = {rule for step in sample["gold_rules"] for rule in step}
        searches = [
            {
                "top": ranked[:SHOWN_RULES],
                "more": max(0, len(ranked) - SHOWN_RULES),
                "gold": {str(rule): ranked.index(rule) + 1 for rule in gold if rule in ranked},
            }
            for ranked in (found or [])
        ]
        if world is not None:
            world.shown |= gold.union(*(ranked[:SHOWN_RULES] for ranked in found or []))
        values = sample["scores"]
        score = values.get("exact_match", values.get("recall@1"))
        return {
            "id": sample["id"],
            "question": key,
            "subtask": sample["subtask"],
            "answers": sample["answers"],
            "gold": sample["gold_answers"],
            "rules": sample["gold_rules"],
            "searches": None if found is None else searches,
            "score": score,
            "scores": values,
            "error_class": error,
            "outcome": sample.get("outcome", "ok" if sample["error"] is None else "failed"),
            "failure": sample["error"],
            "output": text if text is None or len(text) <= MAX_TEXT else text[:MAX_TEXT] + " [cut]",
        }

    def texts(self) -> dict[str, list[str]]:
        """Return FOL and NL of every rule shown, by world and id."""
        return {
            f"{world.name}/{rule}": list(pair)
            for world in self._worlds.values()
            if world
            for rule, pair in world.texts(sorted(world.shown)).items()
        }

    def _world(self, spec: dict[str, Any]) -> SplitData | None:
        key = (spec["scale"], spec["world_seed"], spec["data"], spec["split"])
        if key not in self._worlds:
            source = self.source or DataSource(spec["scale"], spec["world_seed"])
            found = (source.scale, source.seed, source.version)
            if found == key[:3]:
                self._worlds[key] = SplitData(source, spec["split"])
            else:
                self._worlds[key] = None
                self.notes.append(
                    f"questions, rule texts and error classes of scale {key[0]}, seed {key[1]}: the runs used data "
                    f"{key[2]}, here is {found[2]}; give the build they used with --data"
                )
        return self._worlds[key]


class SplitData:
    """Questions and rules of one split, read when first asked for; ``shown`` are the rules that the page shows."""

    def __init__(self, source: DataSource, split: str) -> None:
        self.source, self.split = source, split
        self.name = f"{source.scale}-{source.seed}-{split}"
        self.table = source.rules(split)
        self.shown: set[int] = set()
        self._questions: dict[str, dict[str, Question]] = {}
        self._rules: dict[int, dict[str, Any]] = {}

    def question(self, name: str, subtask: str) -> Question | None:
        """Return a question by its id, None if the split has no such one."""
        if subtask not in self._questions:
            found = self.source.questions(subtask, self.split)
            self._questions[subtask] = {question.id: question for question in found}
        return self._questions[subtask].get(name)

    def diagnose(self, sample: Sample) -> str | None:
        """Return a sample's error class, None for a right answer."""
        question = self.question(sample["id"], sample["subtask"])
        if question is None:
            return None
        missing = [rule for rule in question.gold if rule not in self._rules]
        if missing:
            rows = self.table.take(missing).to_pylist()
            self._rules |= {row["id"]: row for row in rows}
        found = diagnose(sample, question.row["steps"], self._rules)
        return found.error if found else None

    def texts(self, ids: list[int]) -> dict[int, tuple[str, str]]:
        """Return (FOL, NL) of rules, by id."""
        pairs = [self.table.texts(ids, form) for form in ("fol", "nl")]
        return {rule: (fol, nl) for rule, fol, nl in zip(ids, *pairs, strict=True)}


def _question(question: Question) -> dict[str, Any]:
    steps = [
        {"rules": step["rule_ids"], "nl": step["nl"], "fol": step["fol"]} for step in question.row["steps"]
    ]
    return {"text": question.text, "steps": steps}


def _packed(value: Any) -> str:
    """Return base64 of raw-deflated JSON: what a browser's DecompressionStream("deflate-raw") reads."""
    body = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    squeeze = zlib.compressobj(9, zlib.DEFLATED, -15)
    return base64.b64encode(squeeze.compress(body) + squeeze.flush()).decode()
