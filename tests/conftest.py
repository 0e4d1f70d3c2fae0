"""Before any test imports datasets or evaluate: they read this once, and must not write to the user's cache."""

import os
import tempfile

_HOME = tempfile.TemporaryDirectory(prefix="ruleworld-tests-")
os.environ["HF_HOME"] = _HOME.name
os.environ["HF_HUB_OFFLINE"] = "1"
