"""The command line: ``cpalloc solve|check|generate|simulate|compare|serve|version``.

Commands import what they need when they run, so that ``--help`` loads neither the solver nor the service.
"""

from __future__ import annotations

import typer

from cpalloc.cli.check import check
from cpalloc.cli.compare import compare
from cpalloc.cli.generate import generate
from cpalloc.cli.serve import serve
from cpalloc.cli.simulate import simulate
from cpalloc.cli.solve import solve
from cpalloc.cli.version import version

EPILOG = (
    "Exit codes: 0 done, 1 unexpected, 2 wrong usage, 3 guard failed (the status quo was answered), 5 bad input, "
    "6 server, 7 rules broken, 130 interrupted."
)


def create_cli() -> typer.Typer:
    """Build the command line."""
    cli = typer.Typer(
        name="cpalloc",
        help="Optimization-based GPU allocator: one model a round, and a proof of how good the answer is.",
        epilog=EPILOG,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    for command in (solve, check, generate, simulate, compare, serve, version):
        cli.command()(command)
    return cli


def main() -> None:
    """Run the command line; the entry point ``cpalloc``."""
    create_cli()()
