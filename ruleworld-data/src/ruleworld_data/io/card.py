"""A build as a dataset repository: parquet, and a card whose every number is computed."""

import re
import shutil
from collections.abc import Mapping
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

from huggingface_hub import DatasetCardData

from ..questions import training_text
from ..show import rows_with_rules
from ..spec import WorldSpec, splits_of, subtasks_of
from ..verify.leaks import leak_report, memory_table, shortcut_table
from .builds import build_command, read_build, world_spec
from .files import whole_folder
from .stats import build_stats

_UNSEEN = """ `unseen` asks for counts whose last rule, and whose rule of who has what at first, `train` and
`validation` never use; where the world keeps few such rules, as of those that have exceptions, it has fewer
questions."""
_UNKNOWN = """## Questions without an answer

A tenth of the rules of each of the seven types is left out of the world, so no pool holds them. Half of the questions
of `unknown_1`, ... need one of them, and the answer is `unknown`. All of them say that the count changes, so no other
answer fits.

"""


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
    FileNotFoundError, FileExistsError, ValueError
        If the build is not one or damaged, or ``out`` is not empty.
    """
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repo):
        raise ValueError(f"a repository is named as in OWNER/NAME, got {repo!r:.80}")
    folder, out = Path(folder), Path(out).resolve()
    manifest = read_build(folder)
    with whole_folder(out) as work:
        for shard in manifest["shards"]:
            (work / shard["path"]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(folder / shard["path"], work / shard["path"])
        body = card_text(folder, manifest).replace("OWNER/NAME", repo)
        (work / "README.md").write_text(f"---\n{_front_matter(manifest)}---\n\n{body}", encoding="utf-8")
    return sorted(p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_file())


def _front_matter(manifest: dict[str, Any]) -> str:
    shards = manifest["shards"]
    splits = dict.fromkeys((shard["config"], shard["split"]) for shard in shards)
    files: dict[str, list[dict[str, str]]] = {}
    for config, split in splits:
        files.setdefault(config, []).append({"split": split, "path": f"{config}/{split}-*"})
    rows = sum(shard["rows"] for shard in shards)
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


def card_text(folder: Path, manifest: dict[str, Any]) -> str:
    """Return the body of the card."""
    spec, stats = replace(world_spec(manifest), split="test"), build_stats(folder)
    row = rows_with_rules("multi_hop_3" if spec.dials.hops > 2 else "single_rule", spec, 0, 1)[0]
    leaks = leak_report(folder)
    rules, questions = (int(table["train"].iloc[-1]) for table in (stats.rules, stats.questions))
    template = resources.files(__package__).joinpath("card.md").read_text(encoding="utf-8")
    return template.format(
        scale=spec.scale,
        seed=spec.seed,
        command=build_command("data", spec),
        version=spec.generator,
        unknown=_UNKNOWN if spec.dials.unknown else "",
        dials=f", dials {spec.dials}" if str(spec.dials) else "",
        n_subtasks=len(subtasks_of(spec.dials)),
        example=row["subtask"],
        n_parts=spec.dials.parts,
        n_rules=f"{rules:,}",
        n_train=f"{questions:,}",
        example_question=row["question"],
        example_rules="\n".join(f"- `{rule['fol']}` {rule['nl']}" for rule in row["rules"]),
        example_proof=f"```text\n{training_text(row)}\n```",
        **{f"{name}_table": text for name, text in stats.texts().items()},
        shortcut_table=shortcut_table(leaks),
        summary=_summary(spec, rules, next(iter(leaks["memory"].values()))),
        unseen=_UNSEEN if "unseen" in splits_of(spec.version) else "",
        memory_table=memory_table(leaks),
    )


def _summary(spec: WorldSpec, rules: int, memory_of: Mapping[str, Mapping[str, float]]) -> str:
    """Return three sentences: what is new in this build, what is hard, and what memory is good for."""
    dials = spec.dials
    kinds = {
        "one thing has several names": dials.words > 0,
        "rules set others aside": dials.exceptions > 0,
        "some questions no rule answers": dials.unknown,
        "counts are compared and added up": dials.compare,
    }
    new = ", ".join(name for name, on in kinds.items() if on)
    scores = [f"{of['all']:.2f} of `{split}`" for split, of in memory_of.items()]
    return (
        f"*New:* {new or 'nothing, this is the setting of the paper; dials make others'}.\n"
        f"*Hard:* of {rules:,} rules a chain needs one a step, and all but the first are found by what the step\n"
        "before concluded, not by the words of the question.\n"
        f"*Memory:* who knows `train` by heart and reads no rule has {', '.join(scores)} right."
    )
