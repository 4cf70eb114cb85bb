"""What happens to a lab's nodes: failures at a constant rate, and planned drains of racks."""

from __future__ import annotations

from collections.abc import Sequence

from cpalloc.schema.types import NodeState
from cpalloc.sim.lab.config import LabConfig
from cpalloc.sim.lab.streams import draw_spread, stream
from cpalloc.sim.workload import NodeEvent

_MONTH_D = 30
_DAY_S = 86_400

Outage = tuple[int, int, int, int]
"""Node, begin of draining, begin of being down, end; draining and down may begin at once."""


def make_events(config: LabConfig, names: Sequence[str], seed: int) -> tuple[NodeEvent, ...]:
    """Drains, failures and repairs of the nodes, in order of time.

    Planned drains come first; a failure of a node that is out of service anyway is not counted.
    """
    outages = _drains(config, seed)
    for outage in _failures(config, seed):
        if all(outage[0] != o[0] or outage[3] < o[1] or o[3] < outage[1] for o in outages):
            outages.append(outage)
    events: list[NodeEvent] = []
    for node, draining_s, down_s, end_s in outages:
        if draining_s < down_s:
            events.append(NodeEvent(draining_s, names[node], NodeState.DRAINING))
        events.append(NodeEvent(down_s, names[node], NodeState.DOWN))
        events.append(NodeEvent(end_s, names[node], NodeState.READY))
    return tuple(sorted(events, key=lambda e: (e.at_s, e.node)))


def _drains(config: LabConfig, seed: int) -> list[Outage]:
    """Racks one after the other in random order, each on a day of its own as long as days last."""
    rng = stream(seed, "drains")
    per_rack, nodes = config.cluster.nodes_per_rack, config.cluster.nodes
    racks = -(-nodes // per_rack)
    count = min(round(config.drains.racks_per_month * config.days / _MONTH_D), racks, config.days)
    days = rng.permutation(config.days)[:count]
    chosen = rng.permutation(racks)[:count]
    works = draw_spread(rng, config.drains.work, count)
    outages: list[Outage] = []
    for day, rack, work in zip(days.tolist(), chosen.tolist(), works.tolist(), strict=True):
        begin = day * _DAY_S + (config.drains.hour - config.start.hour) % 24 * 3_600
        down = begin + config.drains.notice
        outages += [(n, begin, down, down + work) for n in range(rack * per_rack, min(nodes, (rack + 1) * per_rack))]
    return outages


def _failures(config: LabConfig, seed: int) -> list[Outage]:
    rng = stream(seed, "failures")
    span_s = config.days * _DAY_S
    count = int(rng.poisson(config.failures.per_node_month * config.cluster.nodes * config.days / _MONTH_D))
    nodes = rng.integers(0, config.cluster.nodes, size=count).tolist()
    begins = sorted(rng.integers(0, span_s, size=count).tolist())
    repairs = draw_spread(rng, config.failures.repair, count).tolist()
    noticed = (rng.random(count) < config.failures.drained_share).tolist()
    outages: list[Outage] = []
    for node, begin, repair, drained in zip(nodes, begins, repairs, noticed, strict=True):
        down = begin + config.drains.notice if drained else begin
        outages.append((node, begin, down, down + repair))
    return outages
