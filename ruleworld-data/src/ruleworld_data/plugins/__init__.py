"""RuleWorld inside tools that evaluate and train: thin task definitions over the generator, the pools and the scorer.

Every tool asks the prompts of `ruleworld_data.prompts` and scores with `ruleworld_data.scoring`. The tools are
optional: nothing here imports one before it is used.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from .._lazy import attach, tool
from ..spec import check_name

if TYPE_CHECKING:  # what type checkers and editors see
    from .common import *

__getattr__, __dir__, __all__ = attach(__name__, common="METRICS TaskOptions ask output_scores prompt_rows")
__all__ += ["PLUGINS", "plugin_path", "tool"]

PLUGINS = {
    "lm-eval": "lm_eval_tasks",
    "inspect": "inspect_task.py",
    "mteb": "mteb_task.py",
    "reasoning-gym": "reasoning_gym_task.py",
    "trl": "trl_environment.py",
    "verl": "verl_reward.py",
    "skyrl": "skyrl_environment.py",
    "openenv": "openenv_server.py",
    "verifiers": "verifiers_taskset.py",
}
"""What each tool is given: a folder or a file of this package."""


def plugin_path(name: str) -> Path:
    """Return the folder or file that a tool is pointed at.

    Raises
    ------
    ValueError
        For a name that is not in `PLUGINS`.
    """
    check_name("plug-in", name, PLUGINS)
    return Path(__file__).parent / PLUGINS[name]
