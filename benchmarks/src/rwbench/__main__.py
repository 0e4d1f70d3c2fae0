"""`python -m rwbench`."""

from .cli.app import main

main()
