"""A small study to draw: 2 nodes, 30 hours, protected, unprotected, borrowed and preempted work under two policies."""

from __future__ import annotations

from cpalloc.problem.problem import Mode
from cpalloc.schema.types import NodeState
from cpalloc.sim.history import History, RunEnd
from cpalloc.sim.measures import compare, summary
from cpalloc.sim.measures.compare import Comparison
from cpalloc.sim.workload import NodeEvent, Provenance
from sim.measures.histories import HOUR, Sample, Turn, history, job, run

END_S = 30 * HOUR
JOBS = (
    job("a", "x", 0, gpus=8, replicas=2, work_s=12 * HOUR, min_runtime_s=4 * HOUR),
    job("b", "y", HOUR, gpus=4, work_s=6 * HOUR, borrowed=True),
    job("c", "y", 2 * HOUR, gpus=8, work_s=5 * HOUR),
    job("d <&>", "x", 3 * HOUR, gpus=1, work_s=600, min_runtime_s=300),
    job("e", "y", 4 * HOUR, gpus=8, replicas=2),
)


def _samples() -> list[Sample]:
    return [
        Sample(h * HOUR, charged=(h * 100, h * 50), owed=(h * 80, h * 80), stranded=h % 5, time_to_place_s=h * 60)
        for h in range(30)
    ]


def preempting(seed: int = 1, provenance: Provenance = Provenance.CONSTRUCTED) -> History:
    """a: protected 4 h, runs on, is preempted at 8 h. b borrows. n1 drains at 26 h."""
    return history(
        jobs=JOBS,
        runs=[
            run(
                "a",
                0,
                8 * HOUR,
                {"n0": 8, "n1": 8},
                end=RunEnd.PREEMPTED,
                saved_s=7 * HOUR,
                protected_until_s=4 * HOUR,
            ),
            run("c", 8 * HOUR, 13 * HOUR, {"n0": 8}, protected_until_s=9 * HOUR),
            run("b", 8 * HOUR, 14 * HOUR, {"n1": 4}, mode=Mode.BORROWED),
            run("d <&>", 9 * HOUR, 9 * HOUR + 600, {"n1": [5]}, protected_until_s=9 * HOUR + 300),
            run(
                "a", 14 * HOUR, -1, {"n0": 8, "n1": 8}, before_s=7 * HOUR, end=RunEnd.OPEN, protected_until_s=18 * HOUR
            ),
        ],
        end_s=END_S,
        events=[NodeEvent(26 * HOUR, "n1", NodeState.DRAINING)],
        samples=_samples(),
        rounds=[Turn(8 * HOUR, preempted=1, seconds=0.5)],
        policy="cuts",
        seed=seed,
        provenance=provenance,
    )


def calm(seed: int = 1) -> History:
    """First come, first served: nothing is protected and nothing preempted."""
    return history(
        jobs=JOBS,
        runs=[
            run("a", 0, 12 * HOUR, {"n0": 8, "n1": 8}),
            run("b", 12 * HOUR, 18 * HOUR, {"n0": [0, 1, 2, 5]}),
            run("c", (12 + seed) * HOUR, (17 + seed) * HOUR, {"n1": 8}),
            run("d <&>", 20 * HOUR, 20 * HOUR + 600, {"n0": 1}),
        ],
        end_s=END_S,
        samples=_samples(),
        rounds=[Turn(0)],
        policy="fifo",
        seed=seed,
    )


def histories() -> dict[str, History]:
    return {"first come": calm(), "with preemption": preempting()}


def comparison() -> Comparison:
    seeds = (1, 2)
    return compare(
        {
            "first come": [summary(calm(seed)) for seed in seeds],
            "with preemption": [summary(preempting(seed)) for seed in seeds],
        }
    )
