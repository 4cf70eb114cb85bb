"""The inside of a round: read-only arrays sorted by id, and the decision taken on them.

Instants are integer microseconds since the Unix epoch (``*_us``), durations integer seconds (``*_s``), amounts whole
GPUs or GPU-seconds. ``-1`` stands for "none" in index and duration arrays. Everything is sorted (nodes by name, jobs
by id, leaves by name), so that the order of the request's lists cannot matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from fractions import Fraction
from typing import TypeVar, cast

import numpy as np
import numpy.typing as npt

from cpalloc.topology import Topology

T = TypeVar("T")

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

US = 1_000_000
"""Microseconds in a second."""


class NodeState(IntEnum):
    """State of a node; only ready nodes take new work and are in service."""

    READY = 0
    DRAINING = 1
    DOWN = 2


class JobState(IntEnum):
    """What may happen to a job this round, settled before anything is decided."""

    PENDING = 0
    """Waits or starts."""
    REFUSED = 1
    """Pending, waits whatever else is decided; ``Problem.refusals`` says why."""
    FIXED = 2
    """Running and stays: protected, shielded by its budget's ratio, or on an absent node."""
    EVICTABLE = 3
    """Running; rules 1-3 of policy section 4 allow its preemption."""
    DRAINED = 4
    """Running, past protection on a draining node: preempted, forced."""
    STOPPING = 5
    """Already told to stop and still there: stays ``preempt``, its GPUs are given to nobody."""
    LOST = 6
    """Ran on a node that is down."""


class Mode(IntEnum):
    """How a job runs."""

    NONE = 0
    ALLOCATED = 1
    BORROWED = 2


class Action(IntEnum):
    """What the round decides for a job."""

    WAIT = 0
    START = 1
    KEEP = 2
    PREEMPT = 3
    LOST = 4


@dataclass(frozen=True, slots=True)
class Replica:
    """One replica's place: ``node`` index (-1: absent from the snapshot), GPU count, device bitmask (-1: unknown)."""

    node: int
    gpus: int
    devices: int


@dataclass(frozen=True, slots=True)
class Nodes:
    """Nodes sorted by name; all arrays have length N.

    ``free_gpus``: GPUs a start may use if nothing is preempted voluntarily: healthy, on a ready node, not held by a
    job that stays or is stopping; forced ends have left. 0 on nodes that are not ready.
    ``free_devices``: the same as a bitmask, -1 where the node holds unknown devices.
    ``free_resources[n, r]``, ``resources[n, r]``: amounts of ``Problem.resource_names[r]`` free and in total.
    ``groups[n]``: bitmasks of the node's GPU groups; one mask of all GPUs where none are given.
    ``company``: a job that stays whatever is decided (or is stopping) runs there: no place for exclusive jobs.
    """

    names: tuple[str, ...]
    pool: IntArray
    state: IntArray
    gpus: IntArray
    healthy: IntArray
    healthy_devices: tuple[int, ...]
    free_gpus: IntArray
    free_devices: tuple[int, ...]
    resources: IntArray
    free_resources: IntArray
    groups: tuple[tuple[int, ...], ...]
    unknown_devices: BoolArray
    company: BoolArray


