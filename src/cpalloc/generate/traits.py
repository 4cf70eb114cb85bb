"""What running and pending jobs have in common: kind, minimum runtime, resumability, timeout, GPU types, topology."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, timedelta
from typing import Any

from cpalloc.generate.cluster import ClusterPlan
from cpalloc.generate.config import GeneratorConfig
from cpalloc.generate.draws import Dice
from cpalloc.generate.sizes import Shape

MINUTE, HOUR, DAY = 60, 3_600, 86_400
"""In seconds."""

PRIORITIES = ("low", "normal", "high", "urgent", "immediate")
_PRIORITY_WEIGHTS = (8, 33, 36, 15, 8)

SMALL_GPUS = 8
"""Most GPUs of an interactive or debug job."""

_MIN_RUNTIMES = (HOUR // 2, HOUR, 2 * HOUR, 4 * HOUR, 8 * HOUR)
_MIN_RUNTIME_WEIGHTS_SMALL = (30, 30, 20, 13, 7)
_MIN_RUNTIME_WEIGHTS_GANG = (8, 17, 30, 27, 18)
_TIMEOUTS = tuple(h * HOUR for h in (1, 2, 4, 8, 12, 24, 48, 96, 168))
_RESTART_COSTS = (0, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 20 * MINUTE)
_CPUS_PER_GPU_SUBNODE = (4, 8, 12, 16, 24)
_CPUS_PER_GPU_NODE = (4, 8, 12, 16)


@dataclass(slots=True)
class Draft:
    """A job before it has an id; times are seconds before ``now``.

    ``fields`` holds what the wire needs besides id, budget and submission; ``running`` too for a running job.
    """

    shape: Shape
    pool: int
    submitted_ago: int = 0
    leaf: int = -1
    min_runtime: int = 0
    accrued_gpu_seconds: int = 0
    mode: str | None = None
    fields: dict[str, Any] = field(default_factory=dict)


class Traits:
    """Draws the common traits; one stream an aspect, so that knobs do not disturb each other."""

    def __init__(self, config: GeneratorConfig, cluster: ClusterPlan, part: str) -> None:
        self._config, self._cluster = config, cluster
        seed = config.seed
        self._kind, self._priority = Dice(seed, f"{part} kind"), Dice(seed, f"{part} priority")
        self._min_runtime, self._resumable = Dice(seed, f"{part} min_runtime"), Dice(seed, f"{part} resumable")
        self._timeout, self._types = Dice(seed, f"{part} timeout"), Dice(seed, f"{part} gpu_types")
        self._topology, self._cpu = Dice(seed, f"{part} topology"), Dice(seed, f"{part} cpu")
        self._largest = {
            (pool, level): cluster.largest_domain(pool, level)
            for pool in range(len(cluster.pools))
            for level in ("rack", "block")
        }

    def required_level(self, shape: Shape, pool: int) -> str | None:
        """Rack or block for part of the gangs that an empty one could hold."""
        asked, rack_first = self._topology.chance(self._config.required_topology), self._topology.chance(0.5)
        if not asked or shape.replicas == 1:
            return None
        fits = [level for level in ("rack", "block") if shape.replicas <= self._largest[pool, level]]
        return None if not fits else fits[0] if rack_first else fits[-1]

    def cpus(self, shape: Shape) -> int:
        """CPUs per replica; whole-node replicas fit lean nodes, smaller ones may use them up before the GPUs."""
        asked = self._cpu.chance(self._config.cpu_bound)
        options = _CPUS_PER_GPU_NODE if shape.gpus == self._config.gpus_per_node else _CPUS_PER_GPU_SUBNODE
        return self._cpu.pick(options) * shape.gpus * asked

    def draft(self, shape: Shape, pool: int, *, level: str | None, cpu: int) -> Draft:
        """Make a job of a shape with the traits that do not depend on whether it runs."""
        draft = Draft(shape, pool)
        fields = draft.fields
        fields["replicas"], fields["gpus_per_replica"] = shape.replicas, shape.gpus
        fields["priority"] = self._priority.pick(PRIORITIES, _PRIORITY_WEIGHTS)
        if cpu:
            fields["resources_per_replica"] = {"cpu": cpu}
        types = self._gpu_types(pool)
        if types:
            fields["gpu_types"] = types
        topology = self._with_preference(shape, level)
        if topology:
            fields["topology"] = topology
        draft.min_runtime = self._kind_and_runtime(shape, fields)
        if self._resumable.chance(self._config.resumable):
            fields["resumable"] = True
            fields["restart_cost"] = self._resumable.pick(_RESTART_COSTS)
        return draft

    def set_timeout(self, draft: Draft, *, elapsed: int) -> None:
        """Give part of the jobs a running time after which they end, not reached yet."""
        asked, beyond = self._timeout.chance(self._config.timeouts), self._timeout.between(0, 2)
        if "timeout" in draft.fields or not asked:
            return
        open_ = [t for t in _TIMEOUTS if t > elapsed and t >= draft.min_runtime]
        if open_:
            draft.fields["timeout"] = open_[min(beyond, len(open_) - 1)]

    def _kind_and_runtime(self, shape: Shape, fields: dict[str, Any]) -> int:
        debug = self._kind.chance(self._config.debug)
        interactive = self._kind.chance(self._config.interactive)
        weights = _MIN_RUNTIME_WEIGHTS_SMALL if shape.replicas == 1 else _MIN_RUNTIME_WEIGHTS_GANG
        runtime = self._min_runtime.pick(_MIN_RUNTIMES, weights)
        if shape.replicas > 1 or shape.size > SMALL_GPUS:
            return runtime
        if debug:
            minutes = 5 * self._kind.between(1, 3)
            fields["timeout"] = self._kind.between(2, 4) * 15 * MINUTE
            return minutes * MINUTE
        if interactive:
            fields["kind"] = "interactive"
            return self._kind.between(1, 4) * HOUR // 2
        return runtime

    def _gpu_types(self, pool: int) -> list[str] | None:
        """Most jobs name their type, some accept a second one, the others any."""
        pools = self._cluster.pools
        choice, other = self._types.between(0, 99), self._types.between(1, max(1, len(pools) - 1))
        if choice < 55:
            return [pools[pool]]
        if choice < 70 and len(pools) > 2:
            return [pools[p] for p in sorted((pool, (pool + other) % len(pools)))]
        return None

    def _with_preference(self, shape: Shape, level: str | None) -> dict[str, str]:
        preferred = self._topology.chance(self._config.preferred_rack)
        if level is not None:
            return {"required": level}
        return {"preferred": "rack"} if preferred and shape.replicas > 1 else {}


def instant(config: GeneratorConfig, ago: int) -> str:
    """Write the instant ``ago`` seconds before the round's ``now`` as RFC 3339 in UTC."""
    return (config.now - timedelta(seconds=ago)).astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"
