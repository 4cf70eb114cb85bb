"""``python -m cpalloc.cli``."""

from cpalloc.cli import main

main()
