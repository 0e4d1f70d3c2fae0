"""``python -m dynarule``, and so ``accelerate launch -m dynarule``."""

from .cli import main

main()
