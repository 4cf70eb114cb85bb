"""The cluster of a synthetic round: nodes in racks in blocks, one GPU type a block or rack, a few out of order."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from cpalloc.generate.config import GeneratorConfig
from cpalloc.generate.draws import Dice

IntArray = npt.NDArray[np.int64]

LEVELS = ("block", "rack")
"""Topology levels, coarse to fine."""

CPUS_PER_GPU = 32
"""CPUs per GPU on a node with plenty of them; half as many on a lean one."""

_POOL_WEIGHTS = (5, 3, 2)
_STATES = ("ready", "draining", "down")


@dataclass(frozen=True)
class ClusterPlan:
    """The nodes of a round as arrays of length N.

    ``pool``, ``rack`` and ``block`` number the node's GPU type and domains; ``state`` indexes ready, draining, down.
    ``healthy[n]`` lists the healthy devices. ``cpus`` is None where nodes state no CPUs.
    """

    config: GeneratorConfig
    pools: tuple[str, ...]
    pool: IntArray
    rack: IntArray
    block: IntArray
    state: IntArray
    healthy: tuple[tuple[int, ...], ...]
    cpus: IntArray | None

    @cached_property
    def healthy_gpus(self) -> IntArray:
        """Healthy GPUs of each node, whatever its state."""
        return np.array([len(h) for h in self.healthy], dtype=np.int64)

    @cached_property
    def in_service(self) -> int:
        """Healthy GPUs of ready nodes."""
        return int(self.healthy_gpus[self.state == 0].sum())

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Node names, such as ``b00/r03/n05``."""
        width = _width(self.config.nodes_per_rack)
        per_rack = self.config.nodes_per_rack
        return tuple(f"{self.rack_name(int(r))}/n{i % per_rack:0{width}}" for i, r in enumerate(self.rack))

    def block_name(self, block: int) -> str:
        """Name of a block, such as ``b00``."""
        return f"b{block:0{_width(int(self.block[-1]) + 1)}}"

    def rack_name(self, rack: int) -> str:
        """Name of a rack, such as ``b00/r03``."""
        block, i = divmod(rack, self.config.racks_per_block)
        return f"{self.block_name(block)}/r{i:0{_width(self.config.racks_per_block)}}"

    def in_service_of(self, pool: int) -> int:
        """Healthy GPUs of the ready nodes of one pool."""
        return int(self.healthy_gpus[(self.state == 0) & (self.pool == pool)].sum())

    def largest_domain(self, pool: int, level: str) -> int:
        """Most whole ready nodes of one pool in any domain of a level."""
        whole = (self.state == 0) & (self.pool == pool) & (self.healthy_gpus == self.config.gpus_per_node)
        domains = (self.rack if level == "rack" else self.block)[whole]
        return int(np.bincount(domains).max()) if domains.size else 0

    def wire(self) -> dict[str, Any]:
        """The ``cluster`` of the wire format."""
        return {
            "name": f"synthetic-{self.config.family}-{self.config.nodes}",
            "levels": list(LEVELS),
            "nodes": [self._node(n) for n in range(len(self.pool))],
        }

    def _node(self, n: int) -> dict[str, Any]:
        node: dict[str, Any] = {
            "name": self.names[n],
            "gpu_type": self.pools[int(self.pool[n])],
            "gpus": self.config.gpus_per_node,
            "domains": {"block": self.block_name(int(self.block[n])), "rack": self.rack_name(int(self.rack[n]))},
        }
        if self.state[n]:
            node["state"] = _STATES[int(self.state[n])]
        if len(self.healthy[n]) < self.config.gpus_per_node:
            healthy = self.healthy[n]
            node["unhealthy_gpus"] = [d for d in range(self.config.gpus_per_node) if d not in healthy]
        if self.cpus is not None:
            node["resources"] = {"cpu": int(self.cpus[n])}
        return node


def plan_cluster(config: GeneratorConfig) -> ClusterPlan:
    """Lay out the cluster of a configuration."""
    index = np.arange(config.nodes, dtype=np.int64)
    rack = index // config.nodes_per_rack
    block = rack // config.racks_per_block
    by_block = int(block[-1]) + 1 >= len(config.pools)
    unit = block if by_block else rack
    type_of_unit = _types_of_units(int(unit[-1]) + 1, len(config.pools))
    used = max(type_of_unit) + 1
    return ClusterPlan(
        config=config,
        pools=config.pools[:used],
        pool=np.array(type_of_unit, dtype=np.int64)[unit],
        rack=rack,
        block=block,
        state=_states(config),
        healthy=_healthy(config),
        cpus=_cpus(config),
    )


def _types_of_units(units: int, types: int) -> list[int]:
    """Give consecutive blocks (or racks) to the types by weight, at least one each while there are enough."""
    types = min(types, units)
    weights = [_POOL_WEIGHTS[min(t, len(_POOL_WEIGHTS) - 1)] for t in range(types)]
    spare, total = units - types, sum(weights)
    counts = [1 + spare * w // total for w in weights]
    by_remainder = sorted(range(types), key=lambda t: (-(spare * weights[t] % total), t))
    for t in by_remainder[: units - sum(counts)]:
        counts[t] += 1
    return [t for t, count in enumerate(counts) for _ in range(count)]


def _states(config: GeneratorConfig) -> IntArray:
    dice = Dice(config.seed, "node states")
    order = dice.shuffled(config.nodes)
    draining, down = dice.amount(config.draining, config.nodes), dice.amount(config.down, config.nodes)
    state = np.zeros(config.nodes, dtype=np.int64)
    state[order[:draining]] = 1
    state[order[draining : draining + down]] = 2
    return state


def _healthy(config: GeneratorConfig) -> tuple[tuple[int, ...], ...]:
    dice = Dice(config.seed, "unhealthy GPUs")
    total = config.nodes * config.gpus_per_node
    order = dice.shuffled(total)
    ill = np.zeros(total, dtype=np.bool_)
    ill[order[: dice.amount(config.unhealthy, total)]] = True
    rows = ill.reshape(config.nodes, config.gpus_per_node)
    return tuple(tuple(np.flatnonzero(~row).tolist()) for row in rows)


def _cpus(config: GeneratorConfig) -> IntArray | None:
    if not config.cpu_bound:
        return None
    dice = Dice(config.seed, "node CPUs")
    plenty = CPUS_PER_GPU * config.gpus_per_node
    return np.array([plenty // (1 + dice.chance(config.cpu_bound)) for _ in range(config.nodes)], dtype=np.int64)


def _width(count: int) -> int:
    return max(2, len(str(count - 1)))
