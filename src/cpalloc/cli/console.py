"""The console tables are printed on."""

from __future__ import annotations

import os
import sys

from rich.console import Console

PIPED_WIDTH = 120
"""Columns where standard output is no terminal and COLUMNS says nothing."""


def stdout_console() -> Console:
    """Make a console on standard output; no colours where it is not a terminal."""
    wide = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return Console(width=PIPED_WIDTH if wide else None, highlight=False, soft_wrap=False)
