"""Small histories built by hand: jobs, runs and node events in, a full History out.

>>> h = history(jobs=[job("a", gpus=8)], runs=[run("a", 0, 3600, at={"n0": 8})], end_s=7200)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np

from cpalloc.problem.problem import Mode
from cpalloc.schema import Budget, Cluster, Node
from cpalloc.schema.types import Funding, JobKind, NodeState
from cpalloc.sim.history import History, JobEnd, Places, RoundPath, Rounds, RunEnd, Runs, Samples
from cpalloc.sim.workload import NodeEvent, Provenance, WorkJob, Workload

HOUR = 3600
ENDS = {
    RunEnd.OPEN: JobEnd.RUNNING,
    RunEnd.FINISHED: JobEnd.DONE,
    RunEnd.TIMED_OUT: JobEnd.TIMED_OUT,
    RunEnd.PREEMPTED: JobEnd.WAITING,
    RunEnd.DRAINED: JobEnd.WAITING,
    RunEnd.LOST: JobEnd.WAITING,
}


@dataclass(frozen=True)
class Stretch:
    """A run of a job; ``at``: GPUs per node, counted from its first GPU that is free in the list, or a device list."""

    job: str
    start_s: int
    end_s: int
    at: Mapping[str, int | Sequence[int]]
    mode: Mode = Mode.ALLOCATED
    end: RunEnd = RunEnd.FINISHED
    before_s: int = 0
    saved_s: int | None = None
    restart_s: int = 0
    protected_until_s: int = -1


@dataclass(frozen=True)
class Sample:
    at_s: int
    charged: Sequence[int] = ()
    owed: Sequence[int] = ()
    stranded: float = 0.0
    time_to_place_s: float = 0.0
    largest_gang: int = 0


@dataclass(frozen=True)
class Turn:
    """A round."""

    at_s: int
    preempted: int = 0
    path: RoundPath = RoundPath.SOLVED
    unproved: int = 0
    seconds: float = 0.0


def job(
    name: str,
    budget: str = "x",
    submitted_s: int = 0,
    *,
    gpus: int = 1,
    replicas: int = 1,
    work_s: int = HOUR,
    min_runtime_s: int = HOUR,
    timeout_s: int = -1,
    interactive: bool = False,
    borrowed: bool = False,
    gpu_types: tuple[str, ...] | None = None,
) -> WorkJob:
    return WorkJob(
        id=name,
        budget=budget,
        submitted_s=submitted_s,
        replicas=replicas,
        gpus_per_replica=gpus,
        work_s=work_s,
        min_runtime_s=min_runtime_s,
        timeout_s=timeout_s,
        resumable=True,
        kind=JobKind.INTERACTIVE if interactive else JobKind.BATCH,
        funding=Funding.BORROWED if borrowed else None,
        gpu_types=gpu_types,
    )


def run(
    name: str,
    start_s: int,
    end_s: int,
    at: Mapping[str, int | Sequence[int]],
    *,
    mode: Mode = Mode.ALLOCATED,
    end: RunEnd = RunEnd.FINISHED,
    before_s: int = 0,
    saved_s: int | None = None,
    restart_s: int = 0,
    protected_until_s: int = -1,
) -> Stretch:
    return Stretch(name, start_s, end_s, at, mode, end, before_s, saved_s, restart_s, protected_until_s)


@dataclass(frozen=True)
class Lab:
    """The cluster: nodes ``n0`` … (``n00`` … from eleven on), of types in turn; leaves and their shares."""

    nodes: int = 2
    gpus: int = 8
    shares: Mapping[str, float] = field(default_factory=lambda: {"x": 0.5, "y": 0.5})
    gpu_type: Sequence[str] = ("h100",)


def history(
    *,
    jobs: Sequence[WorkJob],
    runs: Sequence[Stretch] = (),
    end_s: int,
    lab: Lab | None = None,
    start_s: int = 0,
    events: Sequence[NodeEvent] = (),
    shares: Sequence[tuple[int, Sequence[float]]] = (),
    ends: Mapping[str, JobEnd] | None = None,
    finished_s: Mapping[str, int] | None = None,
    rounds: Sequence[Turn] = (),
    samples: Sequence[Sample] = (),
    policy: str = "made-up",
    seed: int = 1,
    provenance: Provenance = Provenance.CONSTRUCTED,
) -> History:
    lab = lab or Lab()
    names = tuple(f"n{i:0{len(str(lab.nodes - 1))}}" for i in range(lab.nodes))
    nodes = tuple(
        Node(name=name, gpu_type=lab.gpu_type[i % len(lab.gpu_type)], gpus=lab.gpus) for i, name in enumerate(names)
    )
    workload = Workload(
        name="toy",
        provenance=provenance,
        epoch=datetime(2026, 1, 5, tzinfo=UTC),
        cluster=Cluster(name="c", levels=(), nodes=nodes),
        budgets=tuple(Budget(name=name, weight=1) for name in lab.shares),
        jobs=tuple(jobs),
        node_events=tuple(events),
        notes=("made up for tests",),
    )
    capacity_s, capacity = _capacity(nodes, events, start_s)
    share_steps = list(shares) or [(start_s, list(lab.shares.values()))]
    job_end, finished = _job_ends(jobs, runs, ends or {}, finished_s or {})
    return History(
        workload=workload,
        policy=policy,
        seed=seed,
        start_s=start_s,
        end_s=end_s,
        window_s=168 * HOUR,
        installed_gpus=lab.nodes * lab.gpus,
        leaf_names=tuple(lab.shares),
        node_names=names,
        capacity_s=capacity_s,
        capacity_gpus=capacity,
        share_s=np.array([at for at, _ in share_steps], dtype=np.int64),
        share=np.array([level for _, level in share_steps], dtype=np.float64),
        runs=_runs(jobs, runs, names),
        places=_places(runs, names),
        rounds=_rounds(rounds),
        samples=_samples(samples, len(lab.shares)),
        job_end=job_end,
        finished_s=finished,
    )


def _capacity(nodes: Sequence[Node], events: Sequence[NodeEvent], start_s: int) -> tuple[np.ndarray, np.ndarray]:
    state = {node.name: NodeState.READY for node in nodes}
    steps = {start_s: sum(node.gpus for node in nodes)}
    for event in sorted(events, key=lambda e: e.at_s):
        state[event.node] = event.state
        steps[event.at_s] = sum(node.gpus for node in nodes if state[node.name] is NodeState.READY)
    return np.array(list(steps), dtype=np.int64), np.array(list(steps.values()), dtype=np.int64)


def _job_ends(
    jobs: Sequence[WorkJob], runs: Sequence[Stretch], ends: Mapping[str, JobEnd], finished_s: Mapping[str, int]
) -> tuple[np.ndarray, np.ndarray]:
    last = {r.job: r for r in sorted(runs, key=lambda r: r.start_s)}
    state = {j.id: ends.get(j.id, ENDS[last[j.id].end] if j.id in last else JobEnd.WAITING) for j in jobs}
    gone = {JobEnd.DONE, JobEnd.TIMED_OUT, JobEnd.KILLED}
    own_end = {name: r.end_s for name, r in last.items() if state[name] in gone}
    left = [finished_s.get(j.id, own_end.get(j.id, -1)) for j in jobs]
    return np.array([state[j.id] for j in jobs], dtype=np.int64), np.array(left, dtype=np.int64)


def _runs(jobs: Sequence[WorkJob], runs: Sequence[Stretch], names: Sequence[str]) -> Runs:
    number = {j.id: i for i, j in enumerate(jobs)}
    assert [r.start_s for r in runs] == sorted(r.start_s for r in runs), "give runs in order of their start"
    full = (RunEnd.FINISHED, RunEnd.OPEN, RunEnd.PROMOTED, RunEnd.TIMED_OUT)

    def saved(r: Stretch) -> int:
        reached = r.before_s + r.end_s - r.start_s - r.restart_s
        return r.saved_s if r.saved_s is not None else reached if r.end in full else r.before_s

    def column(values: Sequence[int]) -> np.ndarray:
        return np.array(values, dtype=np.int64)

    return Runs(
        job=column([number[r.job] for r in runs]),
        start_s=column([r.start_s for r in runs]),
        end_s=column([-1 if r.end is RunEnd.OPEN else r.end_s for r in runs]),
        mode=column([r.mode for r in runs]),
        end=column([r.end for r in runs]),
        work_before_s=column([r.before_s for r in runs]),
        work_saved_s=column([saved(r) for r in runs]),
        restart_s=column([r.restart_s for r in runs]),
        protected_until_s=column([r.protected_until_s for r in runs]),
        first_place=column([0, *np.cumsum([len(r.at) for r in runs])] if runs else [0]),
    )


def _places(runs: Sequence[Stretch], names: Sequence[str]) -> Places:
    rows = []
    for r in runs:
        for name, gpus in r.at.items():
            devices = range(gpus) if isinstance(gpus, int) else gpus
            rows.append((names.index(name), len(devices), sum(1 << d for d in devices)))
    table = np.array(rows, dtype=np.int64).reshape(len(rows), 3)
    return Places(node=table[:, 0], gpus=table[:, 1], devices=table[:, 2])


def _rounds(turns: Sequence[Turn]) -> Rounds:
    def column(values: Sequence[int]) -> np.ndarray:
        return np.array(values, dtype=np.int64)

    return Rounds(
        at_s=column([t.at_s for t in turns]),
        pending=column([0] * len(turns)),
        started=column([0] * len(turns)),
        preempted=column([t.preempted for t in turns]),
        path=column([t.path for t in turns]),
        proved=column([t.unproved == 0 for t in turns]),
        unproved_tiers=column([t.unproved for t in turns]),
        seconds=np.array([t.seconds for t in turns], dtype=np.float64),
    )


def _samples(samples: Sequence[Sample], leaves: int) -> Samples:
    zeros = np.zeros(len(samples), dtype=np.int64)

    def leafwise(values: Sequence[Sequence[int]]) -> np.ndarray:
        full = [list(v) or [0] * leaves for v in values]
        return np.array(full, dtype=np.int64).reshape(len(samples), leaves)

    return Samples(
        at_s=np.array([s.at_s for s in samples], dtype=np.int64),
        in_service=zeros,
        allocated=zeros,
        borrowed=zeros,
        pending=zeros,
        charged=leafwise([s.charged for s in samples]),
        owed=leafwise([s.owed for s in samples]),
        stranded=np.array([s.stranded for s in samples], dtype=np.float64),
        time_to_place_s=np.array([s.time_to_place_s for s in samples], dtype=np.float64),
        largest_gang=np.array([s.largest_gang for s in samples], dtype=np.int64),
    )
