"""What a synthetic round should look like: the knobs, their defaults and their limits."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from cpalloc.errors import InputError, Issue

DEFAULT_NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
"""The instant of a round where none is given; fixed, so that rounds repeat."""

MAX_GPUS = 10**6
"""Most GPUs a round may have (wire format)."""

THREE_TYPES_FROM = 256
"""Nodes from which the mixed family has a third GPU type."""

_SHARES = (
    "fill",
    "borrowed",
    "protected",
    "promoted",
    "starting",
    "draining",
    "down",
    "unhealthy",
    "required_topology",
    "preferred_rack",
    "timeouts",
    "resumable",
    "interactive",
    "debug",
    "any_funding",
    "sweeps",
    "capped_budgets",
    "misfits",
    "odd_sizes",
    "cpu_bound",
)


class Family(StrEnum):
    """What kind of cluster and queue: many small jobs on several GPU types, or mostly large gangs on one."""

    MIXED = "mixed"
    GANG_HEAVY = "gang-heavy"


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorConfig:
    """Knobs of a synthetic round; equal configurations give equal documents.

    Every aspect draws from a random stream of its own, so turning one knob leaves the rest as far as it can.

    Parameters
    ----------
    nodes, gpus_per_node, nodes_per_rack, racks_per_block : int
        Size of the cluster and of its domains; the last rack and block may be partial.
    seed : int
        Another seed, another round of the same kind.
    family : Family
        ``mixed`` or ``gang-heavy``.
    gpu_types : tuple of str, optional
        One pool each, largest first. By default h100 and a100 (from 256 nodes b200 as well), or h100 when gang-heavy.
        A cluster with fewer racks than types has only the first ones.
    demand : float
        GPUs of all jobs, running and pending, over GPUs in service.
    fill : float
        GPUs held by running jobs over healthy GPUs of the nodes that are not down.
    budgets : int
        Leaves of the funding tree.
    capped_budgets : float
        Share of the leaves with a cap, alternately on allocated and on borrowed GPUs.
    borrowed : float
        Share of the held GPUs whose job runs borrowed.
    protected : float
        Share of the allocated running jobs that are younger than their minimum runtime.
    promoted, starting : float
        Shares of the allocated running jobs that began borrowed, and that are placed but not up yet.
    draining, down : float
        Shares of the nodes.
    unhealthy : float
        Share of the GPUs; running jobs stay off them.
    required_topology : float
        Share of the multi-node gangs that must lie in one rack or block; only where an empty domain could hold them.
    preferred_rack : float
        Share of the other multi-node gangs that would like to lie in one rack.
    timeouts, resumable : float
        Shares of the jobs that end at a running time (debug jobs all do), and that survive a preemption.
    interactive, debug : float
        Shares of the one-replica jobs of at most 8 GPUs.
    any_funding : float
        Share of the pending jobs that would also run borrowed.
    sweeps : float
        Share of the pending jobs that belong to borrowed sweeps: several equal small jobs submitted together.
    misfits : float
        Share of the pending jobs that can never start or are inadmissible; only from 256 nodes.
    odd_sizes : float
        Share of the jobs with replicas of 3, 5 or 6 GPUs (those that a node has); sizes are powers of two otherwise.
    cpu_bound : float
        Above 0 every node states its CPUs; this share of the nodes has few of them and this share of the jobs asks
        for some, so that CPUs can bind before GPUs.
    now : datetime
        The instant of the round, aware.
    time_limit : int
        ``options.time_limit``, seconds.

    Raises
    ------
    InputError
        When a knob is out of its range; all of them are listed.

    Examples
    --------
    >>> GeneratorConfig(nodes=256).pools
    ('h100', 'a100', 'b200')
    >>> GeneratorConfig(family="gang-heavy").family
    <Family.GANG_HEAVY: 'gang-heavy'>
    """

    nodes: int = 64
    seed: int = 0
    family: Family | str = Family.MIXED
    gpus_per_node: int = 8
    gpu_types: tuple[str, ...] | None = None
    nodes_per_rack: int = 8
    racks_per_block: int = 8
    demand: float = 2.5
    fill: float = 0.95
    budgets: int = 15
    capped_budgets: float = 0.15
    borrowed: float = 0.25
    protected: float = 0.5
    promoted: float = 0.1
    starting: float = 0.01
    draining: float = 0.01
    down: float = 0.005
    unhealthy: float = 0.002
    required_topology: float = 0.3
    preferred_rack: float = 0.4
    timeouts: float = 0.3
    resumable: float = 0.7
    interactive: float = 0.05
    debug: float = 0.06
    any_funding: float = 0.1
    sweeps: float = 0.15
    misfits: float = 0.005
    odd_sizes: float = 0.0
    cpu_bound: float = 0.0
    now: datetime = DEFAULT_NOW
    time_limit: int = 5

    def __post_init__(self) -> None:
        issues = [
            Issue("range", name, f"is {getattr(self, name)}; must be 0 to 1")
            for name in _SHARES
            if not 0 <= getattr(self, name) <= 1
        ]
        issues += [
            Issue("range", name, f"is {getattr(self, name)}; must be at least 1")
            for name in ("nodes", "gpus_per_node", "nodes_per_rack", "racks_per_block", "budgets", "time_limit")
            if getattr(self, name) < 1
        ]
        if self.nodes * self.gpus_per_node > MAX_GPUS:
            issues.append(Issue("range", "nodes", f"has more than {MAX_GPUS} GPUs in all; ask for fewer"))
        if self.seed < 0:
            issues.append(Issue("range", "seed", "must not be negative"))
        if not 0 <= self.demand <= 100:
            issues.append(Issue("range", "demand", f"is {self.demand}; must be 0 to 100 times the GPUs in service"))
        if self.family not in set(Family):
            issues.append(Issue("choice", "family", f"is {self.family!r}; must be one of {', '.join(Family)}"))
        if self.gpu_types is not None and (not self.gpu_types or len(set(self.gpu_types)) != len(self.gpu_types)):
            issues.append(Issue("choice", "gpu_types", "must name at least one type, each once"))
        if self.now.tzinfo is None:
            issues.append(Issue("instant", "now", "must carry an offset; give the datetime a tzinfo"))
        if issues:
            raise InputError(issues)
        object.__setattr__(self, "family", Family(self.family))

    @property
    def pools(self) -> tuple[str, ...]:
        """GPU types, largest pool first."""
        if self.gpu_types is not None:
            return self.gpu_types
        if self.family is Family.GANG_HEAVY:
            return ("h100",)
        return ("h100", "a100", "b200") if self.nodes >= THREE_TYPES_FROM else ("h100", "a100")
