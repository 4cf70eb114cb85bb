"""``cpalloc solve``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cpalloc.cli.failures import ExitCode, told
from cpalloc.cli.files import read_object, with_options, write
from cpalloc.cli.interrupt import interruptible
from cpalloc.cli.progress import progress
from cpalloc.cli.remote import ServerOption, client_for

if TYPE_CHECKING:
    from cpalloc.schema import Allocation


def solve(
    round_path: Annotated[Path, typer.Argument(metavar="ROUND", help="The round, a JSON file, or - for stdin.")],
    time_limit: Annotated[
        float | None, typer.Option(min=0.05, max=3600, help="Seconds; overrides the round's.")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, max=1024, help="Solver threads.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, max=2**31 - 1, help="Seed of the solver.")] = None,
    deterministic: Annotated[
        bool | None,
        typer.Option(
            "--deterministic/--no-deterministic", help="The same bytes for the same round.", show_default=False
        ),
    ] = None,
    gap: Annotated[float | None, typer.Option(min=0, max=1, help="Relative gap that counts as proved.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the answer (JSON) to a file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON instead of tables.")] = False,
    show_all: Annotated[bool, typer.Option("--all", help="Leave nothing out of the tables.")] = False,
    server: ServerOption = None,
) -> None:
    """Solve a round: which jobs start where, which stop, which wait and why."""
    overrides = {
        "time_limit": time_limit,
        "workers": workers,
        "seed": seed,
        "deterministic": deterministic,
        "gap": gap,
    }
    with told(as_json=as_json):
        document = with_options(read_object(round_path, "ROUND"), overrides)
        allocation, interrupted = _solve(document, server)
        if output is not None:
            write(allocation.model_dump_json() + "\n", output)
        if as_json and output is None:
            write(allocation.model_dump_json() + "\n", None)
        elif not as_json:
            _show(allocation, document, show_all=show_all)
    if interrupted:
        raise typer.Exit(ExitCode.INTERRUPTED)
    if allocation.stop_reason == "guard_failed":
        typer.echo("error: the answer found broke a rule and was withheld; nothing changes this round", err=True)
        raise typer.Exit(ExitCode.GUARD_FAILED)


def _solve(document: dict[str, Any], server: str | None) -> tuple[Allocation, bool]:
    if server is not None:
        client = client_for(server)
        with progress(f"solving at {client.url}"):
            return client.solve(document), False
    with progress("loading"):
        from cpalloc.engine import solve as solve_round
        from cpalloc.schema import parse_round

        round_ = parse_round(document)
    with progress(f"solving {len(round_.jobs)} jobs, at most {round_.options.time_limit} s"):
        return interruptible(lambda cancel: solve_round(round_, cancel=cancel))


def _show(allocation: Allocation, document: dict[str, Any], *, show_all: bool) -> None:
    from cpalloc.cli.console import stdout_console
    from cpalloc.cli.context import context_of
    from cpalloc.cli.tables import print_allocation

    print_allocation(stdout_console(), allocation, context_of(document), show_all=show_all)
