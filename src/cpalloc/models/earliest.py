"""When a gang could be held at the earliest, as a lower bound the solver can trade against starts.

For a gang of R replicas of g GPUs and increasing instants t_k, choosing t_k needs a domain whose nodes have the slots
by then: Σ_n ⌊(room_n(t_k) − GPUs of starts still in the way at t_k) / g⌋ ≥ R. ``room`` counts everything that may have
left by t_k, so the cheapest choice never exceeds the exact value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ortools.sat.python import cp_model

from cpalloc.models.variables import Linear, ModelContext, dot

MAX_STEPS = 16
"""Most instants a gang may choose among; more are thinned, each choice then costing the step before it."""


class Room(Protocol):
    """What may have left by an instant, beside the starts of this round; never less than what will have."""

    def __call__(self, node: int, at_us: int) -> int:
        """GPUs of a node that may be there at an instant."""
        ...

    def total(self, nodes: Sequence[int], at_us: int) -> int:
        """GPUs of some nodes together that may be there at an instant."""
        ...


@dataclass(frozen=True, slots=True)
class Gang:
    """A gang that waits: replicas of ``gpus`` GPUs inside one of ``domains`` (nodes of each)."""

    label: str
    replicas: int
    gpus: int
    domains: Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True)
class Step:
    """A choice: by ``at_us`` there must be room; choosing it costs ``cost``."""

    at_us: int
    cost: int


def steps(instants_us: Sequence[int], cost_of: Callable[[int], int], least: int, most: int) -> list[Step]:
    """Choices among instants whose cost lies in [least, most); thinned ones cost what their predecessor leaves open."""
    wanted = sorted({t for t in instants_us if cost_of(t) < most})
    first = [t for t in wanted if cost_of(t) <= least][-1:]
    wanted = first + [t for t in wanted if cost_of(t) > least]
    if len(wanted) <= MAX_STEPS:
        return [Step(t, max(least, cost_of(t))) for t in wanted]
    picked = [wanted[(i + 1) * len(wanted) // MAX_STEPS - 1] for i in range(MAX_STEPS)]
    out, previous = [], -1
    for t in picked:
        out.append(Step(t, max(least, cost_of(wanted[previous + 1]))))
        previous = wanted.index(t)
    return out


def cost_of_waiting(
    ctx: ModelContext,
    gang: Gang,
    choices: Sequence[Step],
    last_cost: int,
    room: Room,
    unless: Sequence[cp_model.IntVar] = (),
) -> Linear:
    """Cost of the choice made; ``last_cost`` where none of the choices holds, 0 where one of ``unless`` does."""
    literals: list[cp_model.IntVar] = []
    terms: list[tuple[int, cp_model.IntVar]] = []
    for step in choices:
        where = _domains_with_room(ctx, gang, step.at_us, room)
        if where is True:
            last_cost = min(last_cost, step.cost)
            break
        if not where:
            continue
        chosen = ctx.model.new_bool_var(f"{gang.label}@{step.at_us}")
        ctx.model.add(dot([(1, h) for h in where]) >= chosen)
        literals.append(chosen)
        terms.append((step.cost, chosen))
    last = ctx.model.new_bool_var(f"{gang.label}@last")
    ctx.model.add(dot([(1, v) for v in [*literals, *unless, last]]) >= 1)
    return dot([*terms, (last_cost, last)])


def _domains_with_room(ctx: ModelContext, gang: Gang, at_us: int, room: Room) -> list[cp_model.IntVar] | bool:
    """A literal per domain that may hold the gang at an instant; True where one does whatever starts."""
    out = []
    for i, nodes in enumerate(gang.domains):
        have = {n: room(n, at_us) // gang.gpus for n in nodes}
        if sum(have.values()) < gang.replicas or room.total(nodes, at_us) < gang.replicas * gang.gpus:
            continue
        const, cells = 0, set()
        for n, slots in have.items():
            c = ctx.layout.cell_of.get(n)
            if slots and (c is None or not (ctx.late_kinds(c, at_us) or ctx.late_promotions(c, at_us))):
                const += slots
            elif slots and c is not None:
                cells.add(c)
        if const >= gang.replicas:
            return True
        holds = ctx.model.new_bool_var(f"{gang.label}@{at_us},{i}")
        slots_of = [
            _slots(ctx, c, gang.gpus, at_us, {n: have.get(n, 0) for n in ctx.layout.cells[c].nodes}, room)
            for c in sorted(cells)
        ]
        ctx.model.add(dot([(1, v) for v in slots_of]) + const >= gang.replicas).only_enforce_if(holds)
        out.append(holds)
    return out


def _slots(ctx: ModelContext, c: int, g: int, at_us: int, have: Mapping[int, int], room: Room) -> cp_model.IntVar:
    """Slots of g GPUs that the starts in the way leave in a cell by an instant."""
    key = (c, g, at_us, tuple(have.values()))
    if key not in ctx.slots_at:
        late = ctx.late_kinds(c, at_us)
        most = sum(have.values())
        var = ctx.slots_at[key] = ctx.model.new_int_var(0, most, f"slots{c},{g}@{at_us}")
        held = dot(ctx.late_promotions(c, at_us))
        ctx.model.add(g * var + ctx.used(c, late) + held <= sum(room(n, at_us) for n, s in have.items() if s))
        # A replica of g_k GPUs takes at least ⌊g_k / g⌋ slots away.
        taken = [(ctx.kind(k).gpus // g, ctx.a[k, c]) for k in late if ctx.kind(k).gpus >= g]
        ctx.model.add(var + dot(taken) <= most)
    return ctx.slots_at[key]
