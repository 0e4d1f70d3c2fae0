"""Scores of many outputs: by sub-task, their mean, and the paper's overall score."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from ..spec import ALL_SUBTASKS, SUBTASKS, VERSIONS, WorldSpec, check_name
from .answers import SCORER_VERSION, Score, score_output
from .predictions import read_confidences, read_predictions
from .selective import risk_coverage_area, selective_means, selective_scores

NAMES_SHOWN = 5
_NUMBER = re.compile(r"-[a-z]+(?:-(\d+\.\d+))?-\d{7}")
"""How a question's id ends: split, version of the data but for 1.1, row."""
RATES = ("exact_match", "strict_match", "length_mismatch", "missing_box")
PAPER_GROUPS = {
    "single": SUBTASKS[:1],
    "multi_rule_2_4": SUBTASKS[1:4],
    "multi_rule_5_8": SUBTASKS[4:8],
    "multi_hop_2": SUBTASKS[8:9],
    "multi_hop_3": SUBTASKS[9:10],
    "multi_hop_4": SUBTASKS[10:11],
}
"""The six columns of the paper's main table, whose mean is the overall score of one seed."""


def score_file(
    path: Path,
    spec: WorldSpec,
    subtasks: Sequence[str] | None = None,
    allow_missing: bool = False,
) -> dict[str, Any]:
    """Score a predictions file against generated answers; without ``subtasks``, on those that its ids name.

    Raises
    ------
    FileNotFoundError, ValueError
        For a bad file, ids that do not fit the questions, or that are of another version of the data.
    """
    from ..generate import question_table

    for subtask in subtasks or []:
        check_name("sub-task", subtask, ALL_SUBTASKS)
    predictions = read_predictions(path)
    for name in predictions:
        version = (end[1] or VERSIONS[0]) if (end := _NUMBER.search(name)) else spec.version
        if version != spec.version:
            raise ValueError(
                f"{path} answers {name!r} of data {version}, and is scored against data {spec.version}; type "
                f"--data-version {version}"
            )
    wanted = set(subtasks or (question_id.split("-", 1)[0] for question_id in predictions))
    chosen = [name for name in ALL_SUBTASKS if name in wanted]
    if not chosen:
        first = next(iter(predictions), None)
        raise ValueError(
            f"no id in {path} names a sub-task (first id: {first!r}); ids look like 'multi_hop_3-test-0000007'"
        )
    columns = ["id", "subtask", "answers"]
    place = (spec.split, spec.scale, spec.seed)
    tables = (
        question_table(name, *place, version=spec.version, dials=spec.dials.reaching(name)).select(columns)
        for name in chosen
    )
    rows = (row for table in tables for row in table.to_pylist())
    return score_predictions(rows, predictions, allow_missing, read_confidences(path))


