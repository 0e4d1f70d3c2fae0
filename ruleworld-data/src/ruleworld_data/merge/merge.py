"""Parallel questions reworded by a language model: asked once, cached, checked, and kept as they were in doubt."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from importlib import resources
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ..io.build import read_manifest
from ..io.schema import QUESTION_SCHEMA, decode
from ..io.stats import read_shard
from ..spec import QUESTION_SPLITS, SUBTASKS, check_name
from .cache import AnswerCache
from .check import sub_questions, why_refused
from .client import Endpoint, NoAnswerError, Settings

PARALLEL = tuple(subtask for subtask in SUBTASKS if subtask.startswith("multi_rule"))
CACHE_SUFFIX = ".cache.jsonl"

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
    progress: Callable[[int, int], None] | None = None,
    settings: Settings | None = None,
) -> MergeResult:
    """Let a language model reword the parallel questions of one split.

    Every answer is kept in ``<out>.cache.jsonl``, so a run that was stopped goes on without asking again.

    Parameters
    ----------
    folder : path
        A build.
    subtask, split : str
        ``multi_rule_2`` to ``multi_rule_8``, and a split of the questions.
    endpoint, model : str
        Base URL of an OpenAI-compatible server, and a model there. The environment variable ``RULEWORLD_API_KEY`` may
        hold a key.
    out : path
        The parquet file to write. Reworded rows have the ``template_id`` ``llm:MODEL``, all others are as in the build.
    limit : int, optional
        First rows only.
    progress : callable, optional
        Called with the rows that are settled and all rows.
    settings : Settings, optional
        Time limits, retries and threads.

    Returns
    -------
    MergeResult

    Raises
    ------
    FileNotFoundError, ValueError
        If the folder is no build, an argument is wrong, the endpoint cannot be reached or stops answering, or the
        cache is damaged.
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
    server = Endpoint(endpoint, model, settings or Settings())
    folder, out = Path(folder), Path(out)
    shards = [s for s in read_manifest(folder)["shards"] if (s["config"], s["split"]) == (subtask, split)]
    rows = sum(shard["rows"] for shard in shards)
    if not rows:
        raise ValueError(f"{folder} holds no {split} questions of {subtask}; make it again: ruleworld build")
    paths = [folder / shard["path"] for shard in shards]
    _check_out(out, folder)
    total = min(rows, limit or rows)
    run = _Run(server, AnswerCache(Path(f"{out}{CACHE_SUFFIX}")), total, progress)
    temporary = out.with_name(f".{out.name}.tmp")
    try:
        with pq.ParquetWriter(temporary, QUESTION_SCHEMA, compression="zstd") as writer:
            for table in _tables(paths, total):
                run.ask(table.column("question").to_pylist())
                writer.write_table(run.reword(table))
        result = run.result()
        temporary.replace(out)
    finally:
        temporary.unlink(missing_ok=True)
    return result


