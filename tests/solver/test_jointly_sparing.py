"""Promises given together where budgets spare some of what runs, but not all of it."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from builders import HOUR, Budget, Node, Pending, Running, job_at, problem
from cpalloc.metrics.outlook import Outlook
from cpalloc.problem.problem import US, Problem, status_quo
from cpalloc.solver.jointly import promised_jointly
from gangs import delay, gangs, in_turn
from reference.best_promises import least_of_all


def sparing(rng: Random) -> Problem:
    """Nodes of four GPUs full of work of two budgets over their share, which can spare some of it in some hours."""
    nodes = [Node(f"n{i}", gpus=4, within=f"r{i % 2}") for i in range(rng.randint(2, 4))]
    jobs: list[Pending] = []
    for node in nodes:
        gpus = rng.choice([2, 4])
        for _ in range(4 // gpus):
            left_h = rng.randint(1, 6)
            run = Running(f"r{len(jobs)}", budget=rng.choice("wz"), at=node.name, gpus=gpus, mode="allocated", age_s=0)
            jobs.append(replace(run, protected_s=left_h * HOUR, timeout_s=(left_h + rng.randint(0, 9)) * HOUR))
    for i in range(rng.randint(2, 3)):
        required = rng.choice(["cluster", "rack", "rack"])
        jobs.append(Pending(f"g{i}", gpus=rng.choice([2, 4]), replicas=rng.choice([1, 1, 2]), required=required))
    budgets = [Budget(name, charged=2000, claim=rng.choice([0, 2, 4, 6])) for name in "wz"]
    return problem(nodes=nodes, jobs=jobs, budgets=[Budget("x", claim=64), *budgets], levels=["rack"])


def test_they_are_mostly_the_best_there_are_whomever_budgets_spare() -> None:
    rng, exact, better, scarce = Random("sparing"), 0, 0, 0
    for _ in range(150):
        p = sparing(rng)
        jobs, d = gangs(p), status_quo(p)
        rng.shuffle(jobs)
        before = in_turn(p, d, jobs)
        after, least = promised_jointly(p, before, (), jobs), least_of_all(p, d, jobs)
        assert least <= delay(p, after) <= delay(p, before)
        outlook = Outlook(p, d)
        for hold in after.reservations:
            outlook.book(hold)
        assert (outlook.work.spare(outlook.relied) >= 0).all()
        exact += delay(p, after) == least
        better += delay(p, after) < delay(p, before)
        scarce += bool(outlook.relied)
    assert exact >= 0.95 * 150
    assert better >= 10
    assert scarce >= 75


def test_what_a_budget_spares_for_one_gang_it_does_not_spare_for_the_other() -> None:
    # y can spare one of its two jobs. In turn a gets it on n1, and b waits for its timeout on n2; together b, which can
    # be nowhere else and is larger, gets it, and a waits for the job on n3.
    run = Running("", budget="y", gpus=8, mode="allocated", age_s=0, timeout_s=30 * HOUR, protected_s=HOUR)
    p = problem(
        nodes=[Node("n1"), Node("n2"), Node("n3")],
        jobs=[
            replace(run, name="r1", at="n1"),
            replace(run, name="r2", at="n2"),
            Running("r3", budget="x", at="n3", gpus=8, mode="allocated", age_s=0, timeout_s=2 * HOUR),
            Pending("a", gpus=4, nodes=["n1", "n3"]),
            Pending("b", budget="z", gpus=8, nodes=["n2"]),
        ],
        budgets=[Budget("x", claim=64), Budget("y", charged=2000, claim=8), Budget("z", claim=64)],
    )
    jobs = [job_at(p, "a"), job_at(p, "b")]
    before = in_turn(p, status_quo(p), jobs)
    after = promised_jointly(p, before, (), jobs)
    assert [(h.starts_us - p.now_us) / US / HOUR for h in before.reservations] == [1, 30]
    assert [(h.starts_us - p.now_us) / US / HOUR for h in after.reservations] == [2, 1]
    assert [h.relies_on for h in after.reservations] == [frozenset(), frozenset([job_at(p, "r2")])]
