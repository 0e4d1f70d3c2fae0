"""Adapters for a base model, trained alike: DynaRule, SR-KI and KBLaM on RuleWorld's questions."""