@dataclass(frozen=True, slots=True)
class Jobs:
    """Jobs sorted by id; all arrays have length J.

    ``leaf`` indexes ``Budgets`` leaves (-1: unknown budget). ``required_level`` / ``preferred_level`` index
    ``Topology.levels`` (required 0 = cluster; preferred -1 = none). ``eligibility`` indexes ``Problem.eligibility``.
    ``may_allocate`` / ``may_borrow``: modes a pending job may start in. ``may_promote``: a running borrowed job that
    may become allocated in place. ``mode``: mode of running jobs. ``protected_until_us``: end of the protection of
    allocated running jobs. ``allocated_since_us``, ``started_us``, ``checkpointed_us``, ``placed_us``: -1 = none.
    ``rank``: position in the order across budgets (0 = best), over pending jobs that may start; -1 otherwise.
    ``order``: position in the order inside the budget (policy section 5), over all jobs of the leaf.
    ``lost_gpu_seconds``: GPUs x lost work if it ended now; ``preempt_cost``: GPUs x (lost work + restart_cost).
    ``max_per_node``: 0 = no limit. ``min_runtime_s``: after the harmless reading (clipped for running jobs).
    """

    ids: tuple[str, ...]
    state: IntArray
    leaf: IntArray
    submitted_us: IntArray
    priority: IntArray
    interactive: BoolArray
    replicas: IntArray
    gpus_per_replica: IntArray
    size: IntArray
    resources: IntArray
    max_per_node: IntArray
    exclusive: BoolArray
    same_gpu_group: BoolArray
    eligibility: IntArray
    required_level: IntArray
    preferred_level: IntArray
    min_runtime_s: IntArray
    timeout_s: IntArray
    restart_cost_s: IntArray
    resumable: BoolArray
    may_allocate: BoolArray
    may_borrow: BoolArray
    may_promote: BoolArray
    mode: IntArray
    protected: BoolArray
    protected_until_us: IntArray
    started_us: IntArray
    placed_us: IntArray
    allocated_since_us: IntArray
    checkpointed_us: IntArray
    lost_gpu_seconds: IntArray
    preempt_cost: IntArray
    rank: IntArray
    order: IntArray
    placement: tuple[tuple[Replica, ...], ...]

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class Held:
    """What evictable jobs hold, one row per (job, node): preempting ``job`` frees ``gpus`` on ``node``.

    ``gpus`` leaves out unhealthy GPUs and GPUs shared with a stopping job, and is everything free or held on the node
    for a job with exclusive nodes; ``devices`` is the mask of them (-1 unknown); ``resources[row, r]`` likewise.
    """

    job: IntArray
    node: IntArray
    gpus: IntArray
    devices: tuple[int, ...]
    resources: IntArray


@dataclass(frozen=True, slots=True)
class Budgets:
    """The funding tree. Vertices sorted by name; leaves are numbered in name order among themselves.

    ``parent[v]`` (-1: root). ``leaf_vertex[l]`` is the vertex of leaf ``l``; ``leaves_below[v]`` its leaves.
    Per leaf: ``share`` (exact), ``owed``, ``charged`` in GPU-seconds, ``demand``, ``claim``, ``entitled``,
    ``protected`` in GPUs (policy section 3). ``max_gpus``, ``max_borrowed`` per vertex, -1 = no cap.
    """

    names: tuple[str, ...]
    parent: IntArray
    leaf_vertex: IntArray
    leaves_below: tuple[tuple[int, ...], ...]
    share: tuple[Fraction, ...]
    owed: IntArray
    charged: IntArray
    demand: IntArray
    protected: IntArray
    claim: IntArray
    entitled: IntArray
    max_gpus: IntArray
    max_borrowed: IntArray

    @property
    def leaf_names(self) -> tuple[str, ...]:
        """Names of the leaves, in leaf order."""
        return tuple(self.names[v] for v in self.leaf_vertex)

    def caps_above(self, leaf: int, mode: Mode) -> Iterator[tuple[int, int]]:
        """(vertex, cap) of every cap on a mode from a leaf up to the root."""
        caps = self.max_gpus if mode is Mode.ALLOCATED else self.max_borrowed
        vertex = int(self.leaf_vertex[leaf])
        while vertex >= 0:
            if caps[vertex] >= 0:
                yield vertex, int(caps[vertex])
            vertex = int(self.parent[vertex])

    def over_share(self, leaf: int) -> bool:
        """Whether the leaf's ratio charged / owed is over 1; infinite (over) where nothing is owed."""
        return bool(self.charged[leaf] > self.owed[leaf]) or bool(self.owed[leaf] == 0)


@dataclass(frozen=True, slots=True)
class Shape:
    """A gang shape of the fragmentation mix: replicas x GPUs inside one domain of ``level`` (index), with a weight.

    ``pool`` -1: any pool.
    """

    replicas: int
    gpus_per_replica: int
    level: int
    weight: int
    pool: int = -1

    @property
    def size(self) -> int:
        """GPUs of the whole gang."""
        return self.replicas * self.gpus_per_replica


@dataclass(frozen=True, slots=True)
class Hold:
    """GPUs kept for a blocked gang: ``gpus`` per node of ``nodes`` from now until ``starts_us`` (policy section 6).

    ``relies_on``: jobs that have to leave before their timeout, because their budget can spare them, so that it is
    true. It says how a promise can be kept and is no part of it.
    """

    job: int
    level: int
    domain: int
    nodes: tuple[int, ...]
    gpus: tuple[int, ...]
    starts_us: int
    relies_on: frozenset[int] = field(default=frozenset(), compare=False)


