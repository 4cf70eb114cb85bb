"""GPUs held on nodes that are not in service: work that is let finish on draining nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cpalloc.schema import Node
from cpalloc.schema.types import NodeState
from cpalloc.sim.history import History, IntArray


@dataclass(frozen=True, slots=True)
class Absence:
    """A node out of service from ``start_s`` to ``end_s``: draining or down. ``node`` is an index."""

    node: int
    start_s: int
    end_s: int
    state: NodeState


@dataclass(frozen=True, slots=True)
class Stays:
    """Stretches of time in which run ``run`` held ``gpus`` GPUs; shape (S,) each."""

    run: IntArray
    start_s: IntArray
    end_s: IntArray
    gpus: IntArray


def absences(history: History, nodes: Sequence[Node]) -> list[Absence]:
    """When which node was not ready within the history, in order of node and time."""
    number = {node.name: i for i, node in enumerate(nodes)}
    changes: list[list[tuple[int, NodeState]]] = [[(history.start_s, node.state)] for node in nodes]
    for event in sorted(history.workload.node_events, key=lambda e: e.at_s):
        changes[number[event.node]].append((event.at_s, event.state))
    found = []
    for n, steps in enumerate(changes):
        ends = [at for at, _ in steps[1:]] + [history.end_s]
        for (at, state), until in zip(steps, ends, strict=True):
            start, end = max(at, history.start_s), min(until, history.end_s)
            if state is not NodeState.READY and start < end:
                found.append(Absence(n, start, end, state))
    return found


def stays_off_service(history: History, nodes: Sequence[Node], run_end_s: IntArray) -> Stays:
    """The parts of all runs that lie on nodes while those are not ready.

    Parameters
    ----------
    run_end_s : IntArray, shape (R,)
        Ends of the runs, open ones at the end of the history.
    """
    places, first = history.places, history.runs.first_place
    run_of = np.repeat(np.arange(len(run_end_s)), np.diff(first))
    by_node = np.argsort(places.node, kind="stable")
    cuts = np.searchsorted(places.node[by_node], np.arange(len(nodes) + 1))
    parts: list[tuple[IntArray, IntArray, IntArray, IntArray]] = []
    for gap in absences(history, nodes):
        rows = by_node[cuts[gap.node] : cuts[gap.node + 1]]
        run = run_of[rows]
        start = np.maximum(history.runs.start_s[run], gap.start_s)
        end = np.minimum(run_end_s[run], gap.end_s)
        held = start < end
        parts.append((run[held], start[held], end[held], places.gpus[rows[held]]))
    none = np.zeros(0, dtype=np.int64)
    columns = zip(*parts, strict=True) if parts else [(none,)] * 4
    return Stays(*(np.concatenate(column) for column in columns))
