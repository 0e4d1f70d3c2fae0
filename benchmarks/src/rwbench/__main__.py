"""`python -m rwbench`."""

from .cli import main

main()