@dataclass(frozen=True, slots=True)
class BrokenPromise:
    """A reservation of the previous answer that no longer holds, and why."""

    job: str
    level: str
    domain: str
    nodes: tuple[str, ...]
    starts_us: int
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a pending job waits whatever else is decided: ``inadmissible``, ``no_funding`` or ``never_fits``."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Tier:
    """One tier of the objective; ``slack`` is the fraction of the entitlements later tiers may give back."""

    name: str
    slack: Fraction = Fraction(0)


@dataclass(frozen=True, slots=True)
class Policy:
    """The request's policy, durations in seconds; ``max_preempted_gpus`` -1: no bound."""

    window_s: int
    charge_horizon_s: int
    max_min_runtime_s: int
    start_timeout_s: int
    preempt_under_share: bool
    reservations: int
    max_preempted_gpus: int
    tiers: tuple[Tier, ...]


@dataclass(frozen=True, slots=True)
class Options:
    """How long and how the solver may work; ``deterministic_limit`` in CP-SAT's deterministic time, -1: none."""

    time_limit_s: float = 5.0
    workers: int = 2
    seed: int = 0
    deterministic: bool = False
    deterministic_limit: float = -1.0
    gap: Fraction = Fraction(0)


@dataclass(frozen=True, slots=True)
class Problem:
    """A compiled round. Shapes: N nodes, J jobs, R resources, E eligibility classes, L levels.

    ``eligibility[e, n]``: whether jobs of class ``e`` may start on node ``n`` (ready, type, labels, exclusions).
    """

    now_us: int
    topology: Topology
    nodes: Nodes
    jobs: Jobs
    held: Held
    budgets: Budgets
    policy: Policy
    options: Options
    pool_names: tuple[str, ...]
    resource_names: tuple[str, ...]
    eligibility: BoolArray
    shape_mix: tuple[Shape, ...]
    holds: tuple[Hold, ...] = ()
    broken: tuple[BrokenPromise, ...] = ()
    refusals: Mapping[int, Refusal] = field(default_factory=dict)
    _known: dict[object, object] = field(default_factory=dict, init=False, repr=False, compare=False)

    def once(self, key: object, make: Callable[[], T]) -> T:
        """What follows from the problem alone, made when it is first asked for; for one thread at a time."""
        if key not in self._known:
            self._known[key] = make()
        return cast(T, self._known[key])

    @property
    def in_service_gpus(self) -> int:
        """Healthy GPUs of ready nodes."""
        return int(self.nodes.healthy[self.nodes.state == NodeState.READY].sum())


@dataclass(frozen=True, slots=True)
class Decision:
    """What a round decides: arrays of length J, places of the starts, and the reservations promised.

    ``placement[job]`` holds one :class:`Replica` per replica for every start, sorted by (node, devices); kept jobs stay
    where ``Jobs.placement`` says. ``mode`` is NONE for jobs that do not run after the round. ``blocked``: the jobs that
    were entitled and could not start when the tier ``delay`` was reached; ``reservations`` are promises to these.
    """

    action: IntArray
    mode: IntArray
    promoted: BoolArray
    placement: Mapping[int, tuple[Replica, ...]]
    reservations: tuple[Hold, ...] = ()
    blocked: tuple[int, ...] = ()

    def starts_in(self, mode: Mode) -> list[int]:
        """Jobs that start in a mode, in the order of ``placement``."""
        starts = list(self.placement)
        return [j for j, how in zip(starts, self.mode[starts].tolist(), strict=True) if how == mode]


def status_quo(problem: Problem) -> Decision:
    """Everything running stays, except forced ends; nothing starts. Always feasible (policy section 1)."""
    state = problem.jobs.state
    action = np.full(len(problem.jobs), int(Action.WAIT), dtype=np.int64)
    action[(state == JobState.FIXED) | (state == JobState.EVICTABLE)] = Action.KEEP
    action[(state == JobState.DRAINED) | (state == JobState.STOPPING)] = Action.PREEMPT
    action[state == JobState.LOST] = Action.LOST
    mode = np.where(action == Action.KEEP, problem.jobs.mode, int(Mode.NONE))
    return Decision(action=action, mode=mode, promoted=np.zeros(len(action), dtype=np.bool_), placement={})
