"""Where embeddings and replies are kept between runs."""

import os
from pathlib import Path


def cache_root() -> Path:
    """Return the cache folder: ``$RWBENCH_CACHE``, else ``rwbench`` in the user's cache folder."""
    if named := os.environ.get("RWBENCH_CACHE"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rwbench"
