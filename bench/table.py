"""The table of every tier: value, best, bound, gap, status and seconds, with the greedy's value beside it.

``python -m bench.table --sizes 64,256 --seeds 1-5 --families mixed,gang-heavy --time-limit 20``; every case runs in a
process of its own. ``--update docs/benchmarks.md`` measures again what the markers of a document ask for.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markdown import Markdown

from bench.document import update
from bench.render import report
from bench.runner import plan_of, plan_options, progress, run

PIPED_WIDTH = 200
"""Columns where standard output is no terminal."""


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print, and write what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench.table", description=__doc__)
    plan_options(parser)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every result")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables, every tier of every case too")
    parser.add_argument("--update", type=Path, metavar="FILE", help="measure and replace the blocks of a document")
    parser.add_argument("--block", action="append", metavar="NAME", help="with --update: this block only; repeatable")
    options = parser.parse_args(argv)
    if options.update:
        results = update(options.update, options.block)
    else:
        plan = plan_of(options)
        with progress([plan]) as tick:
            results = run(plan, tick)
        text = report(results, full=True)
        if options.markdown:
            options.markdown.write_text(text, encoding="utf-8")
        console = Console()
        Console(width=None if console.is_terminal else PIPED_WIDTH).print(Markdown(text))
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
