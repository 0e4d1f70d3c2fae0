"""``python -m dynarule``, and so ``accelerate launch -m dynarule``."""

from .cli.app import main

main()