class _Run:
    """One run over a split."""

    def __init__(
        self,
        server: Endpoint,
        cache: AnswerCache,
        total: int,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        self.server, self.cache, self.total = server, cache, total
        self.progress = progress or (lambda done, total: None)
        self.done = self.reworded = self.refused = self.failed = self.in_a_row = 0
        self.asked = False
        self.reason = ""

    def ask(self, questions: list[str]) -> None:
        """Ask for every wording that is not in the cache."""
        waiting = [q for q in dict.fromkeys(questions) if self.cache.get(self._key(q)) is None]
        if len(questions) > len(waiting):
            self._settle(len(questions) - len(waiting))
        if waiting and not self.asked:  # the first question goes alone: a wrong address is then told at once
            self.asked = True
            failure = self._ask_one(waiting.pop(0))
            if failure and failure.hopeless:
                raise ValueError(
                    f"{self.server.url} with model {self.server.model!r} does not answer ({failure}); check that the "
                    "server runs, the base URL (--endpoint http://localhost:8000/v1), --model and RULEWORLD_API_KEY"
                )
            self._count(failure)
        pool = ThreadPoolExecutor(self.server.settings.threads)
        under_way: set[Future[NoAnswerError | None]] = set()
        try:
            for question in waiting:
                under_way.add(pool.submit(self._ask_one, question))
                if len(under_way) >= 2 * self.server.settings.threads:
                    under_way = self._collect(under_way)
            while under_way:
                under_way = self._collect(under_way)
        except BaseException:
            self.server.stop.set()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _ask_one(self, question: str) -> NoAnswerError | None:
        parts = "\n".join(f"- {part}" for part in sub_questions(question))
        try:
            answer = self.server.ask(load_prompt()[1].replace("{questions}", parts))
        except NoAnswerError as failure:
            return failure
        self.cache.add(self._key(question), question, answer)
        return None

    def _collect(self, under_way: set[Future[NoAnswerError | None]]) -> set[Future[NoAnswerError | None]]:
        finished, rest = wait(under_way, return_when=FIRST_COMPLETED)
        for future in finished:
            self._count(future.result())
        return rest

    def _count(self, failure: NoAnswerError | None) -> None:
        self._settle(1)
        if failure is None:
            self.in_a_row = 0
            return
        self.reason = str(failure)
        self.in_a_row += 1
        if self.in_a_row >= self.server.settings.failures_in_a_row:
            raise ValueError(
                f"{self.server.url} stopped answering: {self.in_a_row} questions in a row failed, the last one with: "
                f"{self.reason}. Answers so far are kept in {self.cache.path}; type the same command again to go on"
            )

    def _settle(self, rows: int) -> None:
        self.done += rows
        self.progress(self.done, self.total)

    def reword(self, table: pa.Table) -> pa.Table:
        """Put the accepted wordings into a table."""
        columns: dict[str, list[str]] = {"question": [], "template_id": []}
        for row in table.select(list(columns)).to_pylist():
            question = row["question"]
            answer = self.cache.get(self._key(question))
            wording = None if answer is None else _THINKING.sub("", answer).strip()
            if wording is None:
                self.failed += 1
            elif wording != question:
                if why_refused(question, wording) is None:
                    row = {"question": wording, "template_id": f"llm:{self.server.model}"}
                    self.reworded += 1
                else:
                    self.refused += 1
            for name, values in columns.items():
                values.append(row[name])
        for name, values in columns.items():
            index = QUESTION_SCHEMA.get_field_index(name)
            table = table.set_column(index, QUESTION_SCHEMA.field(name), pa.array(values, pa.string()))
        return table

    def result(self) -> MergeResult:
        """Return the counts.

        Raises
        ------
        ValueError
            If not one question was answered.
        """
        if self.failed == self.total:
            raise ValueError(
                f"{self.server.url} answered none of {self.total} questions, the last one with: {self.reason}; check "
                "the base URL (--endpoint http://localhost:8000/v1) and --model, then type the command again"
            )
        return MergeResult(self.reworded, self.total - self.reworded, self.refused, self.failed)

    def _key(self, question: str) -> str:
        return sha256(json.dumps([load_prompt()[0], self.server.model, question]).encode()).hexdigest()


@lru_cache(maxsize=1)
def load_prompt() -> tuple[str, str]:
    """Return the version of the prompt and its text, with the slot ``{questions}``."""
    text = resources.files(__package__).joinpath("prompt.txt").read_text(encoding="utf-8")
    head, _, body = text.partition("\n\n")
    return head.removeprefix("version: "), body.strip()


def _check_out(out: Path, folder: Path) -> None:
    if out.suffix != ".parquet" or out.is_dir():
        raise ValueError(f"out must be a parquet file, got {out}; type e.g. --out reworded.parquet")
    if folder.resolve() in out.resolve().parents and out.parent.resolve() != folder.resolve():
        raise ValueError(f"out {out} is among the shards of the build; choose a file outside {folder}")
    out.parent.mkdir(parents=True, exist_ok=True)


def _tables(paths: list[Path], rows: int) -> Iterator[pa.Table]:
    """Read the first rows, shard by shard."""
    for path in paths:
        if rows:
            table = decode(read_shard(path).slice(0, rows), QUESTION_SCHEMA)
            rows -= len(table)
            yield table
