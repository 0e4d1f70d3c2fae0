"""Parallel questions reworded by a language model: asked once, cached, checked, and kept as they were in doubt."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ..io import ChatClient, NoAnswerError, read_manifest, read_shard, trust_endpoint, whole_file
from ..io.schema import QUESTION_SCHEMA, decode
from ..spec import QUESTION_SPLITS, SUBTASKS, check_name
from .check import sub_questions, why_refused

PARALLEL = tuple(subtask for subtask in SUBTASKS if subtask.startswith("multi_rule"))
_THINKING = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)


@dataclass(frozen=True)
class MergeResult:
    """What became of the questions.

    Attributes
    ----------
    reworded : int
        Questions with a new wording.
    kept : int
        Questions left as they were: refused, failed, or answered with the question itself.
    refused : int
        Answers that do not ask the same.
    failed : int
        Questions without an answer; the next run asks them again.
    """

    reworded: int
    kept: int
    refused: int
    failed: int


def merge_split(
    folder: str | Path,
    subtask: str,
    split: str,
    endpoint: str,
    model: str,
    out: str | Path,
    limit: int | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    *,
    timeout: float = 120.0,
    tries: int = 5,
    threads: int = 8,
    failures_in_a_row: int = 20,
) -> MergeResult:
    """Let a language model reword the parallel questions of one split.

    Every answer is kept in the folder ``<out>.replies``, so a run that was stopped goes on without asking again.

    Parameters
    ----------
    folder : path
        A build.
    subtask, split : str
        ``multi_rule_2`` to ``multi_rule_8``, and a split of the questions.
    endpoint, model : str
        Base URL of an OpenAI-compatible server, and a model there. The environment variable ``RULEWORLD_API_KEY`` may
        hold a key, which is sent there.
    out : path
        The parquet file to write. Reworded rows have the ``template_id`` ``llm:MODEL``, all others are as in the build.
    limit : int, optional
        First rows only.
    progress : callable
        Called with the rows that are settled and all rows.
    timeout, tries
        Of `ruleworld_data.io.ChatClient`.
    threads : int
        Questions under way at once.
    failures_in_a_row : int
        Questions without an answer after which the endpoint counts as gone.

    Raises
    ------
    FileNotFoundError, ValueError
        If the folder is no build, an argument is wrong, or the endpoint cannot be reached or stops answering.
    """
    check_name("sub-task", subtask, SUBTASKS)
    if subtask not in PARALLEL:
        raise ValueError(
            f"{subtask} questions have one part, so there is nothing to merge; type one of: "
            f"--subtask {', '.join(PARALLEL)}"
        )
    check_name("split", split, QUESTION_SPLITS)
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        raise ValueError(f"limit must be a positive integer, got {limit!r}")
    folder, out = Path(folder), Path(out)
    trust_endpoint(endpoint, model)
    client = ChatClient(endpoint, model, Path(f"{out}.replies"), timeout, tries)
    shards = [s for s in read_manifest(folder)["shards"] if (s["config"], s["split"]) == (subtask, split)]
    rows = sum(shard["rows"] for shard in shards)
    if not rows:
        raise ValueError(f"{folder} holds no {split} questions of {subtask}; make it again: ruleworld build")
    _check_out(out, folder)
    total = min(rows, limit or rows)
    questions: list[str] = []
    for shard in shards:
        questions += read_shard(folder / shard["path"], ["question"])["question"].to_pylist()
    reason = _ask_all(client, questions[:total], progress, threads, failures_in_a_row)
    counts: Counter[str] = Counter()
    with whole_file(out) as part, pq.ParquetWriter(part, QUESTION_SCHEMA, compression="zstd") as writer:
        for shard in shards:
            table = decode(
                read_shard(folder / shard["path"]).slice(0, total - counts.total()), QUESTION_SCHEMA
            )
            writer.write_table(_reworded(table, client, counts))
        if counts["failed"] == total:
            raise ValueError(
                f"{endpoint} answered none of {total} questions, the last one with: {reason}; check the base URL "
                "(--endpoint http://localhost:8000/v1) and --model, then type the command again"
            )
    return MergeResult(counts["reworded"], total - counts["reworded"], counts["refused"], counts["failed"])


def _ask_all(
    client: ChatClient,
    questions: list[str],
    progress: Callable[[int, int], None],
    threads: int,
    failures_in_a_row: int,
) -> str:
    """Ask for every wording that is not on disk; return why the last question without an answer has none."""
    waiting = [question for question in dict.fromkeys(questions) if client.stored(_request(question)) is None]
    done = settled = len(questions) - len(waiting)
    if done:
        progress(done, len(questions))

    def ask(question: str) -> NoAnswerError | None:
        try:
            client.complete(_request(question))
        except NoAnswerError as failure:
            return failure
        return None

    def failures() -> Iterator[NoAnswerError | None]:
        yield from map(ask, waiting[:1])  # the first goes alone, so that a wrong address is told at once
        yield from pool.map(ask, waiting[1:])

    in_a_row, reason = 0, ""
    # The client ends first: what waits in the pool then fails at once.
    with ThreadPoolExecutor(threads) as pool, client:
        for failure in failures():
            in_a_row, reason = (in_a_row + 1, str(failure)) if failure else (0, reason)
            if failure and failure.hopeless and done == settled:
                raise ValueError(
                    f"{client.url} with model {client.model!r} does not answer ({failure}); check that the server "
                    "runs, the base URL (--endpoint http://localhost:8000/v1), --model and RULEWORLD_API_KEY"
                )
            if in_a_row >= failures_in_a_row:
                raise ValueError(
                    f"{client.url} stopped answering: {in_a_row} questions in a row failed, the last one with: "
                    f"{reason}. Answers so far are kept in {client.replies}; type the same command again to go on"
                )
            done += 1
            progress(done, len(questions))
    return reason


def _request(question: str) -> dict[str, Any]:
    parts = "\n".join(f"- {part}" for part in sub_questions(question))
    prompt = load_prompt().replace("{questions}", parts)
    return {"messages": [{"role": "user", "content": prompt}], "temperature": 0}


def _reworded(table: pa.Table, client: ChatClient, counts: Counter[str]) -> pa.Table:
    """Put the accepted wordings into a table, and count what became of its rows."""
    names = ("question", "template_id")
    rows = table.select(names).to_pylist()
    for row in rows:
        question, reply = row["question"], client.stored(_request(row["question"]))
        wording = question if reply is None else _THINKING.sub("", reply.text).strip()
        if reply is None:
            counts["failed"] += 1
        elif wording == question:
            counts["same"] += 1
        elif why_refused(question, wording) is not None:
            counts["refused"] += 1
        else:
            counts["reworded"] += 1
            row.update(question=wording, template_id=f"llm:{client.model}")
    for name in names:
        index = QUESTION_SCHEMA.get_field_index(name)
        values = pa.array([row[name] for row in rows], pa.string())
        table = table.set_column(index, QUESTION_SCHEMA.field(name), values)
    return table


@lru_cache(maxsize=1)
def load_prompt() -> str:
    """Return the prompt, with the slot ``{questions}``."""
    return resources.files(__package__).joinpath("prompt.txt").read_text(encoding="utf-8").strip()


def _check_out(out: Path, folder: Path) -> None:
    if out.suffix != ".parquet" or out.is_dir():
        raise ValueError(f"out must be a parquet file, got {out}; type e.g. --out reworded.parquet")
    if folder.resolve() in out.resolve().parents and out.parent.resolve() != folder.resolve():
        raise ValueError(f"out {out} is among the shards of the build; choose a file outside {folder}")
    out.parent.mkdir(parents=True, exist_ok=True)
