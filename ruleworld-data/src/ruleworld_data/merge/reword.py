"""Parallel questions reworded by a language model: asked once, cached, checked, and kept as they were in doubt."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from ..io import ChatClient, NoAnswerError, read_manifest, read_shard, trust_endpoint, whole_file
from ..io.schema import QUESTION_SCHEMA, decode
from ..spec import QUESTION_SPLITS, SUBTASKS, Dials, check_count, check_name
from .check import sub_questions, why_refused

PARALLEL = tuple(subtask for subtask in SUBTASKS if subtask.startswith("multi_rule"))
FAILURES_IN_A_ROW = 20
"""Questions without an answer after which the endpoint counts as gone."""
THREADS = 8
_THINKING = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)


class MergeResult(NamedTuple):
    """Questions with a new wording, and those left as they were, of which some were refused or failed."""

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
    if limit is not None:
        check_count("limit", limit, least=1)
    trust_endpoint(endpoint, model)
    folder, out = Path(folder), Path(out)
    manifest = read_manifest(folder)
    if words := Dials.from_dict(manifest.get("dials", {})).words:
        raise ValueError(
            f"{folder} has words={words}, and only wordings of words=0 can be checked; merge such a build"
        )
    shards = [s for s in manifest["shards"] if (s["config"], s["split"]) == (subtask, split)]
    if not sum(shard["rows"] for shard in shards):
        raise ValueError(f"{folder} holds no {split} questions of {subtask}; make it again: ruleworld build")
    if out.suffix != ".parquet" or out.is_dir():
        raise ValueError(f"out must be a parquet file, got {out}; type e.g. --out reworded.parquet")
    if folder.resolve() in out.resolve().parents[1:]:
        raise ValueError(f"out {out} is among the shards of the build; choose a file outside {folder}")
    out.parent.mkdir(parents=True, exist_ok=True)
    tables = [decode(read_shard(folder / shard["path"]), QUESTION_SCHEMA) for shard in shards]
    table = pa.concat_tables(tables).slice(0, limit)
    with ChatClient(endpoint, model, Path(f"{out}.replies")) as client:
        reason = _ask_all(client, table["question"].to_pylist(), progress)
        table, counts = _reworded(table, client)
    if counts["failed"] == len(table):
        raise ValueError(
            f"{endpoint} answered none of {len(table)} questions, the last one with: {reason}; check the base URL "
            "(--endpoint http://localhost:8000/v1) and --model, then type the command again"
        )
    with whole_file(out) as part:
        pq.write_table(table, part, compression="zstd")
    reworded = counts["reworded"]
    return MergeResult(reworded, len(table) - reworded, counts["refused"], counts["failed"])


def _ask_all(client: ChatClient, questions: list[str], progress: Callable[[int, int], None]) -> str:
    """Ask for every wording that is not on disk; return why the last question without an answer has none."""
    waiting = [question for question in dict.fromkeys(questions) if client.stored(_request(question)) is None]
    done = already = len(questions) - len(waiting)
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
    pool = ThreadPoolExecutor(THREADS)
    try:
        for failure in failures():
            in_a_row, reason = (in_a_row + 1, str(failure)) if failure else (0, reason)
            if failure and failure.hopeless and done == already:
                raise ValueError(
                    f"{client.url} with model {client.model!r} does not answer ({failure}); check that the server "
                    "runs, the base URL (--endpoint http://localhost:8000/v1), --model and RULEWORLD_API_KEY"
                )
            if in_a_row >= FAILURES_IN_A_ROW:
                raise ValueError(
                    f"{client.url} stopped answering: {in_a_row} questions in a row failed, the last one with: "
                    f"{reason}. Answers so far are kept; type the same command again to go on"
                )
            done += 1
            progress(done, len(questions))
    finally:
        pool.shutdown(cancel_futures=True)
    return reason


def _request(question: str) -> dict[str, Any]:
    parts = "\n".join(f"- {part}" for part in sub_questions(question))
    prompt = resources.files(__package__).joinpath("prompt.txt").read_text(encoding="utf-8").strip()
    text = prompt.replace("{questions}", parts)
    return {"messages": [{"role": "user", "content": text}], "temperature": 0}


def _reworded(table: pa.Table, client: ChatClient) -> tuple[pa.Table, Counter[str]]:
    """Put the accepted wordings into a table, and count what became of its rows."""
    counts: Counter[str] = Counter()
    rows = table.to_pylist()
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
            row |= {"question": wording, "template_id": f"llm:{client.model}"}
    return pa.Table.from_pylist(rows, QUESTION_SCHEMA), counts
