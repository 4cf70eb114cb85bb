"""Fragmentation after a decision (policy section 8): what gangs fit now, and when protection lets them fit.

For one node size the stranded part is FGD's measure (Weng et al., USENIX ATC'23) for whole GPUs; domains, pools and
the time to place go beyond it.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from cpalloc.metrics.holdings import Holdings, holdings
from cpalloc.metrics.occupancy import NodeUse, in_service, node_use
from cpalloc.problem.problem import US, BoolArray, Decision, IntArray, NodeState, Problem, Shape


@dataclass(frozen=True, slots=True)
class ShapeFit:
    """How one shape of the mix fares: copies that fit now, free GPUs it cannot use, whole seconds until one fits."""

    shape: Shape
    placeable_now: int
    stranded_gpus: int
    time_to_place_s: int


@dataclass(frozen=True, slots=True)
class LargestGang:
    """The largest gang of whole-node replicas inside one domain of a level: its GPUs and its replicas."""

    level: str
    gpus: int
    replicas: int


@dataclass(frozen=True, slots=True)
class DomainRoom:
    """Room in one domain: free GPUs, whole free nodes, and the instant from which no work in it is protected."""

    level: str
    name: str
    free_gpus: int
    whole_free_nodes: int
    free_at_us: int


@dataclass(frozen=True, slots=True)
class Fragmentation:
    """Fragmentation of the cluster after a decision.

    ``stranded_gpus`` (GPUs) and ``expected_time_to_place_s`` (seconds) are means over the mix, exact, 0 where the mix
    has no weight. ``largest_gang`` has one entry per level from the cluster down to the level above the node.
    ``by_shape`` follows ``Problem.shape_mix``; ``by_domain`` has the domains of the levels between cluster and node.
    """

    free_gpus: int
    stranded_gpus: Fraction
    expected_time_to_place_s: Fraction
    largest_gang: tuple[LargestGang, ...]
    largest_gang_with_borrowed: tuple[LargestGang, ...]
    by_shape: tuple[ShapeFit, ...]
    by_domain: tuple[DomainRoom, ...]


@dataclass(frozen=True, slots=True)
class Room:
    """What the shapes are measured on; N nodes, G in-service GPUs, T distinct instants.

    ``release[first[n]:first[n + 1]]`` are the steps, ascending, at which the in-service GPUs of node ``n`` become
    available, as indices into ``instants_us`` (microseconds from now, ascending).
    """

    use: NodeUse
    held: Holdings
    first: IntArray
    release: IntArray
    instants_us: IntArray


def room_after(problem: Problem, decision: Decision) -> Room:
    """Lay out the in-service GPUs by the time at which protection no longer forbids taking them.

    Available at once: what is free, borrowed, allocated past its protection, and what stopping jobs hold. Kept
    protected jobs release theirs at ``protected_until_us``, allocated starts and promotions after ``min_runtime``. A
    job with exclusive nodes releases the whole node, not only its GPUs. Nodes that are not ready have no GPU here.

    Parameters
    ----------
    problem, decision
        The round and what was decided.

    Returns
    -------
    Room
        Shared by the functions below.
    """
    held = holdings(problem, decision)
    serving = in_service(problem)
    first = np.concatenate(([0], np.cumsum(serving)))
    instants_us, release = np.unique(_releases(problem, held, serving, first), return_inverse=True)
    return Room(
        use=node_use(problem, decision, held=held),
        held=held,
        first=first,
        release=release.astype(np.int64, copy=False),
        instants_us=instants_us,
    )


def placeable_now(problem: Problem, room: Room, shape: Shape) -> int:
    """Copies of a shape that fit together in the usable free GPUs.

    ``Σ_(domain, pool) ⌊ Σ_(n in domain, pool) ⌊usable_free_n / g⌋ / R ⌋`` over the domains of the shape's level, since
    a gang spans neither domains nor GPU types. Exact: replicas of one size do not compete for anything else.
    """
    slots = np.where(_nodes_of(problem, shape), room.use.usable_free // shape.gpus_per_replica, 0)
    group, groups = _groups(problem, shape.level)
    return int((_sum_by(group, slots, groups) // shape.replicas).sum())


def stranded_gpus(problem: Problem, room: Room, shape: Shape) -> int:
    """Free GPUs of the shape's pools that it cannot use now: ``free - copies x size``, in GPUs.

    Free GPUs next to a job with exclusive nodes are free and of no use to anyone, hence stranded for every shape.
    """
    free = int(room.use.free[_nodes_of(problem, shape)].sum())
    return free - placeable_now(problem, room, shape) * shape.size


def time_to_place_s(problem: Problem, room: Room, shape: Shape) -> int:
    """Seconds until some domain could host the shape if nothing new started, rounded up to whole seconds.

    A node offers its k-th slot of g GPUs when its k·g-th GPU becomes available; a (domain, pool) hosts the gang with
    its R-th slot; the answer is the earliest of these, at most ``max_min_runtime`` (also where it never fits).
    """
    wanted = np.flatnonzero(_nodes_of(problem, shape))
    slots = (room.first[wanted + 1] - room.first[wanted]) // shape.gpus_per_replica
    node = np.repeat(wanted, slots)
    nth = np.arange(len(node), dtype=np.int64) - np.repeat(np.cumsum(slots) - slots, slots) + 1
    step = room.release[room.first[node] + nth * shape.gpus_per_replica - 1]
    group, groups = _groups(problem, shape.level)
    steps = len(room.instants_us)
    ordered = np.sort(group[node] * steps + step)
    count = np.bincount(group[node], minlength=groups)
    able = np.flatnonzero(count >= shape.replicas)
    cap = problem.policy.max_min_runtime_s
    if not len(able):
        return cap
    filled_by = ordered[(np.cumsum(count) - count)[able] + shape.replicas - 1] % steps
    return min(cap, -(-int(room.instants_us[filled_by.min()]) // US))


def shape_fits(problem: Problem, room: Room) -> tuple[ShapeFit, ...]:
    """All shapes of the mix, in its order."""
    return tuple(
        ShapeFit(
            shape=shape,
            placeable_now=placeable_now(problem, room, shape),
            stranded_gpus=stranded_gpus(problem, room, shape),
            time_to_place_s=time_to_place_s(problem, room, shape),
        )
        for shape in problem.shape_mix
    )


def largest_gangs(problem: Problem, usable: IntArray) -> tuple[LargestGang, ...]:
    """The largest gang of whole-node replicas inside one domain, per level from the cluster to above the node.

    A node counts as whole when it is ready, all its installed GPUs are healthy and all are in ``usable``. Replicas of
    a gang are alike, so they take nodes of one size and one pool; "largest" is by GPUs, ties by fewer replicas.

    Parameters
    ----------
    problem
        The round.
    usable
        GPUs per node that may be taken, shape (N,): ``NodeUse.usable_free`` or ``NodeUse.usable_with_borrowed``.

    Returns
    -------
    tuple of LargestGang
        GPUs and replicas 0 where no node is whole.
    """
    whole = _whole(problem, usable)
    sizes, size = np.unique(problem.nodes.gpus, return_inverse=True)
    gangs = []
    for level, name in enumerate(problem.topology.levels[:-1]):
        group, groups = _groups(problem, level)
        count = _sum_by(group * len(sizes) + size, whole.astype(np.int64), groups * len(sizes))
        count = count.reshape(groups, len(sizes))
        most = count.max(axis=0, initial=0).tolist()
        gpus, negative = max(((r * s, -r) for r, s in zip(most, sizes.tolist(), strict=True)), default=(0, 0))
        gangs.append(LargestGang(level=name, gpus=gpus, replicas=-negative))
    return tuple(gangs)


def domain_rooms(problem: Problem, room: Room) -> tuple[DomainRoom, ...]:
    """Room in every domain of the levels between cluster and node, by level and name.

    ``free_gpus`` are free, usable or not, so that they add up to the cluster's. ``free_at_us`` is when the last
    protected job in the domain, those on its draining nodes and unhealthy GPUs included, leaves its protection; now
    where there is none.
    """
    topology = problem.topology
    whole = _whole(problem, room.use.usable_free).astype(np.int64)
    rows = []
    for level in range(1, len(topology.levels) - 1):
        domain, names = topology.domain_of[level], topology.names[level]
        free = _sum_by(domain, room.use.free, len(names)).tolist()
        nodes = _sum_by(domain, whole, len(names)).tolist()
        last = np.zeros(len(names), dtype=np.int64)
        np.maximum.at(last, domain[room.held.node], room.held.release_us[room.held.job])
        rows += [
            DomainRoom(topology.levels[level], name, free[d], nodes[d], problem.now_us + at)
            for d, (name, at) in enumerate(zip(names, last.tolist(), strict=True))
        ]
    return tuple(rows)


def fragmentation(problem: Problem, decision: Decision) -> Fragmentation:
    """Everything the answer says about fragmentation (see :class:`Fragmentation`)."""
    space = room_after(problem, decision)
    fits = shape_fits(problem, space)
    weight = sum(fit.shape.weight for fit in fits)
    stranded = sum(fit.shape.weight * fit.stranded_gpus for fit in fits)
    waiting = sum(fit.shape.weight * fit.time_to_place_s for fit in fits)
    return Fragmentation(
        free_gpus=int(space.use.free.sum()),
        stranded_gpus=Fraction(stranded, weight) if weight else Fraction(0),
        expected_time_to_place_s=Fraction(waiting, weight) if weight else Fraction(0),
        largest_gang=largest_gangs(problem, space.use.usable_free),
        largest_gang_with_borrowed=largest_gangs(problem, space.use.usable_with_borrowed),
        by_shape=fits,
        by_domain=domain_rooms(problem, space),
    )


def tier_value(problem: Problem, decision: Decision) -> int:
    """Value of the ``fragmentation`` tier after the decision's starts.

    ``Σ_s p(s) · (stranded(s) · charge_horizon + size(s) · time_to_place(s))``, p the integer weights as they are, in
    GPU-seconds x weight.
    """
    space = room_after(problem, decision)
    horizon = problem.policy.charge_horizon_s
    return sum(
        fit.shape.weight * (fit.stranded_gpus * horizon + fit.shape.size * fit.time_to_place_s)
        for fit in shape_fits(problem, space)
    )


def _releases(problem: Problem, held: Holdings, serving: IntArray, first: IntArray) -> IntArray:
    """Microseconds from now per in-service GPU, ascending inside each node, shape (G,)."""
    release = held.release_us[held.job]
    rows = np.flatnonzero((release > 0) & (problem.nodes.state[held.node] == NodeState.READY))
    rows = rows[np.lexsort((-release[rows], held.node[rows]))]
    # Per node the latest release comes first in ``rows`` and goes last in the node's stretch; the rest stays 0.
    node = np.repeat(held.node[rows], held.gpus[rows])
    count = np.bincount(node, minlength=len(serving))
    nth = np.arange(len(node), dtype=np.int64) - (np.cumsum(count) - count)[node]
    flat = np.zeros(int(first[-1]), dtype=np.int64)
    flat[first[node + 1] - 1 - nth] = np.repeat(release[rows], held.gpus[rows])
    whole_node = np.zeros(len(serving), dtype=np.int64)
    exclusive = problem.jobs.exclusive[held.job]
    np.maximum.at(whole_node, held.node[exclusive], release[exclusive])
    return np.maximum(flat, np.repeat(whole_node, serving))


def _nodes_of(problem: Problem, shape: Shape) -> BoolArray:
    """Nodes of the pools a shape may use, shape (N,)."""
    pool = problem.nodes.pool
    return np.ones(len(pool), dtype=np.bool_) if shape.pool < 0 else pool == shape.pool


def _groups(problem: Problem, level: int) -> tuple[IntArray, int]:
    """Index of each node's (domain of the level, pool), shape (N,), and how many there are."""
    pools = len(problem.pool_names)
    return problem.topology.domain_of[level] * pools + problem.nodes.pool, len(problem.topology.names[level]) * pools


def _whole(problem: Problem, usable: IntArray) -> BoolArray:
    """Nodes that are ready, healthy as installed and wholly usable, shape (N,).

    Usable GPUs are healthy ones of ready nodes, so equality with the installed number says all three.
    """
    gpus = problem.nodes.gpus
    whole: BoolArray = (usable == gpus) & (gpus > 0)
    return whole


def _sum_by(group: IntArray, amount: IntArray, groups: int) -> IntArray:
    """Sum of integer amounts per group, shape (groups,)."""
    total = np.zeros(groups, dtype=np.int64)
    np.add.at(total, group, amount)
    return total
