"""Scores of a revealed round, and the drop from the public world."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from ruleworld_data.io import write_whole

from ..report.setting import macro
from ..score.results import Estimate, Results
from ..spec import RunSpec
from .board import TRACKS, track_of
from .imports import read_rows
from .rescore import PUBLIC_SEED, Judge, pool_design
from .rounds import SCORES, Round, entry_files, verify_round
from .validate import Submission, validate


def score_round(folder: Path, submissions: Path) -> dict[str, Any]:
    """Score every entry of a revealed round and write scores.json.

    Parameters
    ----------
    folder : Path
        The round.
    submissions : Path
        Folder of submissions. An entry is named like the submission that it is compared with; method, representation
        and pool size are that submission's.

    Returns
    -------
    dict
        ``round``, ``seed`` and ``scores``: per entry ``public`` (the submission), ``metric``, the estimates
        ``public_score`` and ``sealed_score``, and ``drop`` (public minus sealed, with its 95 % interval).

    Raises
    ------
    ValueError
        If the round does not verify, or an entry cannot be scored; the message names file and line.
    """
    found = verify_round(folder)
    assert found.revealed is not None
    judge = Judge((PUBLIC_SEED, found.revealed["seed"]))
    scores = [_score(found, path, submissions, judge) for path in entry_files(folder)]
    scores.sort(key=lambda score: (-score["sealed_score"]["value"], score["public"]))
    done = {"round": found.name, "seed": found.revealed["seed"], "scores": scores}
    write_whole(folder / SCORES, (json.dumps(done, indent=2) + "\n").encode())
    return done


def _score(found: Round, path: Path, submissions: Path, judge: Judge) -> dict[str, Any]:
    assert found.revealed is not None
    if not (submissions / path.stem).is_dir():
        raise ValueError(f"{path} is named after no submission; there is no {submissions / path.stem}")
    public = validate(submissions / path.stem, judge)
    setting = (public.spec.scale, public.spec.split, public.spec.pool_size)
    if setting != (found.scale, found.split, found.pool_size):
        raise ValueError(
            f"{path.stem} has scale, split and pool size {setting}, round {found.name} has "
            f"{(found.scale, found.split, found.pool_size)}; enter with a submission of the same setting"
        )
    spec = sealed_spec(public.spec, found)
    try:
        samples = judge.samples(spec, read_rows(path), path.name)
    except ValueError as error:
        raise ValueError(f"{path} cannot be scored:\n{error}") from None
    return _compared(public, judge.results(spec, samples, public.results["method"]))


def sealed_spec(public: RunSpec, found: Round) -> RunSpec:
    """Return the spec of a submission's method on the round's world."""
    assert found.revealed is not None
    values = public.to_dict() | pool_design(found.pool_size, found.scale)
    return RunSpec.from_dict(values | {"world_seed": found.revealed["seed"]})


def drop(public: Estimate, sealed: Estimate) -> dict[str, float]:
    """Return public minus sealed with its 95 % interval, from two independent estimates and their intervals.

    Newcombe's square-and-add rule (1998, method 10): the two worlds share no question, so nothing is paired. Unlike a
    normal interval it has a width where both estimates are 0 or 1.
    """
    value = public["value"] - sealed["value"]
    low = math.hypot(public["value"] - public["ci_low"], sealed["ci_high"] - sealed["value"])
    high = math.hypot(public["ci_high"] - public["value"], sealed["value"] - sealed["ci_low"])
    values = {"value": value, "ci_low": value - low, "ci_high": value + high}
    return {name: round(found, 6) for name, found in values.items()}


def _compared(public: Submission, sealed: Results) -> dict[str, Any]:
    metric = TRACKS[track_of(public)]
    before, after = macro(public.results, metric), macro(sealed, metric)
    if before is None or after is None:
        raise ValueError(f"{public.folder}: the entry has no {metric}, which its submission is ranked by")
    return {
        "public": public.folder,
        "metric": metric,
        "public_score": before,
        "sealed_score": after,
        "drop": drop(before, after),
    }
