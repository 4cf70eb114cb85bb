"""``cpalloc simulate``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cpalloc.cli.failures import ExitCode, told
from cpalloc.cli.files import check_target, write
from cpalloc.cli.watching import watching_one

if TYPE_CHECKING:
    from cpalloc.sim.history import History
    from cpalloc.sim.scenario import Scenario

_LIST = "list"
_WORKLOAD = "Workload"
_RESULTS = "Results"


def list_policies(value: str) -> str:
    """Print the policies, if that is what is asked for, and exit."""
    if value == _LIST:
        from cpalloc.sim.policies.registry import POLICIES

        width = max(map(len, POLICIES))
        for name, kind in POLICIES.items():
            typer.echo(f"{name:{width}}  {kind.line}\n{'':{width}}  takes {', '.join(kind.takes)}")
        raise typer.Exit
    return value


def simulate(
    workload: Annotated[Path, typer.Argument(metavar="WORKLOAD", help="A lab (TOML), a trace, or a saved workload.")],
    policy: Annotated[
        str,
        typer.Option(
            metavar="NAME|list",
            callback=list_policies,
            is_eager=True,
            help="cpalloc, fair-share, priority, partition, fifo, sjf or srtf; list: what they are.",
        ),
    ],
    seed: Annotated[int, typer.Option(min=0, help="Of the lab or the recipe, of copies of jobs, and the solver.")] = 0,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="When to stop, e.g. 30d; else at the end.")] = None,
    round_interval: Annotated[
        str | None, typer.Option(metavar="TIME", help="Rounds so far apart, e.g. 60s; else one at every event.")
    ] = None,
    heartbeat: Annotated[
        str | None, typer.Option(metavar="TIME", help="While jobs wait, a round at least so often.")
    ] = None,
    warm_up: Annotated[str | None, typer.Option(metavar="TIME", help="Measure nothing before, e.g. 2d.")] = None,
    placement: Annotated[str | None, typer.Option(help="consolidate, best-fit or fgd; not for all policies.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Any other key of a scenario, e.g. window=3d, policy.depth=8, weights.science=50; repeat it.",
        ),
    ] = None,
    nodes: Annotated[
        float | None, typer.Option(metavar="FACTOR", help="So many times the nodes.", rich_help_panel=_WORKLOAD)
    ] = None,
    demand: Annotated[
        float | None, typer.Option(metavar="FACTOR", help="So many times the work.", rich_help_panel=_WORKLOAD)
    ] = None,
    format: Annotated[
        str | None, typer.Option(help="Format of a trace; else its header tells.", rich_help_panel=_WORKLOAD)
    ] = None,
    nodes_file: Annotated[
        str | None,
        typer.Option(metavar="FILE|N", help="Nodes of a trace's cluster, or their number.", rich_help_panel=_WORKLOAD),
    ] = None,
    recipe: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="What a trace lacks (TOML); else as by default.", rich_help_panel=_WORKLOAD),
    ] = None,
    events: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Drains and failures (CSV: at,node,state).", rich_help_panel=_WORKLOAD),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Keep the simulation here while it runs.", rich_help_panel=_RESULTS),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the checkpoint if there is one.", rich_help_panel=_RESULTS)
    ] = False,
    history: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep all that happened (.cph).", rich_help_panel=_RESULTS)
    ] = None,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page with pictures (HTML).", rich_help_panel=_RESULTS)
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Measures in JSON instead of tables.", rich_help_panel=_RESULTS)
    ] = False,
) -> None:
    """Replay a workload under a policy, and measure what came of it."""
    check_target(history, "--history")
    check_target(report, "--report")
    check_target(checkpoint, "--checkpoint")
    if resume and checkpoint is None:
        raise typer.BadParameter("needs --checkpoint", param_hint="--resume")
    source = {"path": str(workload), "format": format, "nodes": _file_or_number(nodes_file), "events": events}
    given = {
        "name": workload.stem,
        "workload": {key: value for key, value in source.items() if value is not None},
        "policy": {"name": policy, **({"placement": placement} if placement else {})},
        "until": until,
        "round_interval": round_interval,
        "heartbeat": heartbeat,
        "warm_up": warm_up,
        "nodes": nodes,
        "demand": demand,
    }
    with told(as_json=as_json):
        scenario = _scenario({key: value for key, value in given.items() if value is not None}, recipe, settings or [])
        found = _run(scenario, seed, checkpoint, resume=resume)
        if history is not None:
            from cpalloc.sim.keep import write_history

            write_history(found, history)
        if report is not None:
            from cpalloc.report import Study, write_report

            write_report(report, [Study.of({found.policy: found})], title=f"{found.policy} on {found.workload.name}")
        # Last: whoever reads the table may hang up, and what was asked for as a file must not be lost by it.
        _show(found, as_json=as_json)
    if found.interrupted:
        rest = "--resume goes on" if checkpoint else "with --checkpoint it could go on later"
        typer.echo(f"interrupted at day {found.end_s / 86_400:.2f}; {rest}", err=True)
        raise typer.Exit(ExitCode.INTERRUPTED)


def _scenario(given: dict[str, Any], recipe: Path | None, settings: list[str]) -> Scenario:
    from cpalloc.sim.scenario import parse_scenario
    from cpalloc.sim.what_if import changed, load_toml

    if recipe is not None:
        given = changed(given, {"workload": {"recipe": load_toml(recipe)}})
    for setting in settings:
        given = changed(given, _setting(setting))
    return parse_scenario(given)


def _setting(text: str) -> dict[str, Any]:
    """Read ``key=value`` as a line of TOML; a value that is none is taken for text."""
    import tomllib

    key, equals, value = text.partition("=")
    for line in (f"{key} = {value}", f"{key} = '{value}'"):
        try:
            if equals:
                return tomllib.loads(line)
        except tomllib.TOMLDecodeError:
            continue
    raise typer.BadParameter(f"`{text}` is not KEY=VALUE, as in window=3d", param_hint="--set")


def _file_or_number(text: str | None) -> str | int | None:
    return int(text) if text is not None and text.isdecimal() else text


def _run(scenario: Scenario, seed: int, checkpoint: Path | None, *, resume: bool) -> History:
    import threading

    from cpalloc.sim.interrupt import heard
    from cpalloc.sim.run import run_scenario

    what = f"{scenario.policy.name} on {scenario.name}"
    try:
        with watching_one(what) as progress, heard(threading.Event(), listen=True) as stop:
            return run_scenario(scenario, seed, progress=progress, cancel=stop, checkpoint=checkpoint, resume=resume)
    except KeyboardInterrupt:  # the second Ctrl-C; the first only asks to stop
        raise typer.Exit(ExitCode.INTERRUPTED) from None


def _show(history: History, *, as_json: bool) -> None:
    import json

    from cpalloc.sim.measures import summary

    found = summary(history)
    if as_json:
        write(json.dumps(found.to_dict()) + "\n", None)
        return
    from cpalloc.cli.console import stdout_console
    from cpalloc.report import leaves_table, summary_table

    console = stdout_console()
    for table in (summary_table(found), leaves_table(found)):
        console.print(table)
        console.print()
    for note in found.notes:
        console.print(f"- {note}", style="dim", markup=False)
