"""Reading a what-if: everything that is wrong with it at once, before it takes a place in the queue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cpalloc.api.body import parse_object
from cpalloc.api.settings import Settings
from cpalloc.api.what_if.inline import Inliner, Origins
from cpalloc.errors import InputError, Issue

if TYPE_CHECKING:
    from cpalloc.sim.scenario import Scenario
    from cpalloc.sim.sweep import Task
    from cpalloc.sim.what_if import WhatIf

TITLE = "What if"
"""Title of a what-if that has none."""

_DAY_S = 86_400


def read_what_if(body: bytes, folder: Path, settings: Settings) -> tuple[str, tuple[Task, ...], Origins]:
    """Read the body of a request, and put its workload into a folder.

    Returns
    -------
    tuple
        The title, the runs, and where the content of the files came from.

    Raises
    ------
    InputError
        With every issue, as far as one does not hide the others.
    """
    from cpalloc.sim.sweep import plan

    try:
        document = parse_object(body)
        inliner = Inliner(folder)
        what_if = _read(document, inliner, settings)
        tasks = plan(what_if.scenarios, folder / "results")
    except RecursionError:
        raise InputError([Issue("json", "", "is nested too deeply")]) from None
    return what_if.title, tasks, inliner.origins


def _read(document: Mapping[str, Any], inliner: Inliner, settings: Settings) -> WhatIf:
    from cpalloc.sim.what_if import parse_what_if

    base, changes = document.get("base"), document.get("scenario", [])
    if isinstance(changes, list) and len(changes) >= settings.what_if_max_runs:
        raise InputError([_too_many(len(changes) + 1, settings)])  # before each of them is read
    inlined = dict(document)
    if isinstance(base, Mapping):
        inlined["base"] = inliner.base(base)
    if isinstance(changes, list):
        inlined["scenario"] = [
            inliner.change(change, f"scenario[{i}]") if isinstance(change, Mapping) else change
            for i, change in enumerate(changes)
        ]
    issues = [*inliner.issues, *_title_issues(document.get("title", TITLE))]
    try:
        what_if = parse_what_if(inlined, folder=inliner.origins.folder, title=TITLE)
    except InputError as error:
        raise InputError([*issues, *error.issues]) from None
    issues += _size_issues(what_if.scenarios, settings)
    issues += _lab_issues(inliner, settings)
    if not issues:
        issues += _trace_issues(what_if.scenarios[0], inliner.origins)
    if issues:
        raise InputError(issues)
    return what_if


def _title_issues(title: object) -> Iterator[Issue]:
    if isinstance(title, str) and not (len(title) <= 200 and title.isprintable()):
        yield Issue("pattern", "title", "must be at most 200 printable characters, in one line")


def _too_many(runs: int, settings: Settings) -> Issue:
    most = settings.what_if_max_runs
    message = f"makes {runs:,} runs with all seeds, and the service takes {most:,}; have fewer scenarios or seeds"
    return Issue("too_many", "scenario", message)


def _size_issues(scenarios: Sequence[Scenario], settings: Settings) -> Iterator[Issue]:
    """What would keep the service busy for too long."""
    runs = sum(len(s.seeds) for s in scenarios)
    if runs > settings.what_if_max_runs:
        yield _too_many(runs, settings)
    most = settings.what_if_max_days
    base_s = scenarios[0].until
    for i, until_s in enumerate(s.until for s in scenarios):
        where = f"scenario[{i - 1}].until" if i else "base.until"
        if i and until_s == base_s:
            continue  # as the base has it, which is told
        if until_s is None:
            yield Issue("missing", where, f"is required here: until when to simulate, at most {most} days")
        elif until_s > most * _DAY_S:
            days = until_s / _DAY_S
            yield Issue("range", where, f"is {days:,.0f} days, and the service simulates at most {most}")


def _lab_issues(inliner: Inliner, settings: Settings) -> Iterator[Issue]:
    if inliner.lab is not None and inliner.lab.days > settings.what_if_max_days:
        message = f"is {inliner.lab.days:,} days, and the service draws at most {settings.what_if_max_days}"
        yield Issue("range", "base.workload.lab.days", message)


def _trace_issues(base: Scenario, origins: Origins) -> Sequence[Issue]:
    """Read a trace once: its cells and the cluster, as labs are checked by their form alone."""
    from cpalloc.sim.files import read_events
    from cpalloc.sim.lab import SUFFIXES
    from cpalloc.sim.traces import read_trace

    source = base.workload
    if source.path.suffix in SUFFIXES:
        return ()
    try:
        trace = read_trace(source.path, source.format, nodes=source.nodes, gpus_per_node=source.gpus_per_node)
        if source.events is not None:
            read_events(source.events, trace.as_workload())
    except InputError as error:
        return [origins.issue(issue) for issue in error.issues]
    return ()
