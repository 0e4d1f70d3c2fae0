"""Scores of many outputs: by sub-task, their mean, and the paper's overall score."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from ..spec import ALL_SUBTASKS, SUBTASKS, VERSIONS, WorldSpec, check_name
from .answers import SCORER_VERSION, Score, score_output
from .predictions import read_predictions
from .selective import has_no_answer, risk_coverage_area, selective_means, selective_scores

NAMES_SHOWN = 5
_NUMBER = re.compile(r"-[a-z]+(?:-(\d+\.\d+))?-\d{7}")
"""How a question's id ends: split, version of the data but for 1.1, row."""
RATES = ("exact_match", "strict_match", "length_mismatch", "missing_box")
_MISSING = Score(0.0, 0.0, (), missing_box=False, length_mismatch=False)
"""Of a question without prediction."""
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

    The result is that of `score_predictions` and ``world_unsaid``: how many lines do not say which world they answer,
    so that nothing tells whether it is this one.

    Raises
    ------
    FileNotFoundError, ValueError
        For a bad file, ids that do not fit the questions, or that are of another version of the data.
    """
    from ..generate import table

    for subtask in subtasks or []:
        check_name("sub-task", subtask, ALL_SUBTASKS)
    predictions, confidences, worlds = read_predictions(path)
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
    columns = ["id", "subtask", "answers", "world_id"]
    tables = (table(name, replace(spec, dials=spec.dials.reaching(name))).select(columns) for name in chosen)
    rows = [row for made in tables for row in made.to_pylist()]
    for row in rows:
        if (world := worlds.get(row["id"], row["world_id"])) != row["world_id"]:
            raise ValueError(
                f"{path} answers {row['id']!r} of world {world!r}, and is scored against world {row['world_id']!r}; "
                "type the --seed and --dials that were answered"
            )
    scores = score_predictions(rows, predictions, allow_missing, confidences)
    return scores | {"world_unsaid": len(predictions.keys() - worlds.keys())}


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
        ``table(...).select(["id", "subtask", "answers"]).to_pylist()``.
    predictions : mapping of str to str
        The output of each id, as `read_predictions` reads it.
    allow_missing : bool
        Score a question without prediction as 0 instead of refusing.
    confidences : mapping of str to float, optional
        How sure each id's output is.

    Returns
    -------
    dict
        Ready for JSON: ``scorer_version``, ``worlds`` (of the rows, as far as they say), ``n`` (questions), ``missing``
        (questions without prediction), ``foreign`` (predictions without question, which are ignored), ``macro`` (means
        over the sub-tasks present), ``paper`` (mean over the paper's six groups, None unless all are present) and
        ``subtasks``. The last holds, by sub-task, ``n``, ``missing``, ``exact_match``, ``strict_match`` and the shares
        ``length_mismatch`` and ``missing_box``. All rates are in 0..1; a missing prediction counts in ``missing``
        alone, as a score of 0. A sub-task may have more, see `mean_scores`.

    Raises
    ------
    ValueError
        If there are no rows, an id comes twice in them, predictions are missing and ``allow_missing`` is
        false, or no prediction belongs to any row.
    """
    asked: dict[str, list[tuple[Score, Sequence[str], float]]] = {}
    missing: list[str] = []
    seen: set[str] = set()
    worlds: set[str] = set()
    least = min(confidences.values()) if confidences else 0.0
    for row in rows:
        name = row["id"]
        if name in seen:
            raise ValueError(
                f"question id {name!r} comes twice in the rows to score against; give each split once"
            )
        seen.add(name)
        worlds |= {row["world_id"]} if "world_id" in row else set()
        if name not in predictions:
            missing.append(name)
        score = score_output(predictions[name], row["answers"]) if name in predictions else _MISSING
        sure = (confidences or {}).get(name, least)
        asked.setdefault(row["subtask"], []).append((score, row["answers"], sure))
    if not seen:
        raise ValueError("there are no questions to score against; choose a split that has rows")
    foreign = [name for name in predictions if name not in seen]
    _check_coverage(missing, foreign, len(seen), allow_missing)
    subtasks = {}
    for name in [*ALL_SUBTASKS, *sorted(asked.keys() - set(ALL_SUBTASKS))]:
        if name in asked:
            scores, golds, sure_of = zip(*asked[name], strict=True)
            left = sum(score is _MISSING for score in scores)
            means = mean_scores(scores, golds, sure_of if confidences else None)
            subtasks[name] = {"n": len(scores), "missing": left, **means}
    return {
        "scorer_version": SCORER_VERSION,
        "worlds": sorted(worlds),
        "n": len(seen),
        "missing": len(missing),
        "foreign": len(foreign),
        "macro": {metric: fmean(summary[metric] for summary in subtasks.values()) for metric in RATES},
        "paper": _paper_overall(asked),
        "subtasks": subtasks,
    }


def mean_scores(
    scores: Sequence[Score], golds: Sequence[Sequence[str]], confidences: Sequence[float] | None = None
) -> dict[str, float]:
    """Return the means of scores: the `RATES`, and what refusals and confidences add.

    Where questions without an answer are among them, the means of `selective_scores`; with confidences ``aurc``, the
    area under the risk-coverage curve.
    """
    means = {rate: sum(getattr(score, rate) for score in scores) / len(scores) for rate in RATES}
    if any(map(has_no_answer, golds)):
        pairs = zip(scores, golds, strict=True)
        means |= selective_means(selective_scores(score.parsed, gold) for score, gold in pairs)
    if confidences is not None:
        means["aurc"] = risk_coverage_area(confidences, [score.exact_match for score in scores])
    return means


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


def _paper_overall(asked: Mapping[str, Sequence[tuple[Score, Any, Any]]]) -> dict[str, float] | None:
    if not asked.keys() >= set(SUBTASKS):
        return None
    groups = {}
    for name, group in PAPER_GROUPS.items():
        scores = [score.exact_match for subtask in group for score, *_ in asked[subtask]]
        groups[name] = sum(scores) / len(scores)
    return {"exact_match": fmean(groups.values()), **groups}


def _list(names: Sequence[str]) -> str:
    shown = ", ".join(names[:NAMES_SHOWN])
    return shown + ", ..." if len(names) > NAMES_SHOWN else shown
