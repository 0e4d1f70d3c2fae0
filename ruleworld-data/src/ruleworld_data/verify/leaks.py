"""How much could be answered without the rules: shortcuts in the questions, and memory of train."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from ..io.builds import read_build, read_manifest, world_spec
from ..io.shards import read_shard
from ..scoring import exact_match
from ..show import table_text
from ..spec import HEADLINE_SPLITS, UNKNOWN, splits_of, subtasks_of
from .probes import ANSWERABLE, COLUMNS, MEMORY, SHORTCUTS, Guess, Part, answerable, parts_of
from .report import printable

SHORTCUT_BAR = 0.10
"""No shortcut may score more in any sub-task, at any setting of the dials, but by chance."""
_SHORTCUT_ROWS, _MEMORY_ROWS = 20_000, 25_000
"""Train questions of a sub-task that are learnt from; the latter are all of scale paper."""

Questions = list[list[Part]]
Scores = dict[str, float]


def leak_report(build_dir: str | Path) -> dict[str, Any]:
    """Measure what a build gives away; that no question is there twice or taught by train, `verify` checks.

    Parameters
    ----------
    build_dir : path
        A folder made by ``ruleworld build``.

    Returns
    -------
    dict
        Ready for JSON:

        - ``shortcuts``: what partial knowledge scores on test, see `shortcuts`;
        - ``above_bar``: of those, shortcut -> sub-task -> score where that is above `bars`;
        - ``memory``: what memory of train scores by split, see `memory`.

    Raises
    ------
    FileNotFoundError
        If the folder is no finished build.
    ValueError
        If it is damaged.
    """
    folder = Path(build_dir)
    read_build(folder)
    scores, limits = shortcuts(folder)
    above = {
        shortcut: {name: score for name, score in own.items() if score > limits.get(name, 1)}
        for shortcut, own in scores.items()
    }
    above = {shortcut: own for shortcut, own in above.items() if own}
    return {"folder": str(folder), "shortcuts": scores, "above_bar": above, "memory": memory(folder)}


def shortcuts(folder: Path, split: str = "test") -> tuple[dict[str, Scores], Scores]:
    """Score on test, or another split, who has learnt one sub-task of train; return scores and bars.

    Scores: shortcut -> ``"all"`` (mean over sub-tasks) and every sub-task -> exact match, 0 to 1; and how often it is
    right whether there is an answer, of the sub-tasks where a half has none. Bars: what a shortcut may score in each
    sub-task, the bar, a blind choice's score, three standard errors. Of a comparison's creatures one is the answer, of
    the questions that may have no answer a half is ``unknown``.
    """
    scores: dict[str, Scores] = {name: {} for name in SHORTCUTS}
    bars = {}
    for subtask in _subtasks(folder):
        train, test = (_questions(folder, subtask, name, _SHORTCUT_ROWS) for name in ("train", split))
        for name, learn in SHORTCUTS.items():
            scores[name][subtask] = _right(learn(_flat(train)), test)
        if any(part.answer == UNKNOWN for part in _flat(test)):
            guess = ANSWERABLE(_flat(train))
            told = fmean(guess(part) == answerable(part) for part in _flat(test))
            scores.setdefault("whether there is an answer", {})[subtask] = told
        blind = (
            1 / part.query.count("Has(") if part.type == "Most" else part.answer == UNKNOWN
            for part, *_ in test
        )
        share = SHORTCUT_BAR + fmean(blind)
        bars[subtask] = share + 3 * (share * (1 - share) / len(test)) ** 0.5
    return {name: _with_mean(own) for name, own in scores.items()}, bars


def memory(folder: Path) -> dict[str, dict[str, Scores]]:
    """Score on the other splits who has learnt all of train by heart.

    Probe -> split -> ``"all"`` (mean over sub-tasks) and every sub-task -> exact match, 0 to 1.
    """
    subtasks, version = _subtasks(folder), world_spec(read_manifest(folder)).version
    train = [_questions(folder, subtask, "train", _MEMORY_ROWS) for subtask in subtasks]
    guesses = {
        probe: learn(part for questions in train for part in _flat(questions))
        for probe, learn in MEMORY.items()
    }
    scores: dict[str, dict[str, Scores]] = {probe: {} for probe in guesses}
    for split in (split for split in HEADLINE_SPLITS if split in splits_of(version)):
        asked = {subtask: _questions(folder, subtask, split, _MEMORY_ROWS) for subtask in subtasks}
        for probe, guess in guesses.items():
            right = {subtask: _right(guess, questions) for subtask, questions in asked.items()}
            scores[probe][split] = _with_mean(right)
    return scores


def _subtasks(folder: Path) -> tuple[str, ...]:
    return subtasks_of(world_spec(read_manifest(folder)).dials)


def _questions(folder: Path, subtask: str, split: str, most: int) -> Questions:
    """Return the parts of the first questions of a split."""
    rows: list[dict[str, Any]] = []
    for shard in read_manifest(folder)["shards"]:
        if (shard["config"], shard["split"]) == (subtask, split) and len(rows) < most:
            rows += read_shard(folder / shard["path"], COLUMNS).slice(0, most - len(rows)).to_pylist()
    return list(map(parts_of, rows))


def _flat(questions: Questions) -> Iterable[Part]:
    return (part for parts in questions for part in parts)


def _right(guess: Guess, questions: Questions) -> float:
    scores = [
        exact_match([guess(part) for part in parts], [part.answer for part in parts]) for parts in questions
    ]
    return fmean(scores or [0.0])


def _with_mean(scores: Mapping[str, float]) -> Scores:
    return {"all": fmean(scores.values()), **scores}


def shortcut_table(report: Mapping[str, Any]) -> str:
    """Return what shortcuts score by a leak report, as a table."""
    rows = [
        [name, f"{scores['all']:.3f}", f"{max(scores.values()):.3f}", ", ".join(above) or "none"]
        for name, scores in report["shortcuts"].items()
        for above in [report["above_bar"].get(name, ())]
    ]
    return table_text(["shortcut", "mean over sub-tasks", "highest sub-task", "above the bar"], rows)


def memory_table(report: Mapping[str, Any]) -> str:
    """Return what memory of train scores by a leak report, as a table."""
    columns = {
        f"{probe}, `{split}`": own for probe, of in report["memory"].items() for split, own in of.items()
    }
    names = next(iter(columns.values()))
    rows = [[name, *(f"{scores[name]:.3f}" for scores in columns.values())] for name in names]
    return table_text(["sub-task", *columns], rows)


def render_leaks(report: Mapping[str, Any]) -> str:
    """Render a leak report for a terminal."""
    known = f"{report['folder']}: what partial knowledge scores on test (bar {SHORTCUT_BAR:.0%} and chance)"
    remembered = "What memory of train scores without a rule"
    return "\n\n".join([printable(known), shortcut_table(report), remembered, memory_table(report)])
