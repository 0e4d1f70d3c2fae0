"""A build as a dataset repository: parquet, a card whose every number is computed, and a benchmark description."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from ..questions import training_text
from ..scoring.memory import memory
from ..scoring.shortcuts import shortcuts
from ..show import rows_with_rules
from ..spec import RULE_SPLITS, UNKNOWN, WorldSpec, splits_of
from .builds import build_command, read_build, world_spec
from .files import whole_folder
from .stats import BuildStats, build_stats


def export(folder: str | Path, out: str | Path, repo: str = "OWNER/NAME") -> list[str]:
    """Write a build as a folder that ``load_dataset(out, "multi_hop_3")`` opens and that can be pushed to a hub.

    Parameters
    ----------
    folder : path
        A finished build.
    out : path
        A new or empty folder.
    repo : str
        What the card calls the repository.

    Returns
    -------
    list of str
        The files written, relative to ``out``.

    Raises
    ------
    FileNotFoundError, ValueError
        If the build is not one or damaged, or ``out`` is not empty.
    """
    folder, out = Path(folder), Path(out).resolve()
    manifest = read_build(folder)
    stats = build_stats(folder)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"--out {out} is not an empty folder; choose a new one")
    with whole_folder(out) as work:
        for shard in manifest["shards"]:
            (work / shard["path"]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(folder / shard["path"], work / shard["path"])
        front = _front_matter(manifest, stats)
        body = card_text(folder, manifest, stats).replace("OWNER/NAME", repo)
        (work / "README.md").write_text(f"---\n{front}---\n\n{body}", encoding="utf-8")
        (work / "eval.yaml").write_text(_benchmark(stats), encoding="utf-8")
    return sorted(p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_file())


def _front_matter(manifest: dict[str, Any], stats: BuildStats) -> str:
    from huggingface_hub import DatasetCardData

    splits = splits_of(world_spec(manifest).version)
    files = {
        config: [
            {"split": split, "path": f"{config}/{split}-*"}
            for split in (RULE_SPLITS if config == "rules" else splits)
        ]
        for config in stats.rows
    }
    rows = sum(sum(splits.values()) for splits in stats.rows.values())
    sizes = {10**3: "n<1K", 10**4: "1K<n<10K", 10**5: "10K<n<100K", 10**6: "100K<n<1M", 10**7: "1M<n<10M"}
    card = DatasetCardData(
        pretty_name="RuleWorld",
        license="apache-2.0",
        language=["en"],
        task_categories=["question-answering", "text-retrieval"],
        size_categories=[next((name for most, name in sizes.items() if rows < most), "10M<n<100M")],
        tags=["rules", "reasoning", "retrieval", "multi-hop", "synthetic", "benchmark"],
        annotations_creators=["machine-generated"],
        source_datasets=["original"],
        configs=[{"config_name": config, "data_files": own} for config, own in files.items()],
    )
    return f"{card}\n"


def card_text(folder: Path, manifest: dict[str, Any], stats: BuildStats) -> str:
    """Return the body of the card."""
    spec = replace(world_spec(manifest), split="test")
    row = rows_with_rules("multi_hop_3", spec, 0, 1)[0]
    subtasks = list(stats.answer_types)
    tables = {name: _table(*rows) for name, rows in stats.tables().items()}
    guesses = [
        [name, f"{scores['all']:.3f}", f"{max(scores.values()):.3f}"]
        for name, scores in shortcuts(folder).items()
    ]
    known = memory(folder)
    columns = {f"{probe}, `{split}`": scores for probe, of in known.items() for split, scores in of.items()}
    remembered = [
        [name, *(f"{scores[key]:.3f}" for scores in columns.values())]
        for name, key in {"mean": "all", **{subtask: subtask for subtask in subtasks}}.items()
    ]
    unseen = (
        " `unseen` asks for counts whose last rule, and whose rule of who has what at first, `train` and `validation`\n"
        "never use."
    )
    template = resources.files(__package__).joinpath("card.md").read_text(encoding="utf-8")
    return template.format(
        scale=stats.scale,
        seed=stats.seed,
        command=build_command("data", spec),
        version=stats.generator_version,
        unknown=_unknown_text(spec),
        dials=f", dials {spec.dials}" if str(spec.dials) else "",
        n_subtasks=len(subtasks),
        n_parts=spec.dials.parts,
        n_rules=f"{sum(stats.rules['train'].values()):,}",
        n_train=f"{sum(stats.rows[subtask]['train'] for subtask in subtasks):,}",
        example_question=row["question"],
        example_rules="\n".join(f"- `{rule['fol']}` {rule['nl']}" for rule in row["rules"]),
        example_proof=f"```text\n{training_text(row)}\n```",
        **{f"{name}_table": text for name, text in tables.items()},
        shortcut_table=_table(["shortcut", "mean over sub-tasks", "highest sub-task"], *guesses),
        summary=_summary(spec, stats, next(iter(known.values()))),
        unseen=unseen if "unseen" in splits_of(spec.version) else "",
        memory_table=_table(["sub-task", *columns], *remembered),
    )


def _summary(spec: WorldSpec, stats: BuildStats, memory_of: Mapping[str, Mapping[str, float]]) -> str:
    """Return three sentences: what is new in this build, what is hard, and what memory is good for."""
    dials = spec.dials
    kinds = {
        "one thing has several names": dials.words > 0,
        "rules set others aside": dials.exceptions > 0,
        "some questions no rule answers": dials.unknown,
        "counts are compared and added up": dials.compare,
    }
    new = ", ".join(name for name, on in kinds.items() if on)
    rules = sum(stats.rules["train"].values())
    scores = [f"{of['all']:.2f} of `{split}`" for split, of in memory_of.items()]
    return (
        f"*New:* {new or 'nothing, this is the setting of the paper; dials make others'}.\n"
        f"*Hard:* of {rules:,} rules a chain needs one a step, and all but the first are found by what the step\n"
        "before concluded, not by the words of the question.\n"
        f"*Memory:* who knows `train` by heart and reads no rule has {', '.join(scores)} right."
    )


def _unknown_text(spec: WorldSpec) -> str:
    """Return what the card says of questions without an answer, with one of them; nothing where there are none."""
    if not spec.dials.unknown:
        return ""
    subtask = f"unknown_{min(2, spec.dials.hops)}"
    row = next(row for row in rows_with_rules(subtask, spec, 0, 20) if row["answers"] == [UNKNOWN])
    return (
        "## Questions without an answer\n\n"
        "A tenth of the rules of each of the seven types is left out of the world, so no pool holds them. Half of the "
        "questions of `unknown_1`, ... need one of them, and the answer is `unknown`. All of them say that the count "
        "changes, so no "
        f"other answer fits:\n\n> {row['question']}\n\n```text\n{training_text(row)}\n```\n\n"
    )


def _benchmark(stats: BuildStats) -> str:
    """Return the description that registers the benchmark with a hub."""
    tasks = [{"id": subtask, "config": subtask, "split": "test"} for subtask in stats.answer_types]
    description = (
        "Find and apply the right rules out of a large shared repository. Score: exact_match, the share of positions "
        "of the comma-separated answer list in the last \\boxed{} that are right, 0 if the lengths differ."
    )
    return yaml.safe_dump({"name": "RuleWorld", "description": description, "tasks": tasks}, sort_keys=False)


def _table(head: Sequence[str], *rows: Sequence[object]) -> str:
    cells = [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in rows]
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *cells]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