def score_predictions(
    rows: Iterable[Mapping[str, Any]],
    predictions: Mapping[str, str],
    allow_missing: bool = False,
    confidences: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """Score predictions against question rows.

    Parameters
    ----------
    rows : iterable of mappings
        Questions with at least ``id``, ``subtask`` and ``answers``: a `datasets.Dataset`, or
        ``question_table(...).select(["id", "subtask", "answers"]).to_pylist()``.
    predictions : mapping of str to str
        The output of each id, as from `read_predictions`.
    allow_missing : bool
        Score a question without prediction as 0 instead of refusing.
    confidences : mapping of str to float, optional
        How sure each id's output is, as from `read_confidences`.

    Returns
    -------
    dict
        Ready for JSON: ``scorer_version``, ``n`` (questions), ``missing`` (questions without prediction),
        ``foreign`` (predictions without question, which are ignored), ``macro`` (means over the sub-tasks
        present), ``paper`` (mean over the paper's six groups, None unless all are present) and ``subtasks``.
        The last holds, by sub-task, ``n``, ``missing``, ``exact_match``, ``strict_match`` and the shares
        ``length_mismatch`` and ``missing_box``. All rates are in 0..1; a missing prediction counts in
        ``missing`` alone, as a score of 0. Where questions without an answer are among them, a sub-task also has the
        means of `selective_scores`; with confidences ``aurc``, the area under the risk-coverage curve.

    Raises
    ------
    ValueError
        If there are no rows, an id comes twice in them, predictions are missing and ``allow_missing`` is
        false, or no prediction belongs to any row.
    """
    scores: dict[str, list[Score | None]] = {}
    selective: dict[str, list[dict[str, float]]] = {}
    sure: dict[str, list[float]] = {}
    missing: list[str] = []
    seen: set[str] = set()
    for row in rows:
        name = row["id"]
        if name in seen:
            raise ValueError(
                f"question id {name!r} comes twice in the rows to score against; give each split once"
            )
        seen.add(name)
        output = predictions.get(name)
        if output is None:
            missing.append(name)
        score = None if output is None else score_output(output, row["answers"])
        scores.setdefault(row["subtask"], []).append(score)
        selective.setdefault(row["subtask"], []).append(
            selective_scores(score.parsed if score else (), row["answers"])
        )
        if confidences is not None:
            sure.setdefault(row["subtask"], []).append(confidences.get(name, min(confidences.values())))
    if not seen:
        raise ValueError("there are no questions to score against; choose a split that has rows")
    foreign = [name for name in predictions if name not in seen]
    _check_coverage(missing, foreign, len(seen), allow_missing)
    known = [*ALL_SUBTASKS, *sorted(scores.keys() - set(ALL_SUBTASKS))]
    order = [name for name in known if name in scores]
    subtasks = {name: _summary(scores[name]) for name in order}
    for name, summary in subtasks.items():
        if any("refused_unknown" in own for own in selective[name]):
            summary |= selective_means(selective[name])
        if name in sure:
            matches = [score.exact_match if score else 0.0 for score in scores[name]]
            summary["aurc"] = risk_coverage_area(sure[name], matches)
    return {
        "scorer_version": SCORER_VERSION,
        "n": len(seen),
        "missing": len(missing),
        "foreign": len(foreign),
        "macro": {metric: fmean(summary[metric] for summary in subtasks.values()) for metric in RATES},
        "paper": _paper_overall(scores),
        "subtasks": subtasks,
    }


def _check_coverage(missing: Sequence[str], foreign: Sequence[str], total: int, allow_missing: bool) -> None:
    if foreign and len(missing) == total:
        raise ValueError(
            f"none of the {len(foreign)} predicted ids ({_list(foreign)}) is among the {total} questions "
            f"({_list(missing)}); score against the split that was predicted"
        )
    if missing and not allow_missing:
        beside = f"; {len(foreign)} predictions belong to no question ({_list(foreign)})" if foreign else ""
        raise ValueError(
            f"{len(missing)} of {total} questions have no prediction ({_list(missing)}){beside}; "
            "add them, or pass allow_missing=True (--allow-missing) to score them as 0"
        )


def _summary(scores: Sequence[Score | None]) -> dict[str, float]:
    given = [score for score in scores if score is not None]
    rates = {rate: sum(getattr(score, rate) for score in given) / len(scores) for rate in RATES}
    return {"n": len(scores), "missing": len(scores) - len(given), **rates}


def _paper_overall(scores: Mapping[str, Sequence[Score | None]]) -> dict[str, float] | None:
    if not all(name in scores for group in PAPER_GROUPS.values() for name in group):
        return None
    groups = {
        name: _summary([score for subtask in group for score in scores[subtask]])["exact_match"]
        for name, group in PAPER_GROUPS.items()
    }
    return {"exact_match": fmean(groups.values()), **groups}


def _list(names: Sequence[str]) -> str:
    shown = ", ".join(names[:NAMES_SHOWN])
    return shown + ", ..." if len(names) > NAMES_SHOWN else shown
