"""Promises in the order that delays least."""

from __future__ import annotations

from builders import HOUR, Budget, Node, Pending, Running, job_at, problem
from cpalloc import solve
from cpalloc.metrics.reservations import reserve
from cpalloc.problem.problem import US, Problem, status_quo
from cpalloc.schema import parse_round
from cpalloc.solver.promising import best_order


def two_nodes(*waiting: Pending) -> Problem:
    """n1 comes free in 1 h and n2 in 2 h, from a budget over its share; x, y, z are owed what they ask for."""
    return problem(
        nodes=[Node("n1"), Node("n2"), Node("n3")],
        jobs=[
            *(
                Running(f"old{i}", budget="over", at=f"n{i}", gpus=8, mode="allocated", protected_s=i * HOUR)
                for i in (1, 2)
            ),
            Running("long", budget="full", at="n3", gpus=8, mode="allocated", protected_s=7 * HOUR),
            *waiting,
        ],
        budgets=[
            *(Budget(name, charged=charged, claim=8) for name, charged in (("x", 100), ("y", 200), ("z", 300))),
            Budget("over", charged=2000),
            Budget("full", charged=100, claim=8),
        ],
    )


def hours(p: Problem, *order: str) -> dict[str, float]:
    holds, _ = reserve(p, status_quo(p), jobs=[job_at(p, name) for name in order])
    return {p.jobs.ids[h.job]: (h.starts_us - p.now_us) / US / HOUR for h in holds}


def test_a_job_that_could_wait_elsewhere_gives_way() -> None:
    # By rank: any takes n1 in 1 h, picky gets no promise (7 d x 8 GPUs). The other way: 1 h and 2 h.
    p = two_nodes(Pending("any", budget="x", gpus=8), Pending("picky", budget="y", gpus=8, nodes={"n1"}))
    ranked = [job_at(p, "any"), job_at(p, "picky")]
    assert hours(p, "any", "picky") == {"any": 1}
    assert best_order(p, status_quo(p), (), ranked) == tuple(reversed(ranked))
    assert hours(p, "picky", "any") == {"picky": 1, "any": 2}


def test_rank_decides_where_nothing_is_gained() -> None:
    p = two_nodes(Pending("a", budget="x", gpus=8), Pending("b", budget="y", gpus=8))
    ranked = [job_at(p, "a"), job_at(p, "b")]
    assert best_order(p, status_quo(p), (), ranked) == tuple(ranked)
    assert best_order(p, status_quo(p), (), ()) == ()


def test_many_blocked_jobs_change_places_with_their_neighbours() -> None:
    waiting = [Pending("any", budget="x", gpus=8), Pending("picky", budget="y", gpus=8, nodes={"n1"})]
    p = two_nodes(*waiting, *(Pending(f"w{i}", budget="z", gpus=8, nodes={"n3"}) for i in range(3)))
    ranked = [job_at(p, name) for name in ("any", "picky", "w0", "w1", "w2")]
    assert best_order(p, status_quo(p), (), ranked)[:2] == (ranked[1], ranked[0])


def test_two_gangs_are_not_promised_what_a_budget_can_spare_once() -> None:
    # y holds 24 GPUs and claims 14: of its jobs on n1 and n2, protected for an hour yet, it can spare one.
    hour, now = 3600, "2026-11-29T12:00:00Z"

    def running(name: str, node: str, start: str) -> dict[str, object]:
        where = [{"node": node, "gpus": list(range(8))}]
        times = {"submitted_at": start, "min_runtime": 8 * hour, "timeout": 17 * hour}
        run = {"mode": "allocated", "placed_at": start, "started_at": start, "placement": where}
        return {"id": name, "budget": "y", "replicas": 1, "gpus_per_replica": 8, **times, "running": run}

    def pending(name: str, budget: str) -> dict[str, object]:
        size = {"replicas": 1, "gpus_per_replica": 5, "min_runtime": hour}
        return {"id": name, "budget": budget, "submitted_at": now, **size}

    early, late = "2026-11-29T05:00:00Z", "2026-11-29T11:00:00Z"
    answer = solve(
        parse_round(
            {
                "schema_version": 1,
                "now": now,
                "cluster": {
                    "name": "c",
                    "levels": [],
                    "nodes": [{"name": f"n{i}", "gpu_type": "h", "gpus": 8} for i in (1, 2, 3)],
                },
                "budgets": [
                    {"name": n, "weight": 1, "charged_gpu_seconds": c} for n, c in (("x", 0), ("w", 0), ("y", 10**8))
                ],
                "jobs": [
                    *(running("a", "n1", early), running("b", "n2", early), running("c", "n3", late)),
                    *(pending("first", "x"), pending("second", "w")),
                ],
                "options": {"deterministic": True, "deterministic_limit": 10, "workers": 1},
            }
        )
    )
    assert answer.status == "optimal"
    assert sorted(row.starts_by.hour for row in answer.reservations) == [13, 22]
    assert next(tier.value for tier in answer.tiers if tier.name == "delay") == 5 * (1 + 10) * hour
