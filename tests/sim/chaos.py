"""Random workloads, and a policy that does random things within the rules: everything that can happen, happens."""

from __future__ import annotations

import numpy as np

from cpalloc.problem.problem import Mode
from cpalloc.schema import Budget, Node
from cpalloc.schema.types import Funding, NodeState, Priority
from cpalloc.sim.policies.areas import one_area
from cpalloc.sim.policies.base import Moves, News, Start, Traits
from cpalloc.sim.policies.best_fit import BestFit
from cpalloc.sim.policies.placement import place
from cpalloc.sim.policies.room import Area, Room
from cpalloc.sim.state import State
from cpalloc.sim.workload import BudgetChange, NodeEvent, WorkJob, Workload
from sim.worlds import world


def random_workload(seed: int, *, jobs: int = 40, span_s: int = 2_000) -> Workload:
    """A few nodes in racks and two pools, jobs of every kind, drains, failures, repairs, other budgets."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(3, 6))
    cluster = [
        Node(
            name=f"n{i}",
            gpu_type="a100" if i == 0 else "h100",
            gpus=8 if i else 4,
            domains={"rack": f"r{i // 2}"},
            unhealthy_gpus=(1,) if i == 1 and rng.random() < 0.5 else (),
        )
        for i in range(count)
    ]
    events = []
    for at in sorted(rng.integers(0, span_s, size=int(rng.integers(0, 8))).tolist()):
        events.append(NodeEvent(at, f"n{rng.integers(count)}", list(NodeState)[int(rng.integers(3))]))
    events += [NodeEvent(span_s, f"n{i}", NodeState.READY) for i in range(count)]
    change = BudgetChange(span_s // 2, tuple(Budget(name=t, weight=w) for t, w in (("a", 1), ("b", 0), ("d", 2))))
    return world(
        [_random_job(rng, i, span_s) for i in range(jobs)],
        cluster,
        teams={"a": 2, "b": 1, "c": 1},
        levels=("rack",),
        node_events=tuple(events),
        budget_changes=(change,) if rng.random() < 0.5 else (),
    )


def _random_job(rng: np.random.Generator, i: int, span_s: int) -> WorkJob:
    replicas = int(rng.choice([1, 1, 1, 2, 3]))
    return WorkJob(
        id=f"j{i:03}",
        budget=str(rng.choice(["a", "b", "c"])),
        submitted_s=int(rng.integers(0, span_s) // 50 * 50),
        replicas=replicas,
        gpus_per_replica=int(rng.choice([1, 2, 4, 8, 3])),
        work_s=int(rng.choice([0, 1, 40, 200, 700])),
        order=int(rng.integers(3)),
        priority=list(Priority)[int(rng.integers(5))],
        min_runtime_s=int(rng.choice([0, 30, 150])),
        timeout_s=int(rng.choice([-1, -1, 300])),
        resumable=bool(rng.random() < 0.7),
        restart_cost_s=int(rng.choice([0, 10])),
        checkpoint_interval_s=int(rng.choice([0, 25])),
        funding=[None, Funding.ANY, Funding.BORROWED, Funding.ALLOCATED][int(rng.integers(4))],
        gpu_types=None if rng.random() < 0.8 else ("h100",),
        required_level="rack" if rng.random() < 0.2 else None,
        preferred_level="rack" if rng.random() < 0.2 else None,
        wants_opt_out=bool(rng.random() < 0.2),
        inflates=bool(rng.random() < 0.2),
    )


class Chaos:
    """Preempts, promotes and starts at random, inside the rules of protection."""

    name = "chaos"
    traits = Traits(protects=True)

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._areas: list[Area] = []

    def begin(self, state: State) -> None:
        self._areas, _ = one_area(state)

    def decide(self, state: State, news: News) -> Moves:
        rng, jobs = self._rng, state.jobs
        room = Room(state)
        able = [j for j in state.running if not state.is_protected(j)]
        preempts = [j for j in able if rng.random() < 0.15]
        for j in preempts:
            room.give(state.places[j])
        borrowed = [j for j in able if state.mode[j] is Mode.BORROWED and jobs.may_allocate[j]]
        promotes = [j for j in borrowed if j not in preempts and rng.random() < 0.3]
        starts = []
        for j in state.pending:
            modes = [
                m for m, may in ((Mode.ALLOCATED, jobs.may_allocate[j]), (Mode.BORROWED, jobs.may_borrow[j])) if may
            ]
            places = place(BestFit(), state, room, self._areas[0], j) if modes and rng.random() < 0.8 else None
            if places is not None:
                room.take(places)
                starts.append(Start(j, modes[int(rng.integers(len(modes)))], places))
        wake_s = state.now_s + 37 if rng.random() < 0.3 else -1
        return Moves(starts=starts, preempts=preempts, promotes=promotes, wake_s=wake_s)
