"""What gangs that wait leave each other: held at the same time they share no GPU (``models/earliest.py``)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from ortools.sat.python import cp_model

from cpalloc.models.earliest import Choice, Gang, Held, Room, slots_on
from cpalloc.models.variables import Linear, ModelContext, dot
from cpalloc.problem.problem import IntArray

MOST_ACROSS = 16
"""Most domains for which it is told what gangs held earlier leave of them: rows over all nodes, two instants each."""

_Row = tuple[Gang, Sequence[tuple[int, cp_model.IntVar]]]
"""A gang, and when it is held, if a literal says so."""


def share(ctx: ModelContext, gangs: Sequence[tuple[Gang, Choice]], pool: int, nodes: IntArray, room: Room) -> None:
    """Gangs held at the same time share no GPU: on all ``nodes`` of a pool, and in each domain of it."""
    here = [(gang, [h for h in choice.held if h.pool == pool]) for gang, choice in gangs]
    _share_on(ctx, [(gang, [(h.at_us, h.chosen) for h in row]) for gang, row in here], nodes, room)
    if not ctx.partition.fine:
        return
    domains = _domains_of(here, nodes)
    for domain in domains:
        rows = [
            (gang, [(h.at_us, var) for h in row for own, var in h.inside if np.isin(own, domain).all()])
            for gang, row in here
        ]
        _share_on(ctx, rows, domain, room)
        if len(domains) > MOST_ACROSS:
            continue
        inner = {gang.label for gang, row in rows if row}
        anywhere = [(gang, [(h.at_us, h.chosen) for h in row]) for gang, row in here if gang.label not in inner]
        _share_across(ctx, anywhere, rows, domain, np.setdiff1d(nodes, domain), room)


def _domains_of(here: Sequence[tuple[Gang, Sequence[Held]]], nodes: IntArray) -> list[IntArray]:
    """Domains, smaller than a pool, in which some gang may be held."""
    out = {own.tobytes(): own for _, row in here for h in row for own, _ in h.inside if len(own) < len(nodes)}
    return list(out.values())


def _share_on(ctx: ModelContext, rows: Sequence[_Row], nodes: IntArray, room: Room) -> None:
    """For every instant t and size g: Σ_{gangs held by t, g_j ≥ g} R_j · ⌊g_j / g⌋ ≤ Σ_n slots of g GPUs by t.

    Who could be held at once is promised nothing; each of them, but not all of them together, has its GPUs beside what
    is promised to the others.
    """
    now_us = ctx.problem.now_us
    able = [(gang, var) for gang, row in rows for at_us, var in row if at_us <= now_us]
    here = [(gang, later) for gang, row in rows if (later := [(t, var) for t, var in row if t > now_us])]
    among = {gang.label: gang for gang, _ in [*here, *able]}.values()
    if len(among) < 2 or not here:
        return
    instants = sorted({at_us for _, row in here for at_us, _ in row})
    sizes = sorted({gang.gpus for gang in among})
    for g in sizes:
        ctx.check_time()
        at_once = [(gang.label, [(gang.replicas * (gang.gpus // g), var)]) for gang, var in able if gang.gpus >= g]
        stated = set[object]()
        for whose, beside in [*at_once, ("", [])]:
            # More are held by every later instant: while the slots are the same the last row says what all of them do.
            last: dict[object, tuple[list[tuple[int, cp_model.IntVar]], Linear]] = {}
            for at_us in instants:
                if taken := _taken(here, g, at_us):
                    const, terms = slots_on(ctx, nodes, g, at_us, room, whose)
                    last[const, tuple((x, var.index) for x, var in terms)] = taken, dot(terms) + const
            for key, (taken, slots) in last.items():
                if beside or key not in stated:
                    ctx.model.add(dot([*taken, *beside]) <= slots)
            stated |= last.keys()
    if ctx.partition.fine:
        for g, larger in combinations(sizes, 2):
            if larger % g == 0:
                _share_over_time(ctx, here, (g, larger), instants, nodes, room)


def _taken(
    here: Sequence[_Row], g: int, by_us: int, below: int | None = None, *, after_us: int = -1
) -> list[tuple[int, cp_model.IntVar]]:
    """(slots of g GPUs, literal) that gangs of g GPUs and more, and less than ``below``, take by an instant."""
    return [
        (gang.replicas * (gang.gpus // g), var)
        for gang, row in here
        if gang.gpus >= g and (below is None or gang.gpus < below)
        for at_us, var in row
        if after_us < at_us <= by_us
    ]


def _share_across(
    ctx: ModelContext, anywhere: Sequence[_Row], inner: Sequence[_Row], domain: IntArray, outside: IntArray, room: Room
) -> None:
    """Who can be held early only with nodes of a domain leaves less of it to those who are held there later.

    For instants s < t and size g: gangs held anywhere by s and in the domain by t take at most
    Σ_{n outside} slots of g by s + Σ_{n in the domain} slots of g by t.
    """
    now_us = ctx.problem.now_us
    early = sorted({at_us for _, row in anywhere for at_us, _ in row if at_us > now_us})
    late = sorted({at_us for _, row in inner for at_us, _ in row if at_us > now_us})
    sizes = sorted({gang.gpus for gang, row in [*anywhere, *inner] if row})
    for g in sizes:
        there = {t: slots_on(ctx, domain, g, t, room) for t in late}
        for s in early:
            ctx.check_time()
            const, terms = slots_on(ctx, outside, g, s, room)
            first = _taken(anywhere, g, s, after_us=now_us)
            for t in (t for t in late if t > s):
                second = _taken(inner, g, t, after_us=now_us)
                if first and second:
                    ctx.model.add(dot([*first, *second]) <= dot([*terms, *there[t][1]]) + const + there[t][0])


def _share_over_time(
    ctx: ModelContext,
    here: Sequence[_Row],
    sizes: tuple[int, int],
    instants: Sequence[int],
    nodes: IntArray,
    room: Room,
) -> None:
    """A small gang held early can only be where there is room early, and is still there when a large one is held.

    For sizes g | G and instants s < t, with E the nodes that have room for g by s: small gangs held by s and gangs of G
    held by t take, in slots of g, at most Σ_{n in E} slots of g by t + G/g · Σ_{n not in E} slots of G by t.
    """
    g, larger = sizes
    for early_us, late_us in combinations(instants, 2):
        ctx.check_time()
        small, large = _taken(here, g, early_us, larger), _taken(here, larger, late_us, larger + 1)
        early = room.at(early_us)[nodes] >= g
        if not small or not large or early.all():
            continue
        const, terms = slots_on(ctx, nodes[early], g, late_us, room)
        const_, terms_ = slots_on(ctx, nodes[~early], larger, late_us, room)
        each = larger // g
        load = dot([*small, *((each * n, chosen) for n, chosen in large)])
        ctx.model.add(load <= dot([*terms, *((each * n, var) for n, var in terms_)]) + const + each * const_)
