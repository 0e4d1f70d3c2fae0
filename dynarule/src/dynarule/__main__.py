"""``python -m dynarule``, and so ``accelerate launch -m dynarule``."""

from .cli.app import main

if __name__ == "__main__":
    main()
