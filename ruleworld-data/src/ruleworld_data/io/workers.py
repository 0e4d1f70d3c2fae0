"""What every process pool here starts its workers with."""

import os
from multiprocessing import parent_process
from threading import Thread

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def start_worker(threads: int | None = None) -> None:
    """Make a spawned worker end with its parent: an orphan would go on writing, beside the run that resumes.

    ``threads``: of the numerical libraries that it imports.
    """
    if threads is not None:
        os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(threads)))
    parent = parent_process()

    def end_with_parent() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    Thread(target=end_with_parent, daemon=True).start()
