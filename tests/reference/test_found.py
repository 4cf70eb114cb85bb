"""Rounds in which the search over all decisions found the solver wrong, or unable to prove what it had; cut down."""

from __future__ import annotations

from typing import Any

from cpalloc.problem.compile import compile_round
from cpalloc.schema import parse_round
from reference.test_brute_force import Result, compare
from reference.tiny_rounds import HOUR, OWED, TIERS, at

Doc = dict[str, Any]


def leaf(name: str, ratio: float, **fields: Any) -> Doc:
    return {
        "name": name,
        "weight": 1,
        "charged_gpu_seconds": int(OWED * ratio),
        "owed_gpu_seconds": OWED,
        **fields,
    }


def job(name: str, budget: str, gpus: int, replicas: int = 1, **fields: Any) -> Doc:
    base = {"id": name, "budget": budget, "gpus_per_replica": gpus, "replicas": replicas, "submitted_at": at(300)}
    return {**base, "min_runtime": HOUR, "resumable": True, **fields}


def runs(name: str, budget: str, mode: str, *places: tuple[str, Any], age: int = 1200, **fields: Any) -> Doc:
    held = [{"node": node, "gpus": gpus} for node, gpus in places]
    first = places[0][1]
    base = job(name, budget, first if isinstance(first, int) else len(first), len(places), **fields)
    run = {"mode": mode, "started_at": at(age), "placement": held}
    return {**base, "submitted_at": at(age + 60), "running": run}


def node(name: str, gpus: int, **fields: Any) -> Doc:
    return {"name": name, "gpu_type": "h100", "gpus": gpus, **fields}


def agreed(nodes: list[Doc], budgets: list[Doc], jobs: list[Doc], *, proved: bool = True, **policy: Any) -> None:
    """The solver agrees with the search, and proves all of it unless said otherwise."""
    doc = {
        "schema_version": 1,
        "now": at(0),
        "cluster": {"name": "tiny", "levels": [], "nodes": nodes},
        "budgets": budgets,
        "jobs": jobs,
        "policy": {"reservations": 0, "charge_horizon": 600, "tiers": TIERS, **policy},
        "options": {"time_limit": 30, "workers": 1},
    }
    result = Result()
    compare(0, result, problem=compile_round(parse_round(doc)).problem)
    assert result.failures == []
    if proved:
        assert result.proved == result.parts


def test_protection_of_a_promoted_job_ends_at_an_instant_of_its_own() -> None:
    """One of two may be promoted (claim 1); the one protected for less time leaves less fragmentation."""
    agreed(
        [node("n0", 3), node("n1", 3, unhealthy_gpus=[1])],
        [leaf("x", 1.01), leaf("y", 0.0)],
        [
            runs("whole", "x", "allocated", ("n0", [0, 1, 2]), age=30 * HOUR),
            runs("long", "x", "borrowed", ("n1", [0]), ("n1", [1]), age=5 * HOUR, funding="any", min_runtime=HOUR),
            runs("short", "x", "borrowed", ("n1", [2]), funding="any", min_runtime=1200, resumable=False),
            job("late", "x", 3, min_runtime=300, priority="low", exclusive_nodes=True),
            job("first", "y", 1, exclude_nodes=["n1"], min_runtime=300, exclusive_nodes=True),
            job("more", "y", 3, submitted_at=at(60), exclusive_nodes=True),
        ],
        proved=False,
    )


def test_jobs_of_one_gpu_group_stay_off_nodes_with_unknown_devices() -> None:
    agreed(
        [node("n0", 4)],
        [leaf("x", 0.2), leaf("y", 0.5)],
        [
            runs("counted", "x", "allocated", ("n0", 1)),
            job("single", "y", 1, 3, same_gpu_group=True),
        ],
    )


def test_starts_of_a_merged_cell_are_not_squeezed_into_one_of_its_nodes() -> None:
    """n0 and n2 are alike; a shape of level ``node`` asks for the room of each by itself."""
    agreed(
        [node("n0", 4), node("n1", 4), node("n2", 4)],
        [leaf("x", 0.5)],
        [
            runs("guest", "x", "borrowed", ("n1", [0]), age=60, min_runtime=0),
            job("pair", "x", 2, 2, topology={"required": "node"}, funding="any"),
            job("two", "x", 2, min_runtime=300),
            job("late", "x", 2, min_runtime=8 * HOUR, priority="urgent"),
        ],
        charge_horizon=50_000,
    )


def test_free_gpus_beside_a_kept_exclusive_job_are_stranded() -> None:
    agreed(
        [node("n0", 3), node("n1", 3)],
        [leaf("x", 0.8), leaf("y", 0.3)],
        [
            runs("alone", "x", "allocated", ("n0", [0]), exclusive_nodes=True),
            runs("full", "y", "allocated", ("n1", [0, 1, 2])),
            job("waits", "y", 2),
        ],
    )


def test_counts_beyond_the_healthy_gpus_of_a_node_give_nothing_back() -> None:
    """Three healthy GPUs, four held by counts: when two of them leave one is free, not two."""
    agreed(
        [node("n0", 4, unhealthy_gpus=[3]), node("n1", 4)],
        [leaf("x", 1.1), leaf("y", 0.9)],
        [
            runs("guest", "x", "borrowed", ("n0", [0, 1]), ("n1", [0, 1]), age=60, min_runtime=0),
            runs("counted", "x", "allocated", ("n0", 1), ("n0", 1), ("n1", 1), min_runtime=6 * HOUR, age=300),
            job("new", "y", 3),
            job("small", "y", 2),
        ],
        proved=False,
    )
