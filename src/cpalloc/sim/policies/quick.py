"""Rounds that need no solver: nothing pending has room, and nothing that runs may be preempted or promoted.

Then the status quo is the only decision there is, so it is the optimum of every tier.
"""

from __future__ import annotations

from collections.abc import Sequence

from cpalloc.sim.state import State


def nothing_can_change(state: State, shown: Sequence[int]) -> bool:
    """Whether keeping everything is the only decision (drains and failures are the simulator's)."""
    return not any_evictable(state) and not any_has_room(state, shown)


def any_evictable(state: State) -> bool:
    """Whether rules 1 to 3 of policy section 4 let any running job be preempted; only borrowed ones are promoted."""
    if state.borrowed_gpus:
        return True
    under = state.config.site.preempt_under_share
    past = {state.jobs.leaf[j] for j in state.running if not state.is_protected(j)}
    return bool(past) and (under or any(over_share(state, leaf) for leaf in past))


def over_share(state: State, leaf: int) -> bool:
    """Whether charged / owed is over 1 (infinite where nothing is owed)."""
    owed = state.ledger.owed(leaf, state.now_s)
    return owed == 0 or state.ledger.charged(leaf, state.now_s) > owed


def any_has_room(state: State, shown: Sequence[int]) -> bool:
    """Whether some job might start on what is free: enough slots of its size in a pool it accepts."""
    if not state.idle_gpus:
        return False
    jobs, pool = state.jobs, state.nodes.pool
    free = [(pool[n], gpus) for n, gpus in enumerate(state.free_gpus) if gpus]
    slots: dict[tuple[int, int], int] = {}
    for job in shown:
        each = jobs.gpus_per_replica[job]
        for p in jobs.pools[job]:
            if (p, each) not in slots:
                slots[p, each] = sum(gpus // each for q, gpus in free if q == p)
            if slots[p, each] >= jobs.replicas[job]:
                return True
    return False
