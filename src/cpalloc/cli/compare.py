"""``cpalloc compare``."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cpalloc.cli.failures import ExitCode, told
from cpalloc.cli.files import check_target, write
from cpalloc.cli.watching import watching_many, watching_there

if TYPE_CHECKING:
    from cpalloc.sim.measures import Comparison
    from cpalloc.sim.sweep import Engine, Outcome, Swept, Task
    from cpalloc.sim.what_if import WhatIf


class EngineName(StrEnum):
    """Where simulations run."""

    LOCAL = "local"
    RAY = "ray"


def compare(
    scenarios: Annotated[Path, typer.Argument(metavar="SCENARIOS", help="A base and named changes (TOML).")],
    seeds: Annotated[str | None, typer.Option(help="E.g. 1-10 or 1,4,7; else those of the file.")] = None,
    engine: Annotated[EngineName, typer.Option(help="Processes on this machine, or Ray.")] = EngineName.LOCAL,
    address: Annotated[
        str | None, typer.Option(help="Of a Ray cluster; RAY_ADDRESS, else a Ray on this machine.")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Simulations at once here; else one per core.")] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="DIR", help="Keep results here, and do not run again what is there already."
        ),
    ] = None,
    report: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a page with pictures (HTML).")] = None,
    parquet: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write every measure of every simulation (Parquet).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The comparison in JSON instead of a table.")] = False,
    show_all: Annotated[bool, typer.Option("--all", help="All measures, and every budget.")] = False,
    server: Annotated[
        str | None,
        typer.Option("--server", metavar="URL", help="Have a service do it; labs and traces are sent along."),
    ] = None,
) -> None:
    """Simulate scenarios side by side, over seeds: what changes, and how sure that is."""
    check_target(report, "--report")
    check_target(parquet, "--parquet")
    if address is not None and engine is not EngineName.RAY:
        raise typer.BadParameter("is for --engine ray", param_hint="--address")
    if server is not None:
        here = {"--engine": engine is EngineName.RAY, "--workers": workers, "--output": output, "--parquet": parquet}
        for option in (option for option, given in here.items() if given):
            raise typer.BadParameter("is for simulations on this machine, not for --server", param_hint=option)
        with told(as_json=as_json):
            _compare_there(server, scenarios, seeds, report, as_json=as_json, show_all=show_all)
        return
    with told(as_json=as_json), _folder(output) as folder:
        from cpalloc.sim.sweep import comparison_of

        what_if = _load(scenarios, seeds)
        tasks, swept = _sweep(what_if, folder, _engine(engine, address, workers))
        comparison = comparison_of(swept.summaries)
        if comparison is not None:
            if parquet is not None:
                from cpalloc.sim.measures.frames import measure_frame

                measure_frame(swept.summaries).write_parquet(parquet)
            if report is not None:
                from cpalloc.report import study_of, write_report

                write_report(report, [study_of(comparison, tasks)], title=what_if.title)
            # Last: whoever reads the table may hang up, and what was asked for as a file must not be lost by it.
            _show(comparison, as_json=as_json, show_all=show_all)
    _tell_failures(swept.failed)
    if swept.interrupted:
        rest = "the same command goes on" if output else "with --output it could go on later"
        typer.echo(f"interrupted; {rest}", err=True)
        raise typer.Exit(ExitCode.INTERRUPTED)
    if swept.failed:
        raise typer.Exit(ExitCode.BAD_INPUT if all(outcome.issues for _, outcome in swept.failed) else 1)


def _compare_there(
    url: str, path: Path, seeds: str | None, report: Path | None, *, as_json: bool, show_all: bool
) -> None:
    """Have a service compare, and stop it there on Ctrl-C."""
    from pydantic import TypeAdapter

    from cpalloc.cli.inlining import inlined
    from cpalloc.cli.remote import client_for
    from cpalloc.sim.measures import Comparison

    client = client_for(url)
    posted = client.post_what_if(inlined(path, _load(path, seeds), overridden=seeds is not None))
    id: str = posted["id"]
    try:
        with watching_there() as told_of:
            for name, data in client.watch_what_if(id):
                told_of(name, data)
    except KeyboardInterrupt:
        client.cancel_what_if(id)
    status, result = client.what_if(id), client.what_if_result(id)
    if result["comparison"] is not None:
        if report is not None:
            report.write_bytes(client.what_if_page(id))
        comparison = TypeAdapter(Comparison).validate_python(result["comparison"])
        _show(comparison, as_json=as_json, show_all=show_all)
    failed = [run for run in status["runs"] if run["state"] == "failed"]
    _tell_reasons([(f"{r['scenario']}, seed {r['seed']}", r["issues"], r["message"] or "", "") for r in failed])
    if status["state"] == "cancelled":
        typer.echo("cancelled; what was done until then is compared", err=True)
        raise typer.Exit(ExitCode.INTERRUPTED)
    if failed:
        raise typer.Exit(ExitCode.BAD_INPUT if all(run["issues"] for run in failed) else 1)


@contextmanager
def _folder(output: Path | None) -> Iterator[Path]:
    """Where results go: kept, or gone at the end."""
    if output is not None:
        yield output
        return
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(prefix="cpalloc-") as folder:
        yield Path(folder)


def _load(path: Path, seeds: str | None) -> WhatIf:
    from pydantic_core import PydanticCustomError

    from cpalloc.sim.scenario import parse_seeds
    from cpalloc.sim.what_if import load_what_if

    what_if = load_what_if(path)
    if seeds is None:
        return what_if
    try:
        return what_if.with_seeds(parse_seeds(seeds))
    except PydanticCustomError as error:
        raise typer.BadParameter(error.message(), param_hint="--seeds") from None


def _engine(name: EngineName, address: str | None, workers: int | None) -> Engine:
    from cpalloc.sim.sweep import LocalEngine, RayEngine

    return RayEngine(address, workers) if name is EngineName.RAY else LocalEngine(workers)


def _sweep(what_if: WhatIf, folder: Path, engine: Engine) -> tuple[tuple[Task, ...], Swept]:
    from cpalloc.sim.sweep import plan, sweep

    tasks = plan(what_if.scenarios, folder)
    try:
        with watching_many() as watch:
            return tasks, sweep(tasks, engine, watch=watch)
    except KeyboardInterrupt:  # the second Ctrl-C; the first only asks to stop
        raise typer.Exit(ExitCode.INTERRUPTED) from None


def _show(comparison: Comparison, *, as_json: bool, show_all: bool) -> None:
    if as_json:
        import json

        write(json.dumps(comparison.to_dict()) + "\n", None)
        return
    from cpalloc.cli.console import stdout_console
    from cpalloc.report import comparison_leaves_table, comparison_table

    console = stdout_console()
    console.print(comparison_table(comparison, headline=not show_all))
    if show_all:
        console.print()
        console.print(comparison_leaves_table(comparison))


def _tell_failures(failed: tuple[tuple[Task, Outcome], ...]) -> None:
    _tell_reasons([(t.label, [asdict(issue) for issue in o.issues], o.message, o.details) for t, o in failed])


def _tell_reasons(failed: Sequence[tuple[str, Sequence[Mapping[str, str]], str, str]]) -> None:
    """Tell each reason (issues, or else a message and its details) once, with all it happened to."""
    by_reason: dict[str, list[str]] = {}
    for label, issues, message, details in failed:
        lines = [f"{issue['path']}: {issue['message']} [{issue['code']}]" for issue in issues]
        by_reason.setdefault("\n  ".join(lines or [message, *details.splitlines()]), []).append(label)
    if failed:
        print(f"error: {len(failed)} {'simulation' if len(failed) == 1 else 'simulations'} failed", file=sys.stderr)
    for reason, labels in by_reason.items():
        print(f"{'; '.join(labels)}\n  {reason}", file=sys.stderr)
