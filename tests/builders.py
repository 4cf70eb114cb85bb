"""Small rounds built by hand, in the words of the policy, without the wire and the compiler.

>>> p = problem(
...     nodes=[Node("n1"), Node("n2")],
...     jobs=[Running("old", budget="x", at="n1", gpus=8), Pending("new", budget="y", gpus=8)],
...     budgets=[Budget("x"), Budget("y", entitled=8, claim=8)],
... )
>>> d = decide(p, start={"new": "n1"}, preempt=["old"])

Everything is named, nothing is numbered: :func:`job_at` and :func:`node_at` give indices. Entitlement,
claim, charge and owed are simply stated, not worked out; the way real rounds take is schema -> ``compile_round``. What
is free and held on the nodes does come from the compiler, so that hand-made rounds mean what real ones mean.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from fractions import Fraction
from math import prod

import numpy as np

from cpalloc.entitlement import projected_ratio_key
from cpalloc.models.base import Constraint
from cpalloc.problem.compile.nodes import Hardware
from cpalloc.problem.compile.occupancy import occupancy
from cpalloc.problem.compile.stays import stays_of
from cpalloc.problem.problem import (
    US,
    Action,
    BoolArray,
    Budgets,
    Decision,
    Hold,
    IntArray,
    Jobs,
    JobState,
    Mode,
    NodeState,
    Options,
    Policy,
    Problem,
    Replica,
    Shape,
    status_quo,
)
from cpalloc.problem.replicas import by_node
from cpalloc.topology import Topology

NOW_US = 1_795_000_000 * US
MINUTE, HOUR = 60, 3600
READY, DRAINING, DOWN = NodeState.READY, NodeState.DRAINING, NodeState.DOWN

Where = str | Mapping[str, int] | Sequence[tuple[str, Sequence[int]]]
"""Where replicas go: a node for all of them, replicas per node, or (node, devices) replica by replica."""


@dataclass(frozen=True)
class Node:
    """A node. ``within``: its domains from coarse to fine, as in ``"b1/r1"``; ``unknown``: running jobs give counts."""

    name: str
    _: KW_ONLY
    gpus: int = 8
    within: str = ""
    pool: str = "h100"
    state: NodeState = READY
    unhealthy: Collection[int] = ()
    groups: Sequence[Collection[int]] = ()
    unknown: bool = False
    resources: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Pending:
    """A waiting job: ``gpus`` per replica; ``nodes``: the only ones it may use; later in the list = submitted later."""

    name: str
    _: KW_ONLY
    budget: str = "x"
    gpus: int = 1
    replicas: int = 1
    priority: int = 1
    funding: str = "allocated"
    min_runtime_s: int = HOUR
    timeout_s: int = -1
    required: str = "cluster"
    preferred: str = ""
    nodes: Collection[str] | None = None
    max_per_node: int = 0
    exclusive: bool = False
    same_gpu_group: bool = False
    resources: Mapping[str, int] = field(default_factory=dict)
    refused: bool = False


@dataclass(frozen=True)
class Running(Pending):
    """A running job, ``mode`` ``borrowed`` or ``allocated``; with ``funding="any"`` a borrowed one may be promoted.

    ``protected_s``: seconds of protection left (allocated only). ``up``: its last replica has started, ``age_s`` ago.
    """

    _: KW_ONLY
    at: Where = ""
    mode: str = "borrowed"
    funding: str = ""
    protected_s: int = 0
    age_s: int = 10 * HOUR
    lost_s: int = 0
    restart_cost_s: int = 0
    stopping: bool = False
    up: bool = True


@dataclass(frozen=True)
class Budget:
    """A vertex of the funding tree; 1,000 GPU-seconds are owed, so ``charged`` reads as the ratio in thousandths."""

    name: str
    _: KW_ONLY
    parent: str = ""
    weight: int = 1
    owed: int = 1000
    charged: int = 0
    entitled: int = 0
    claim: int = 0
    max_gpus: int = -1
    max_borrowed: int = -1


def problem(
    *,
    nodes: Sequence[Node],
    jobs: Sequence[Pending] = (),
    budgets: Sequence[Budget] | None = None,
    levels: Sequence[str] = (),
    mix: Sequence[Shape] = (),
    max_preempted_gpus: int = -1,
    preempt_under_share: bool = False,
) -> Problem:
    """A round. ``levels``: names of the levels in ``within``, coarse to fine; without ``budgets`` there is one, "x"."""
    hosts, rows = sorted(nodes, key=lambda n: n.name), sorted(enumerate(jobs), key=lambda pair: pair[1].name)
    specs = [spec for _, spec in rows]
    purse = _budgets(budgets if budgets is not None else [Budget("x")])
    hw, topology = _hardware(hosts, specs), _topology(hosts, levels)
    policy = Policy(7 * 24 * HOUR, HOUR, 8 * HOUR, 900, preempt_under_share, 4, max_preempted_gpus, ())
    columns = _jobs(rows, hosts, hw, topology, purse, policy)
    stays = stays_of(by_node(places) for places in columns.placement)
    there, held = occupancy(hw, columns.state, columns.resources, columns.exclusive, stays)
    return Problem(
        now_us=NOW_US,
        topology=topology,
        nodes=there,
        jobs=columns,
        held=held,
        budgets=purse,
        policy=policy,
        options=Options(),
        pool_names=hw.pool_names,
        resource_names=hw.resource_names,
        eligibility=_eligibility(specs, hw),
        shape_mix=tuple(mix),
    )


def decide(
    problem: Problem,
    *,
    start: Mapping[str, Where] | None = None,
    borrow: Mapping[str, Where] | None = None,
    preempt: Iterable[str] = (),
    promote: Iterable[str] = (),
) -> Decision:
    """The status quo, with some jobs started (allocated or borrowed), preempted or promoted.

    Starts take the lowest devices free after the preemptions; where these are too few, the lowest others as well.
    """
    quo = status_quo(problem)
    action, mode, promoted = quo.action, quo.mode, quo.promoted
    gone, up = ([job_at(problem, name) for name in names] for names in (preempt, promote))
    action[gone], mode[gone] = Action.PREEMPT, Mode.NONE
    mode[up], promoted[up] = Mode.ALLOCATED, True
    index = {n: i for i, n in enumerate(problem.nodes.names)}
    free = list(problem.nodes.free_devices)
    for row, j in enumerate(problem.held.job.tolist()):
        if action[j] == Action.PREEMPT and problem.held.devices[row] >= 0:
            free[int(problem.held.node[row])] |= problem.held.devices[row]
    placement = {}
    for how, wanted in ((Mode.ALLOCATED, start or {}), (Mode.BORROWED, borrow or {})):
        for name, where in wanted.items():
            j = job_at(problem, name)
            action[j], mode[j] = Action.START, how
            each, count = int(problem.jobs.gpus_per_replica[j]), int(problem.jobs.replicas[j])
            placement[j] = _places(where, count, each, index, free, squeeze=True)
    return Decision(action, mode, promoted, placement)


def hold(problem: Problem, job: str, at: Mapping[str, int], *, in_s: int) -> Hold:
    """A reservation of ``at[node]`` GPUs for a job that is promised to start ``in_s`` seconds from now."""
    j, (nodes, gpus) = job_at(problem, job), zip(*sorted((node_at(problem, n), g) for n, g in at.items()), strict=True)
    level = int(problem.jobs.required_level[j])
    return Hold(j, level, int(problem.topology.domain_of[level, nodes[0]]), nodes, gpus, problem.now_us + in_s * US)


def job_at(problem: Problem, name: str) -> int:
    return problem.jobs.ids.index(name)


def node_at(problem: Problem, name: str) -> int:
    return problem.nodes.names.index(name)


def blamed(constraint: Constraint, problem: Problem, decision: Decision) -> list[tuple[str, ...]]:
    """The jobs blamed by each violation a constraint finds; it must apply to the round, or solving would skip it."""
    found = list(constraint.check(problem, decision))
    assert not found or constraint.applies(problem)
    assert all(v.constraint == constraint.name and v.message for v in found)
    return [v.jobs for v in found]


def _mask(devices: Iterable[int]) -> int:
    return sum(1 << d for d in set(devices))


def _lowest(mask: int, count: int) -> int:
    return _mask([d for d in range(mask.bit_length()) if mask >> d & 1][:count])


def _places(
    where: Where, replicas: int, each: int, index: Mapping[str, int], free: list[int], *, squeeze: bool = False
) -> tuple[Replica, ...]:
    """Replicas with devices, taken out of ``free`` (-1: unknown devices, counts only); -1 for nodes not listed."""
    out = []
    if isinstance(where, str | Mapping):
        counts = {where: replicas} if isinstance(where, str) else where
        for name in [name for name, count in counts.items() for _ in range(count)]:
            n = index.get(name, -1)
            if n < 0 or free[n] < 0:
                out.append(Replica(n, each, -1))
                continue
            mask = _lowest(free[n], each)
            assert squeeze or mask.bit_count() == each, f"there is no room on {name}"
            out.append(Replica(n, each, mask | _lowest(~mask & (1 << 64) - 1, each - mask.bit_count())))
            free[n] &= ~mask
    else:
        out = [Replica(index.get(n, -1), len(devices), _mask(devices)) for n, devices in where]
    return tuple(sorted(out, key=lambda r: (r.node, r.devices)))


def _hardware(hosts: Sequence[Node], jobs: Sequence[Pending]) -> Hardware:
    pools = sorted({n.pool for n in hosts})
    resources = sorted({r for n in hosts for r in n.resources} | {r for j in jobs for r in j.resources})
    healthy = tuple((1 << n.gpus) - 1 & ~_mask(n.unhealthy) for n in hosts)
    amounts = [[n.resources.get(r, 0) for r in resources] for n in hosts]
    return Hardware(
        names=tuple(n.name for n in hosts),
        index={n.name: i for i, n in enumerate(hosts)},
        pool_names=tuple(pools),
        pool=np.array([pools.index(n.pool) for n in hosts], dtype=np.int64),
        state=np.array([n.state for n in hosts], dtype=np.int64),
        gpus=np.array([n.gpus for n in hosts], dtype=np.int64),
        healthy=np.array([m.bit_count() for m in healthy], dtype=np.int64),
        healthy_devices=healthy,
        resource_names=tuple(resources),
        resources=np.array(amounts, dtype=np.int64).reshape(len(hosts), len(resources)),
        groups=tuple(tuple(_mask(g) for g in n.groups) or ((1 << n.gpus) - 1,) for n in hosts),
        labels=tuple({} for _ in hosts),
    )


def _topology(hosts: Sequence[Node], levels: Sequence[str]) -> Topology:
    paths = [n.within.split("/") if levels else [] for n in hosts]
    assert all(len(path) == len(levels) for path in paths), "every node lies in one domain of every level"
    middle = [tuple(sorted(set(column))) for column in zip(*paths, strict=True)]
    domain_of = [[middle[level].index(path[level]) for path in paths] for level in range(len(levels))]
    rows = np.array([[0] * len(hosts), *domain_of, list(range(len(hosts)))], dtype=np.int64)
    return Topology(("cluster", *levels, "node"), rows, (("cluster",), *middle, tuple(n.name for n in hosts)))


def _budgets(given: Sequence[Budget]) -> Budgets:
    rows = sorted(given, key=lambda b: b.name)
    index = {b.name: v for v, b in enumerate(rows)}
    among = {b.parent: sum(s.weight for s in rows if s.parent == b.parent) for b in rows}
    leaves = [b for b in rows if b.name not in among]

    def line(b: Budget) -> Iterator[Budget]:
        yield b
        if b.parent:
            yield from line(rows[index[b.parent]])

    return Budgets(
        names=tuple(index),
        parent=_ints(index.get(b.parent, -1) for b in rows),
        leaf_vertex=_ints(index[b.name] for b in leaves),
        leaves_below=tuple(tuple(i for i, leaf in enumerate(leaves) if b in line(leaf)) for b in rows),
        share=tuple(prod((Fraction(b.weight, among[b.parent]) for b in line(x)), start=Fraction(1)) for x in leaves),
        owed=_ints(b.owed for b in leaves),
        charged=_ints(b.charged for b in leaves),
        demand=_ints(b.claim for b in leaves),
        protected=_ints(0 for _ in leaves),
        claim=_ints(b.claim for b in leaves),
        entitled=_ints(b.entitled for b in leaves),
        max_gpus=_ints(b.max_gpus for b in rows),
        max_borrowed=_ints(b.max_borrowed for b in rows),
    )


def _eligibility(jobs: Sequence[Pending], hw: Hardware) -> BoolArray:
    """Ready nodes that each job names; a row of the matrix for each job."""
    ready = [n for n, state in zip(hw.names, hw.state.tolist(), strict=True) if state == READY]
    rows = [n in ready and (j.nodes is None or n in j.nodes) for j in jobs for n in hw.names]
    return _bools(rows).reshape(len(jobs), len(hw.names))


def _state(job: Pending, places: Sequence[Replica], hw: Hardware, over: bool, policy: Policy) -> JobState:
    """What policy section 4 lets happen to the job."""
    if not isinstance(job, Running):
        return JobState.REFUSED if job.refused else JobState.PENDING
    on = {NodeState(int(hw.state[r.node])) for r in places if r.node >= 0}
    if job.stopping or DOWN in on:
        return JobState.STOPPING if job.stopping else JobState.LOST
    if job.mode == "allocated" and job.protected_s > 0:
        return JobState.FIXED
    if DRAINING in on:
        return JobState.DRAINED
    takes = job.mode == "borrowed" or over or policy.preempt_under_share
    return JobState.EVICTABLE if takes and all(r.node >= 0 for r in places) else JobState.FIXED


def _jobs(
    rows: Sequence[tuple[int, Pending]],
    hosts: Sequence[Node],
    hw: Hardware,
    topology: Topology,
    purse: Budgets,
    policy: Policy,
) -> Jobs:
    submitted, specs = [i for i, _ in rows], [spec for _, spec in rows]
    free = [-1 if n.unknown else (1 << n.gpus) - 1 for n in hosts]
    every = range(len(specs))
    run = [j if isinstance(j, Running) else Running(j.name, mode="none", funding=j.funding, up=False) for j in specs]
    here = [isinstance(j, Running) for j in specs]
    placed = [_places(run[j].at, s.replicas, s.gpus, hw.index, free) if here[j] else () for j, s in enumerate(specs)]
    leaf = [purse.leaf_names.index(j.budget) for j in specs]
    state = [_state(specs[j], placed[j], hw, purse.over_share(leaf[j]), policy) for j in every]
    mode = [Mode[r.mode.upper()] for r in run]
    owns = [m is Mode.ALLOCATED for m in mode]
    since = [NOW_US - run[j].age_s * US if here[j] else -1 for j in every]
    funding = ["" if r.refused else r.funding or r.mode for r in run]
    keys = [(-specs[j].priority, submitted[j]) for j in every]
    ratio = [projected_ratio_key(int(purse.charged[x]), int(purse.owed[x]), 1, policy.charge_horizon_s) for x in leaf]
    best = sorted((j for j in every if state[j] is JobState.PENDING), key=lambda j: (ratio[j], keys[j]))
    return Jobs(
        ids=tuple(j.name for j in specs),
        state=_ints(state),
        leaf=_ints(leaf),
        submitted_us=_ints(NOW_US - 24 * HOUR * US + s * US for s in submitted),
        priority=_ints(j.priority for j in specs),
        interactive=_bools(False for _ in every),
        replicas=_ints(j.replicas for j in specs),
        gpus_per_replica=_ints(j.gpus for j in specs),
        size=_ints(s.replicas * s.gpus for s in specs),
        resources=_ints(j.resources.get(r, 0) for j in specs for r in hw.resource_names).reshape(
            len(specs), len(hw.resource_names)
        ),
        max_per_node=_ints(j.max_per_node for j in specs),
        exclusive=_bools(j.exclusive for j in specs),
        same_gpu_group=_bools(j.same_gpu_group for j in specs),
        eligibility=_ints(every),
        required_level=_ints(topology.level_index(j.required) for j in specs),
        preferred_level=_ints(topology.level_index(j.preferred) if j.preferred else -1 for j in specs),
        min_runtime_s=_ints(j.min_runtime_s for j in specs),
        timeout_s=_ints(j.timeout_s for j in specs),
        restart_cost_s=_ints(r.restart_cost_s for r in run),
        resumable=_bools(True for _ in every),
        may_allocate=_bools(f in ("allocated", "any") for f in funding),
        may_borrow=_bools(f in ("borrowed", "any") for f in funding),
        may_promote=_bools(funding[j] == "any" and state[j] is JobState.EVICTABLE and not owns[j] for j in every),
        mode=_ints(mode),
        protected=_bools(owns[j] and run[j].protected_s > 0 for j in every),
        protected_until_us=_ints(NOW_US + run[j].protected_s * US if mode[j] is Mode.ALLOCATED else -1 for j in every),
        started_us=_ints(since[j] if run[j].up else -1 for j in every),
        placed_us=_ints(since),
        allocated_since_us=_ints(since[j] if owns[j] else -1 for j in every),
        checkpointed_us=_ints(-1 for _ in every),
        lost_gpu_seconds=_ints(s.replicas * s.gpus * r.lost_s for s, r in zip(specs, run, strict=True)),
        preempt_cost=_ints(
            s.replicas * s.gpus * (r.lost_s + r.restart_cost_s) for s, r in zip(specs, run, strict=True)
        ),
        rank=_ints(best.index(j) if j in best else -1 for j in every),
        order=_ints(sum(leaf[i] == leaf[j] and keys[i] < keys[j] for i in every) for j in every),
        placement=tuple(placed),
    )


def _ints(values: Iterable[int]) -> IntArray:
    return np.array(list(values), dtype=np.int64)


def _bools(values: Iterable[bool]) -> BoolArray:
    return np.array(list(values), dtype=np.bool_)
