"""When a gang could be held at the earliest, as a lower bound the solver can trade against starts.

For a gang of R replicas of g GPUs and increasing instants t_k, choosing t_k needs a domain whose nodes have the slots
by then: Σ_n ⌊(room_n(t_k) − GPUs of starts still in the way at t_k) / g⌋ ≥ R. ``room`` counts everything that may have
left by t_k, so the cheapest choice never exceeds the exact value. It only grows with time, so that whoever is held by
t_k has its slots at every later instant too: the row of t_k counts all choices up to it, which leaves the linear
relaxation no gain in mixing early choices with late ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
from ortools.sat.python import cp_model

from cpalloc.models.partition import Partition
from cpalloc.models.variables import Linear, ModelContext, dot
from cpalloc.problem.problem import IntArray

MAX_STEPS = 16
"""Most instants a gang may choose among at first; more are thinned, each choice then costing the step before it."""

MAX_FINE_STEPS = 128
"""The same once thinning has shown to matter."""


MOST_TOLD = 32
"""Most domains of a gang of which it is told which one holds it."""


def most_steps(partition: Partition) -> int:
    """Most instants a gang may choose among."""
    return MAX_FINE_STEPS if partition.fine else MAX_STEPS


class Room(Protocol):
    """What may have left by an instant, beside the starts of this round; never less than what will have."""

    def at(self, at_us: int) -> IntArray:
        """GPUs of every node that may be there at an instant; shape (N,)."""
        ...

    def doubtful(
        self, nodes: IntArray, at_us: int, whose: str = ""
    ) -> Mapping[int, Sequence[tuple[int, cp_model.IntVar]]]:
        """Per node, (GPUs, literal) of what may still be there all the same, if the literal is true.

        ``whose``: for somebody who is promised nothing, and for whom alone the literals are.
        """
        ...

    def promised_on(self, nodes: Sequence[int]) -> bool:
        """Whether some GPUs of some nodes are taken for promised, although work may be there."""
        ...


@dataclass(frozen=True, slots=True)
class Gang:
    """A gang that waits: replicas of ``gpus`` GPUs inside one of ``domains`` (node indices of each)."""

    label: str
    replicas: int
    gpus: int
    domains: Sequence[IntArray]


@dataclass(frozen=True, slots=True)
class Step:
    """A choice: by ``at_us`` there must be room; choosing it costs ``cost``."""

    at_us: int
    cost: int


def steps(
    instants_us: Sequence[int], cost_of: Callable[[int], int], least: int, most: int, number: int = MAX_STEPS
) -> list[Step]:
    """At most a number of choices among instants whose cost lies in [least, most).

    Thinned ones cost what their predecessor leaves open.
    """
    wanted = sorted({t for t in instants_us if cost_of(t) < most})
    first = [t for t in wanted if cost_of(t) <= least][-1:]
    wanted = first + [t for t in wanted if cost_of(t) > least]
    if len(wanted) <= number:
        return [Step(t, max(least, cost_of(t))) for t in wanted]
    picked = [wanted[(i + 1) * len(wanted) // number - 1] for i in range(number)]
    out, previous = [], -1
    for t in picked:
        out.append(Step(t, max(least, cost_of(wanted[previous + 1]))))
        previous = wanted.index(t)
    return out


@dataclass(frozen=True, slots=True)
class Held:
    """A literal that says that a gang waits until ``at_us`` and is then held in a pool (−1: in any).

    ``inside``: (nodes, literal) of its domains there, of which one holds it, if that is told.
    """

    at_us: int
    pool: int
    chosen: cp_model.IntVar
    inside: tuple[tuple[IntArray, cp_model.IntVar], ...] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """What a gang waits for: the cost as an expression, and the literals that say by when and where it is held."""

    cost: Linear
    held: tuple[Held, ...]


@dataclass(frozen=True, slots=True)
class _Slots:
    """Slots of a domain by an instant: so many, and so many times each variable (index, factor)."""

    const: int
    factors: tuple[tuple[int, int], ...]
    number: Linear = field(compare=False)


class _Rows:
    """By when each domain holds a gang, and that it has the slots by then: R · Σ_{i ≤ k} held_i ≤ slots by t_k.

    As long as the slots are the same the last row says what all of them do, so one is stated whenever they change.
    """

    def __init__(self, ctx: ModelContext, gang: Gang) -> None:
        self._ctx, self._gang = ctx, gang
        self._open: dict[tuple[bytes, str], tuple[_Slots, list[cp_model.IntVar]]] = {}

    def changed(self, nodes: IntArray, slots: _Slots) -> bool:
        """Whether a domain has other slots than when it was last asked to hold the gang."""
        key = nodes.tobytes(), ""
        return key not in self._open or self._open[key][0] != slots

    def hold(
        self, chosen: cp_model.IntVar, at_us: int, where: Sequence[tuple[IntArray, _Slots]], whose: str
    ) -> tuple[tuple[IntArray, cp_model.IntVar], ...]:
        """Have one of some domains hold the gang by an instant if ``chosen``; returns the literal of each.

        ``whose``: as in :meth:`Room.doubtful`; who is asked about alone is in no row with those who are not.
        """
        inside = []
        for i, (nodes, slots) in enumerate(where):
            name = f"{self._gang.label}@{at_us},{i}"
            var = chosen if len(where) == 1 else self._ctx.model.new_bool_var(name)
            inside.append((nodes, var))
            key = nodes.tobytes(), whose
            before, by_then = self._open.get(key, (slots, []))
            if before != slots:
                self._state(before, by_then)
            self._open[key] = slots, [*by_then, var]
        if len(where) > 1:
            self._ctx.model.add(dot([(1, var) for _, var in inside]) >= chosen)
        return tuple(inside)

    def state(self) -> None:
        """State the rows that are still open."""
        for slots, by_then in self._open.values():
            self._state(slots, by_then)

    def _state(self, slots: _Slots, by_then: Sequence[cp_model.IntVar]) -> None:
        self._ctx.model.add(slots.number >= dot([(self._gang.replicas, var) for var in by_then]))


class _News:
    """Nodes that may hold a gang of one replica, each as a domain, once anything about them is new."""

    def __init__(self, ctx: ModelContext, gang: Gang, room: Room) -> None:
        self._ctx, self._gang, self._room = ctx, gang, room
        self._known: dict[int, object] = {}

    def at(self, at_us: int, domains: Sequence[IntArray], whose: str) -> Sequence[IntArray]:
        """Nodes of some domains with room by an instant that are not as they were before; the domains themselves where
        they are many."""
        nodes = np.unique(np.concatenate(domains))
        nodes = nodes[self._room.at(at_us)[nodes] >= self._gang.gpus]
        doubtful = self._room.doubtful(nodes, at_us, whose)
        fresh = []
        for n in nodes.tolist():
            state = self._state(n, at_us, doubtful.get(n, ()))
            if self._known.get(n) != state:
                self._known[n] = state
                fresh.append(np.array([n]))
        return fresh if len(fresh) <= MOST_TOLD else domains

    def _state(self, n: int, at_us: int, doubtful: Sequence[tuple[int, cp_model.IntVar]]) -> object:
        """What slots of whatever size depend on; now is unlike any later instant, as nobody is promised that."""
        ctx, cell = self._ctx, self._ctx.layout.cell_of.get(n)
        late: tuple[object, ...] = ()
        if cell is not None:
            promoted = ctx.late_promotions(cell, at_us)
            late = (*ctx.late_kinds(cell, at_us), *((gpus, var.index) for gpus, var in promoted))
        doubts = tuple((gpus, var.index) for gpus, var in doubtful)
        return int(self._room.at(at_us)[n]), late, doubts, at_us <= ctx.problem.now_us


def cost_of_waiting(
    ctx: ModelContext,
    gang: Gang,
    choices: Sequence[Step],
    last_cost: int,
    room: Room,
    unless: Sequence[cp_model.IntVar] = (),
    *,
    by_pool: bool = False,
) -> Choice:
    """Cost of the choice made; ``last_cost`` where none of the choices holds, 0 where one of ``unless`` does.

    ``by_pool``: the choice says in which pool the gang is held.
    """
    held: list[Held] = []
    terms: list[tuple[int, cp_model.IntVar]] = []
    pools: dict[int, list[IntArray]] = {}
    for nodes in gang.domains:
        pools.setdefault(int(ctx.problem.nodes.pool[nodes[0]]) if by_pool else -1, []).append(nodes)
    rows, surely = _Rows(ctx, gang), False
    news, alone = _News(ctx, gang, room), gang.replicas == 1 and ctx.partition.split
    for step in choices:
        ctx.check_time()
        # Who could start at once is promised nothing, and asked about alone, if anything is in doubt.
        at_once = by_pool and step.at_us <= ctx.problem.now_us
        alone_now = at_once and any(room.doubtful(nodes, step.at_us, gang.label) for nodes in gang.domains)
        whose = gang.label if alone_now else ""
        for pool, domains in pools.items():
            told = by_pool and ctx.partition.fine
            # Whoever is held on a node whose state is that of an instant before could be held there by then.
            options = news.at(step.at_us, domains, whose) if told and alone else domains
            where = _domains_with_room(ctx, gang, options, step.at_us, room, whose, told=told)
            if where is not True and not by_pool:
                # Where a domain has the slots it had before, waiting longer is for those who mind who else is held.
                where = [(nodes, slots) for nodes, slots in where if rows.changed(nodes, slots)]
            if not where:
                continue
            chosen = ctx.model.new_bool_var(f"{gang.label}@{step.at_us}" + (f"#{pool}" if len(pools) > 1 else ""))
            inside = () if where is True else rows.hold(chosen, step.at_us, where, whose)
            held.append(Held(step.at_us, pool, chosen, inside))
            terms.append((step.cost, chosen))
            surely |= where is True
        if surely and not by_pool:
            break  # whoever waits longer than that does so for nothing
    rows.state()
    last = ctx.model.new_bool_var(f"{gang.label}@last")
    ctx.model.add(dot([(1, v) for v in [*(h.chosen for h in held), *unless, last]]) >= 1)
    return Choice(dot([*terms, (last_cost, last)]), tuple(held))


def slots_on(
    ctx: ModelContext, nodes: IntArray, g: int, at_us: int, room: Room, whose: str = ""
) -> tuple[int, list[tuple[int, cp_model.IntVar]]]:
    """Slots of g GPUs by an instant: what nobody can take, and terms for the nodes where starts, or doubts, can.

    ``whose``: as in :meth:`Room.doubtful`.
    """
    at = room.at(at_us)
    have = at[nodes] // g
    doubtful = room.doubtful(nodes, at_us, whose)
    contested = ctx.contested(at_us)[nodes]
    const = int(have[~contested].sum())
    terms: list[tuple[int, cp_model.IntVar]] = []
    cells: dict[int, int] = {}
    for n, slots, taken in zip(nodes.tolist(), have.tolist(), contested.tolist(), strict=True):
        if taken and slots:
            cells[ctx.layout.cell_of[n]] = cells.get(ctx.layout.cell_of[n], 0) + slots
        elif slots and n in doubtful:
            if len(doubtful[n]) == 1:
                gpus, literal = doubtful[n][0]
                terms.append((max(0, int(at[n]) - gpus) // g - slots, literal))
            else:
                var = ctx.model.new_int_var(0, slots, f"slots@{n},{g}@{at_us}")
                crowded = sum(gpus for gpus, _ in doubtful[n]) > int(at[n])
                _leave(ctx, [(g * var + dot(doubtful[n]), int(at[n]))], var, slots, crowded)
                const -= slots
                terms.append((1, var))
    for c, most in sorted(cells.items()):
        beside = [term for n in ctx.layout.cells[c].nodes for term in doubtful.get(n, ())]
        terms.append((1, _slots(ctx, c, g, at_us, most, room, beside)))
    return const, terms


def _domains_with_room(
    ctx: ModelContext,
    gang: Gang,
    domains: Sequence[IntArray],
    at_us: int,
    room: Room,
    whose: str,
    *,
    told: bool,
) -> list[tuple[IntArray, _Slots]] | Literal[True]:
    """Slots by an instant of the domains that may hold the gang then; True where one does whatever starts.

    ``told``: not True where there are several, as somebody asks which of them it is.
    """
    told = told and 1 < len(domains) <= MOST_TOLD
    out: list[tuple[IntArray, _Slots]] = []
    slots_of = room.at(at_us) // gang.gpus
    for nodes in domains:
        if int(slots_of[nodes].sum()) < gang.replicas:
            continue
        const, terms = slots_on(ctx, nodes, gang.gpus, at_us, room, whose)
        if const + sum(min(0, x) for x, _ in terms) >= gang.replicas and not told:
            return True
        out.append((nodes, _Slots(const, tuple((var.index, x) for x, var in terms), dot(terms) + const)))
    return out


def _slots(
    ctx: ModelContext,
    c: int,
    g: int,
    at_us: int,
    most: int,
    room: Room,
    beside: Sequence[tuple[int, cp_model.IntVar]],
) -> cp_model.IntVar:
    """Slots of g GPUs, at most ``most``, that starts in the way and what is ``beside`` leave a cell by an instant."""
    # Starts and promotions are counted on the whole cell, so its whole room bounds them, asked for or not.
    rooms = room.at(at_us)[list(ctx.layout.cells[c].nodes)]
    late, promoted = ctx.late_kinds(c, at_us), ctx.late_promotions(c, at_us)
    # Mostly nothing on a cell has changed since the instant before: then it is the same variable.
    literals = tuple((gpus, literal.index) for gpus, literal in (*promoted, *beside))
    key = (c, g, most, rooms.tobytes(), tuple(late), literals, room.promised_on(ctx.layout.cells[c].nodes))
    if key not in ctx.slots_at:
        var = ctx.slots_at[key] = ctx.model.new_int_var(0, most, f"slots{c},{g}@{at_us}")
        held = dot(promoted) + dot(beside)
        # A replica of g_k GPUs takes at least ⌊g_k / g⌋ slots away.
        taken = [(ctx.kind(k).gpus // g, ctx.a[k, c]) for k in late if ctx.kind(k).gpus >= g]
        rows = [(g * var + ctx.used(c, late) + held, int(rooms.sum())), (var + dot(taken), int((rooms // g).sum()))]
        _leave(ctx, rows, var, most, room.promised_on(ctx.layout.cells[c].nodes))
    return ctx.slots_at[key]


def _leave(
    ctx: ModelContext, rows: Sequence[tuple[Linear, int]], slots: cp_model.IntVar, most: int, crowded: bool
) -> None:
    """Rows that bind the slots left; where more may be there than there is room for, only if any are left.

    That happens on promised GPUs: who is there without keeping the promise leaves no slot, and is not forbidden.
    """
    if not crowded:
        for load, room in rows:
            ctx.model.add(load <= room)
        return
    some = ctx.model.new_bool_var("")
    ctx.model.add(slots <= most * some)
    for load, room in rows:
        ctx.model.add(load <= room).only_enforce_if(some)
