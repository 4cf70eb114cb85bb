"""``cpalloc check``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cpalloc.cli.failures import ExitCode, told
from cpalloc.cli.files import read_object, write
from cpalloc.cli.progress import progress
from cpalloc.cli.remote import ServerOption, client_for

if TYPE_CHECKING:
    from cpalloc.schema import CheckReport


def check(
    round_path: Annotated[Path, typer.Argument(metavar="ROUND", help="The round, a JSON file, or - for stdin.")],
    allocation_path: Annotated[Path, typer.Argument(metavar="ALLOCATION", help="An answer to it, a JSON file, or -.")],
    as_json: Annotated[bool, typer.Option("--json", help="Report in JSON instead of tables.")] = False,
    server: ServerOption = None,
) -> None:
    """Check an allocation against its round: which rules it breaks. Exits with 7 when it breaks any."""
    if str(round_path) == str(allocation_path) == "-":
        raise typer.BadParameter("only one of ROUND and ALLOCATION can be -", param_hint="ALLOCATION")
    with told(as_json=as_json):
        round_, allocation = read_object(round_path, "ROUND"), read_object(allocation_path, "ALLOCATION")
        report = _check(round_, allocation, server)
    if as_json:
        write(report.model_dump_json() + "\n", None)
    else:
        from cpalloc.cli.console import stdout_console
        from cpalloc.cli.tables import print_report

        print_report(stdout_console(), report)
    if report.violations:
        raise typer.Exit(ExitCode.THRESHOLD_MISSED)


def _check(round_: dict[str, Any], allocation: dict[str, Any], server: str | None) -> CheckReport:
    if server is not None:
        client = client_for(server)
        with progress(f"checking at {client.url}"):
            return client.check(round_, allocation)
    with progress("checking"):
        from cpalloc.engine import check as check_round
        from cpalloc.schema import parse_allocation, parse_round

        return check_round(parse_round(round_), parse_allocation(allocation))
