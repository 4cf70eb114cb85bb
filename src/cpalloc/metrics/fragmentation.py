"""Fragmentation after a decision (policy section 8): what gangs fit now, and when protection lets them fit.

For one node size the stranded part is FGD's measure (Weng et al., USENIX ATC'23) for whole GPUs; domains, pools and
the time to place go beyond it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
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
class Slots:
    """Slots of one size in every (domain, pool) of a level; K of these, M slots.

    ``free`` are those in the usable free GPUs, ``count`` those in all in-service GPUs, shape (K,). ``step`` has the
    step at which each of the latter becomes available, (domain, pool) by (domain, pool) and ascending in each, shape
    (M,); ``first`` is where each of them begins in it.
    """

    free: IntArray
    count: IntArray
    first: IntArray
    step: IntArray


@dataclass(frozen=True, slots=True)
class Room:
    """What the shapes are measured on; N nodes, G in-service GPUs, T distinct instants.

    ``release[first[n]:first[n + 1]]`` are the steps, ascending, at which the in-service GPUs of node ``n`` become
    available, as indices into ``instants_us`` (microseconds from now, ascending). ``slots`` are those worked out so
    far, by GPUs and level: shapes that differ in replicas, weight or pool only share them.
    """

    use: NodeUse
    held: Holdings
    first: IntArray
    release: IntArray
    instants_us: IntArray
    slots: dict[tuple[int, int], Slots] = field(default_factory=dict)


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


def slots_of(problem: Problem, room: Room, shape: Shape) -> Slots:
    """Slots of a shape's replicas, by the (domain, pool) of its level: a gang spans neither domains nor GPU types."""
    size = shape.gpus_per_replica, shape.level
    if size not in room.slots:
        room.slots[size] = _slots(problem, room, *size)
    return room.slots[size]


def placeable_now(problem: Problem, room: Room, shape: Shape) -> int:
    """Copies of a shape that fit together in the usable free GPUs.

    ``Σ_(domain, pool) ⌊ Σ_(n in domain, pool) ⌊usable_free_n / g⌋ / R ⌋`` over the domains of the shape's level.
    Exact: replicas of one size do not compete for anything else.
    """
    free = slots_of(problem, room, shape).free[_may_use(problem, shape)]
    return int((free // shape.replicas).sum())


def time_to_place_s(problem: Problem, room: Room, shape: Shape) -> int:
    """Seconds until some domain could host the shape if nothing new started, rounded up to whole seconds.

    A node offers its k-th slot of g GPUs when its k·g-th GPU becomes available; a (domain, pool) hosts the gang with
    its R-th slot; the answer is the earliest of these, at most ``max_min_runtime`` (also where it never fits).
    """
    slots, mine = slots_of(problem, room, shape), _may_use(problem, shape)
    able = slots.first[mine][slots.count[mine] >= shape.replicas]
    cap = problem.policy.max_min_runtime_s
    if not len(able):
        return cap
    hosts = int(slots.step[able + shape.replicas - 1].min())
    return min(cap, -(-int(room.instants_us[hosts]) // US))


def shape_fits(problem: Problem, room: Room) -> tuple[ShapeFit, ...]:
    """All shapes of the mix, in its order.

    Free GPUs of its pools that a shape cannot use now, ``free - copies x size``, are stranded; those next to a job with
    exclusive nodes are free and of no use to anyone, hence stranded for every shape.
    """
    free = _sum_by(problem.nodes.pool, room.use.free, len(problem.pool_names)).tolist()
    fits = []
    for shape in problem.shape_mix:
        copies = placeable_now(problem, room, shape)
        free_gpus = sum(free) if shape.pool < 0 else free[shape.pool]
        fits.append(ShapeFit(shape, copies, free_gpus - copies * shape.size, time_to_place_s(problem, room, shape)))
    return tuple(fits)


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


def _slots(problem: Problem, room: Room, gpus: int, level: int) -> Slots:
    group, groups = _groups(problem, level)
    per_node = (room.first[1:] - room.first[:-1]) // gpus
    node = np.repeat(np.arange(len(per_node)), per_node)
    nth = np.arange(len(node), dtype=np.int64) - np.repeat(np.cumsum(per_node) - per_node, per_node) + 1
    step = room.release[room.first[node] + nth * gpus - 1]
    count, steps = _sum_by(group, per_node, groups), max(1, len(room.instants_us))
    return Slots(
        free=_sum_by(group, room.use.usable_free // gpus, groups),
        count=count,
        first=np.cumsum(count) - count,
        step=np.sort(group[node] * steps + step) % steps,
    )


def _may_use(problem: Problem, shape: Shape) -> slice:
    """The (domain, pool) of the shape's level that it may use, of those that :func:`_groups` numbers."""
    return slice(None) if shape.pool < 0 else slice(shape.pool, None, len(problem.pool_names))


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
