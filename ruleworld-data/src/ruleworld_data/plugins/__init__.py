"""RuleWorld inside evaluation tools: thin task definitions over the generator, the pools and the scorer.

Every tool asks the same prompts (`ruleworld_data.plugins.prompts`) and scores with
`ruleworld_data.scoring`. The tools are optional: nothing here imports one before it is used.
"""

from __future__ import annotations

from pathlib import Path

PLUGINS = {
    "lm-eval": "lm_eval_tasks",
    "inspect": "inspect_task.py",
    "lighteval": "lighteval_tasks.py",
    "mteb": "mteb_task.py",
}
"""What each tool is given: a folder or a file of this package."""


def plugin_path(name: str) -> Path:
    """Return the folder or file that a tool is pointed at.

    Parameters
    ----------
    name : str
        A key of `PLUGINS`.

    Raises
    ------
    ValueError
        For an unknown name.
    """
    from ..spec import check_name

    check_name("plug-in", name, PLUGINS)
    return Path(__file__).parent / PLUGINS[name]
