"""What a model must tell apart after all, as an answer of a coarser one showed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from builders import HOUR, MINUTE, Budget, Node, Pending, Running, decide, job_at, problem
from cpalloc.models.base import Violation
from cpalloc.models.objectives.fragmentation import late_shapes, protection_ends
from cpalloc.models.objectives.inversion import inverted
from cpalloc.models.partition import Partition
from cpalloc.problem.problem import Decision, Problem, Shape, Tier, status_quo
from cpalloc.solver.refine import MOST_EXACT, tell_apart
from cpalloc.solver.values import violations

ORDER = ("shortfall", "inversion", "preemption", "fragmentation", "locality")


def tiered(p: Problem, *names: str) -> Problem:
    return replace(p, policy=replace(p.policy, tiers=tuple(Tier(name) for name in names or ORDER)))


def every(jobs: set[int]) -> set[int]:
    return jobs


def told(
    p: Problem,
    tier: str,
    d: Decision,
    partition: Partition | None = None,
    broken: Sequence[Violation] = (),
    *,
    firmly: bool = False,
) -> Partition:
    return tell_apart(
        p,
        partition or Partition(),
        tier,
        d,
        broken,
        incumbent=status_quo(p),
        affordable=every,
        firmly=firmly,
    )


def ids(p: Problem, jobs: frozenset[int]) -> set[str]:
    return {p.jobs.ids[j] for j in jobs}


def queue(*more: Pending, nodes: int = 1) -> Problem:
    """A queue of budget x, whose second is worse than its first, and v of budget y on n1."""
    return tiered(
        problem(
            nodes=[Node(f"n{i + 1}", within=f"r{i // 2}") for i in range(nodes)],
            levels=["rack"],
            jobs=[
                Running("v", budget="y", at="n1", gpus=4),
                Pending("first", gpus=4),
                Pending("second", gpus=4),
                *more,
            ],
            budgets=[Budget("x"), Budget("y")],
        )
    )


def test_nothing_shown_nothing_changed() -> None:
    p = queue()
    partition = Partition(leaves=frozenset({1}), watched=frozenset({0}), firm=frozenset({1}), split=True, lend=False)
    for tier in ORDER:
        assert told(p, tier, status_quo(p), partition) == partition


# -- rules ------------------------------------------------------------------------------------------------------------


def test_a_victim_that_serves_nobody_tells_its_budget_from_the_others() -> None:
    p = queue(Pending("own", budget="y", gpus=4))
    d = decide(p, start={"own": "n1"}, preempt=["v"])
    broken = violations(p, d)
    assert [v.constraint for v in broken] == ["preemption"]
    known = Partition(leaves=frozenset({0}))
    assert told(p, "preemption", d, known, broken) == replace(known, leaves=frozenset({0, 1}))


def test_too_little_room_splits_the_cells() -> None:
    p = queue()
    d = decide(p, start={"first": "n1", "second": "n1"})
    broken = violations(p, d)
    assert {v.constraint for v in broken} == {"capacity"}
    assert told(p, "shortfall", d, broken=broken) == Partition(split=True)


def test_other_rules_tell_nothing_apart() -> None:
    p = queue()
    d = decide(p, start={"second": "n1"})
    assert told(p, "inversion", d, broken=[Violation("holds", "too much", ("second",))]) == Partition()


def test_inversions_are_looked_at_only_where_no_rule_is_broken() -> None:
    p = queue(Pending("own", budget="y", gpus=4), nodes=2)
    d = decide(p, start={"own": "n1", "second": "n2"}, preempt=["v"])
    assert inverted(p, d)
    assert told(p, "inversion", d, broken=violations(p, d)) == Partition(leaves=frozenset({1}))


# -- inversion --------------------------------------------------------------------------------------------------------


def passing() -> tuple[Problem, Decision]:
    p = queue()
    d = decide(p, start={"second": "n1"})
    assert ids(p, frozenset(inverted(p, d))) == {"first"}
    return p, d


def test_jobs_passed_over_are_watched_then_told_apart_then_stated_exactly() -> None:
    p, d = passing()
    first = frozenset(inverted(p, d))
    watched = told(p, "inversion", d)
    assert watched == Partition(watched=first)
    apart = told(p, "inversion", d, watched)
    assert apart == Partition(watched=first, apart=first)
    exact = told(p, "inversion", d, apart)
    assert exact == Partition(watched=first, apart=first, exact=first)
    assert told(p, "inversion", d, exact) == exact


def test_in_later_tiers_as_well_but_in_none_before() -> None:
    p, d = passing()
    assert told(p, "shortfall", d) == Partition()
    for tier in ("inversion", "preemption", "locality"):
        assert told(p, tier, d).watched == frozenset(inverted(p, d))
    assert told(tiered(p, "shortfall", "preemption"), "preemption", d) == Partition()


def test_firmly_they_are_not_to_be_passed_over_at_all() -> None:
    p, d = passing()
    first = frozenset(inverted(p, d))
    assert told(p, "preemption", d, firmly=True) == Partition(firm=first)
    known = Partition(watched=first, firm=frozenset({0}))
    assert told(p, "preemption", d, known, firmly=True) == replace(known, firm=first | {0})


def test_new_ones_are_watched_before_old_ones_are_stated_exactly() -> None:
    p = queue(Pending("third", gpus=4), nodes=1)
    d = decide(p, start={"third": "n1"})
    known = Partition(watched=frozenset({job_at(p, "first")}))
    both = told(p, "inversion", d, known)
    assert (ids(p, both.watched), both.exact) == ({"first", "second"}, frozenset())


def test_gangs_that_pass_over_a_job_bound_to_a_domain_are_told_apart_first() -> None:
    p = queue(
        Pending("bound", gpus=4, replicas=3, required="rack"),
        Pending("gang", gpus=4, replicas=2),
        Pending("small", gpus=2, replicas=2),
        Pending("one", gpus=4),
        Pending("better", gpus=4, replicas=2, priority=3),
        Pending("foreign", budget="y", gpus=4, replicas=2),
        nodes=6,
    )
    d = decide(
        p,
        start={
            "first": "n1",
            "second": "n6",
            "better": "n5",
            "gang": "n3",
            "small": "n4",
            "one": "n2",
            "foreign": {"n2": 1, "n4": 1},
        },
    )
    assert violations(p, d) == []
    assert ids(p, frozenset(inverted(p, d))) == {"bound"}
    passed = frozenset(inverted(p, d))
    gangs = told(p, "inversion", d, Partition(watched=passed))
    assert (ids(p, gangs.single), gangs.exact) == ({"gang"}, frozenset())
    apart = told(p, "inversion", d, gangs)
    assert apart == replace(gangs, apart=passed)
    assert told(p, "inversion", d, apart) == replace(apart, exact=passed)


def test_so_many_at_a_time_are_stated_exactly() -> None:
    many = [Pending(f"p{i:02}", gpus=8) for i in range(MOST_EXACT + 3)]
    p = tiered(problem(nodes=[Node("n1")], jobs=[*many, Pending("worse", gpus=8)]))
    d = decide(p, start={"worse": "n1"})
    partition = told(p, "inversion", d)
    assert len(partition.watched) == MOST_EXACT + 3
    partition = told(p, "inversion", d, partition)
    assert len(partition.apart) == MOST_EXACT + 3
    for expected in (MOST_EXACT, MOST_EXACT + 3, MOST_EXACT + 3):
        partition = told(p, "inversion", d, partition)
        assert partition.exact == frozenset(range(expected))


# -- fragmentation and locality ---------------------------------------------------------------------------------------


def test_shapes_that_starts_keep_out_are_timed_at_the_worse_of_both() -> None:
    # n1 is free for a whole node's gang at once; what starts there keeps it out for as long as it is protected.
    p = tiered(
        problem(
            nodes=[Node("n1")],
            jobs=[Pending("short", min_runtime_s=HOUR), Pending("long", min_runtime_s=2 * HOUR)],
            mix=[Shape(1, 8, 0, 1), Shape(1, 4, 0, 1)],
        )
    )
    short, long = (decide(p, start={name: "n1"}) for name in ("short", "long"))
    assert (late_shapes(p, short), late_shapes(p, long)) == (((0, HOUR),), ((0, 2 * HOUR),))
    for incumbent, candidate in ((short, long), (long, short)):
        seen = tell_apart(
            p, Partition(), "fragmentation", candidate, [], incumbent=incumbent, affordable=every, firmly=True
        )
        assert (seen.timed, seen.instants) == (((0, 2 * HOUR),), protection_ends(p, seen.timed))
    known = Partition(timed=((0, MINUTE), (1, 3 * HOUR)))
    assert told(p, "fragmentation", short, known, firmly=True).timed == ((0, HOUR), (1, 3 * HOUR))
    # Locality comes after: what it would choose may take longer to place as well.
    assert told(p, "locality", short, known, firmly=True).timed == ((0, HOUR), (1, 3 * HOUR))
    assert told(p, "preemption", short, known, firmly=True).timed == known.timed
    assert told(p, "fragmentation", short, known, [Violation("holds", "")]) == known


def test_starts_that_prefer_a_domain_are_told_apart_as_far_as_there_is_time() -> None:
    p = queue(
        Pending("a", budget="y", preferred="rack"),
        Pending("b", budget="y", preferred="rack"),
        Pending("c", budget="y"),
        nodes=2,
    )
    d = decide(p, start={"a": "n2", "b": "n2", "c": "n2"})
    assert ids(p, told(p, "locality", d).single) == {"a", "b"}
    assert told(p, "preemption", d).single == frozenset()
    assert told(p, "locality", d, broken=[Violation("holds", "")]).single == frozenset()
    asked: list[set[int]] = []

    def first_only(jobs: set[int]) -> set[int]:
        asked.append(jobs)
        return {min(jobs)}

    def further(partition: Partition) -> Partition:
        return tell_apart(p, partition, "locality", d, [], incumbent=d, affordable=first_only)

    one = further(Partition(single=frozenset({job_at(p, "c")})))
    assert ids(p, one.single) == {"a", "c"}
    assert ids(p, further(one).single) == {"a", "b", "c"}
    assert asked == [{job_at(p, "a"), job_at(p, "b")}, {job_at(p, "b")}]
