"""``cpalloc compare``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cpalloc.cli.failures import ExitCode, told
from cpalloc.cli.files import check_target, write
from cpalloc.cli.watching import watching_many

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
) -> None:
    """Simulate scenarios side by side, over seeds: what changes, and how sure that is."""
    check_target(report, "--report")
    check_target(parquet, "--parquet")
    if address is not None and engine is not EngineName.RAY:
        raise typer.BadParameter("is for --engine ray", param_hint="--address")
    with told(as_json=as_json), _folder(output) as folder:
        what_if = _load(scenarios, seeds)
        tasks, swept = _sweep(what_if, folder, _engine(engine, address, workers))
        comparison = _compare(swept)
        if comparison is not None:
            if parquet is not None:
                from cpalloc.sim.measures.frames import measure_frame

                measure_frame(swept.summaries).write_parquet(parquet)
            if report is not None:
                _write_report(report, what_if.title, comparison, tasks)
            # Last: whoever reads the table may hang up, and what was asked for as a file must not be lost by it.
            _show(comparison, as_json=as_json, show_all=show_all)
    _tell_failures(swept.failed)
    if swept.interrupted:
        rest = "the same command goes on" if output else "with --output it could go on later"
        typer.echo(f"interrupted; {rest}", err=True)
        raise typer.Exit(ExitCode.INTERRUPTED)
    if swept.failed:
        raise typer.Exit(ExitCode.BAD_INPUT if all(outcome.issues for _, outcome in swept.failed) else 1)


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


def _compare(swept: Swept) -> Comparison | None:
    """Compare what is done, to the base or else to the first scenario that has a result."""
    from cpalloc.sim.measures import compare as compare_summaries

    done = {name: runs for name, runs in swept.summaries.items() if runs}
    return compare_summaries(done) if done else None


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


def _write_report(path: Path, title: str, comparison: Comparison, tasks: tuple[Task, ...]) -> None:
    """Draw one seed of each scenario: the first that most of them have."""
    from collections import Counter

    from cpalloc.report import Study, write_report
    from cpalloc.sim.sweep import history_of

    found = dict(zip(comparison.scenarios, comparison.seeds, strict=True))
    (seed, _), *_ = Counter(seed for seeds in found.values() for seed in seeds).most_common(1)
    shown = [task for task in tasks if task.seed == seed and seed in found.get(task.scenario.name, ())]
    histories = {task.scenario.name: history_of(task) for task in shown}
    # The timeline puts the same nodes side by side, so that another cluster stands in the tables only.
    nodes = next(iter(histories.values())).node_names
    same = {name: history for name, history in histories.items() if history.node_names == nodes}
    write_report(path, [Study(comparison, same)], title=title)


def _tell_failures(failed: tuple[tuple[Task, Outcome], ...]) -> None:
    """Tell each reason once, with all it happened to."""
    by_reason: dict[str, list[str]] = {}
    for task, outcome in failed:
        issues = [f"{issue.path}: {issue.message} [{issue.code}]" for issue in outcome.issues]
        reason = "\n  ".join(issues or [outcome.message, *outcome.details.splitlines()])
        by_reason.setdefault(reason, []).append(task.label)
    if failed:
        print(f"error: {len(failed)} {'simulation' if len(failed) == 1 else 'simulations'} failed", file=sys.stderr)
    for reason, labels in by_reason.items():
        print(f"{'; '.join(labels)}\n  {reason}", file=sys.stderr)
