"""Promises in the order that delays least."""

from __future__ import annotations

from builders import HOUR, Budget, Node, Pending, Running, job_at, problem
from cpalloc.metrics.reservations import reserve
from cpalloc.problem.problem import US, Problem, status_quo
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
