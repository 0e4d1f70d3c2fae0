"""Worker processes, as all that runs in several starts them."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import Any

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@contextmanager
def worker_pool(
    jobs: int,
    prepare: Callable[..., object] | None = None,
    *args: Any,
    threads: int | None = None,
    lifetime: int | None = None,
) -> Iterator[ProcessPoolExecutor]:
    """Yield a pool of processes, each of which begins with ``prepare``; if the block fails, what waits is cancelled.

    They are spawned, so that none inherits locks of libraries' threads. ``threads`` are those of the numerical
    libraries that a worker imports, ``lifetime`` the tasks after which it is replaced.
    """
    start = threads, prepare, args
    with ProcessPoolExecutor(jobs, get_context("spawn"), _start, start, max_tasks_per_child=lifetime) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _start(threads: int | None, prepare: Callable[..., object] | None, args: tuple[Any, ...]) -> None:
    if threads is not None:
        os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(threads)))
    # An orphan would go on writing, beside the run that resumes.
    Thread(target=_end_with_parent, daemon=True).start()
    if prepare:
        prepare(*args)


def _end_with_parent() -> None:
    if parent := parent_process():
        parent.join()
        os._exit(1)
