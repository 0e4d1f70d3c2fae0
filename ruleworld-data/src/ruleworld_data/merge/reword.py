"""Parallel questions reworded by a language model: asked once, cached, checked, and kept as they were in doubt."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from pathlib import Path
from typing import NamedTuple

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
    rows, counts = pa.concat_tables(tables).slice(0, limit).to_pylist(), Counter[str]()
    with ChatClient(endpoint, model, Path(f"{out}.replies")) as client:
        wordings = _ask_all(client, [row["question"] for row in rows])
        for done, (row, wording) in enumerate(zip(rows, wordings, strict=True), start=1):
            if wording is None:
                counts["failed"] += 1
            elif wording != row["question"] and why_refused(row["question"], wording):
                counts["refused"] += 1
            elif wording != row["question"]:
                counts["reworded"] += 1
                row |= {"question": wording, "template_id": f"llm:{model}"}
            progress(done, len(rows))
    with whole_file(out) as part:
        pq.write_table(pa.Table.from_pylist(rows, QUESTION_SCHEMA), part, compression="zstd")
    reworded = counts["reworded"]
    return MergeResult(reworded, len(rows) - reworded, counts["refused"], counts["failed"])


def _ask_all(client: ChatClient, questions: list[str]) -> Iterator[str | None]:
    """Yield a wording of each question, None where there is no answer; `ValueError` once there are none any more."""

    def ask(question: str) -> str | NoAnswerError:
        parts = "\n".join(f"- {part}" for part in sub_questions(question))
        messages = [{"role": "user", "content": prompt.replace("{questions}", parts)}]
        try:
            reply = client.complete({"messages": messages, "temperature": 0})
        except NoAnswerError as failure:
            return failure
        return _THINKING.sub("", reply.text).strip()

    def answers() -> Iterator[str | NoAnswerError]:
        yield from map(ask, questions[:1])  # the first goes alone, so that a wrong address is told at once
        yield from pool.map(ask, questions[1:])

    prompt = resources.files(__package__).joinpath("prompt.txt").read_text(encoding="utf-8").strip()
    pool, in_a_row = ThreadPoolExecutor(THREADS), 0
    try:
        for done, answer in enumerate(answers(), start=1):
            failed = isinstance(answer, NoAnswerError)
            in_a_row = in_a_row + 1 if failed else 0
            if in_a_row and (
                getattr(answer, "hopeless", False) or in_a_row in (FAILURES_IN_A_ROW, len(questions))
            ):
                raise ValueError(
                    f"{client.url} with model {client.model!r} does not answer: {in_a_row} of {done} questions failed "
                    f"at the end, the last one with: {answer}. Check that the server runs, the base URL (--endpoint "
                    "http://localhost:8000/v1), --model and RULEWORLD_API_KEY; answers so far are kept, so type the "
                    "same command again to go on"
                )
            yield None if failed else str(answer)
    finally:
        pool.shutdown(cancel_futures=True)
