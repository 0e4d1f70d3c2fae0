"""The taskset of verifiers, under the name by which it is asked for: ``ruleworld-taskset``."""

from ruleworld_data.plugins.verifiers_taskset import RuleWorldTaskset

__all__ = ["RuleWorldTaskset"]
