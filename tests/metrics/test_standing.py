"""Where kept promises are kept: nobody gets it later, and together they wait as little as moving them allows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import combinations
from random import Random

import numpy as np
import pytest
from bench.captured import read

from builders import HOUR, NOW_US, Budget, Node, Pending, Running, hold, problem
from cpalloc import solve
from cpalloc.generate import GeneratorConfig, generate_doc
from cpalloc.metrics import standing
from cpalloc.metrics.outlook import Outlook
from cpalloc.metrics.reservations import Soonest, book, by_instant, renew, soonest
from cpalloc.metrics.standing import stand
from cpalloc.problem.compile import compile_round
from cpalloc.problem.compile.promises import kept_holds, read_holds
from cpalloc.problem.problem import US, Hold, Problem, status_quo
from cpalloc.schema import parse_round
from cpalloc.schema.answer import DomainRef, ReservationRow
from properties.rounds import Doc, applied, deterministic

Promised = tuple[Problem, tuple[Hold, ...]]


def until(hour: int, at: str, *, gpus: int = 8, name: str = "") -> Running:
    """Allocated work that leaves its node in some hours."""
    name = name or f"{at}-{hour}h"
    return Running(name, gpus=gpus, at=at, mode="allocated", age_s=0, timeout_s=hour * HOUR)


def filled(hours: dict[str, int], *gangs: Pending) -> Problem:
    """Nodes that are full until some hour. Their rack is the first letter of their name."""
    nodes = [Node(name, within=name[0]) for name in hours]
    return problem(nodes=nodes, jobs=[*(until(h, at) for at, h in hours.items()), *gangs], levels=["rack"])


def whole(told: Problem, job: str, nodes: str, hour: int) -> Hold:
    return hold(told, job, dict.fromkeys(nodes.split(), 8), in_s=hour * HOUR)


def kept(told: Problem, *promised: Hold) -> dict[str, tuple[str, float]]:
    """Nodes and hour of every promise that stands, by job, best rank first."""
    found = stand(told, status_quo(told), promised)
    return {
        told.jobs.ids[h.job]: (" ".join(told.nodes.names[n] for n in h.nodes), (h.starts_us - told.now_us) / US / HOUR)
        for h in found
    }


def wait(told: Problem, holds: Sequence[Hold]) -> int:
    return sum(int(told.jobs.size[h.job]) * (h.starts_us - told.now_us) for h in holds)


def fits(told: Problem, holds: Sequence[Hold]) -> bool:
    """Whether each gang, when it begins, has its GPUs beside what still runs there and the promises begun before, and
    budgets can spare together all whom the promises rely on."""
    outlook, jobs = Outlook(told, status_quo(told)), told.jobs
    for h in sorted(holds, key=lambda h: h.starts_us):
        nodes, gpus = np.array(h.nodes), np.array(h.gpus)
        slots = outlook.over(nodes, h.relies_on).slots(h.job, h.starts_us)
        suit = told.eligibility[jobs.eligibility[h.job], nodes].all() and len(set(told.nodes.pool[nodes])) == 1
        inside = (told.topology.domain_of[h.level, nodes] == h.domain).all() and h.level == jobs.required_level[h.job]
        if not (suit and inside and sum(h.gpus) == jobs.size[h.job]):
            return False
        if (slots * jobs.gpus_per_replica[h.job] < gpus).any():
            return False
        book(outlook, h)
    return bool((outlook.work.spare(outlook.relied) >= 0).all())


def no_later(after: Sequence[Hold], before: Sequence[Hold]) -> bool:
    """Whether everybody who had a promise has one that is not later."""
    now = {h.job: h.starts_us for h in after}
    return all(h.job in now and now[h.job] <= h.starts_us for h in before)


# -- by hand ----------------------------------------------------------------------------------------------------------


def test_a_promise_moves_to_where_it_is_earlier() -> None:
    gang = Pending("gang", gpus=8, replicas=2, required="rack")
    told = filled({"a1": 2, "a2": 9, "b1": 5, "b2": 4, "b3": 8, "c1": 3}, gang)
    (moved,) = stand(told, status_quo(told), [whole(told, "gang", "a1 a2", 9)])
    assert moved == hold(told, "gang", {"b1": 8, "b2": 8}, in_s=5 * HOUR)
    assert told.topology.names[moved.level][moved.domain] == "b"


def test_a_promise_stays_where_nothing_is_earlier_and_is_brought_forward_there() -> None:
    told = filled({"a1": 4, "a2": 4}, Pending("gang", gpus=8))
    assert kept(told, whole(told, "gang", "a2", 4)) == {"gang": ("a2", 4)}
    assert kept(told, whole(told, "gang", "a2", 6)) == {"gang": ("a2", 4)}


def test_nobody_is_moved_onto_what_another_is_promised() -> None:
    told = filled({"a1": 2, "a2": 9}, Pending("first", gpus=8), Pending("second", gpus=8))
    holds = whole(told, "first", "a2", 9), whole(told, "second", "a1", 2)
    assert kept(told, *holds) == {"first": ("a2", 9), "second": ("a1", 2)}


@pytest.mark.parametrize(("elsewhere", "stands"), [(4, True), (5, True), (6, False)])
def test_what_its_own_nodes_cannot_keep_is_kept_elsewhere_or_broken(elsewhere: int, stands: bool) -> None:
    told = filled({"a1": 7, "a2": elsewhere}, Pending("gang", gpus=8))
    starts_by = datetime.fromtimestamp(NOW_US // US + 5 * HOUR, UTC)
    row = ReservationRow(
        job="gang", domain=DomainRef(level="cluster", name="cluster"), nodes=("a1",), starts_by=starts_by
    )
    holds, broken = kept_holds(told, [row])
    assert holds == ((whole(told, "gang", "a2", elsewhere),) if stands else ())
    said = [(b.job, b.nodes, b.starts_us, b.code) for b in broken]
    assert said == ([] if stands else [("gang", ("a1",), told.now_us + 5 * HOUR * US, "stays_longer")])


def test_who_loses_its_nodes_takes_none_from_those_who_keep_theirs() -> None:
    told = filled({"a1": 9, "a2": 4, "a3": 6}, Pending("first", gpus=8), Pending("second", gpus=8))
    holds = whole(told, "first", "a1", 5), whole(told, "second", "a2", 5)
    assert kept(told, *holds) == {"second": ("a2", 4)}
    holds = whole(told, "first", "a1", 7), whole(told, "second", "a2", 5)
    assert kept(told, *holds) == {"first": ("a3", 6), "second": ("a2", 4)}


def in_each_others_way() -> Promised:
    """Alone neither gets it earlier; but the pair can do with the single one's node, which then has the pair's."""
    told = filled({"a1": 1, "a2": 4, "a3": 5}, Pending("pair", gpus=8, replicas=2), Pending("single", gpus=8))
    return told, (whole(told, "pair", "a1 a3", 5), whole(told, "single", "a2", 4))


def test_all_are_given_anew_in_the_order_that_delays_least() -> None:
    told, holds = in_each_others_way()
    assert kept(told, *holds) == {"pair": ("a2 a3", 5), "single": ("a1", 1)}


def test_the_larger_gang_gets_it_earlier_where_only_one_can() -> None:
    hours = {"a1": 1, "a2": 1, "a3": 5, "a4": 4, "a5": 4, "a6": 4}
    told = filled(hours, *(Pending(f"of {n}", gpus=8, replicas=n) for n in (3, 1, 2)))
    holds = whole(told, "of 3", "a1 a2 a3", 5), whole(told, "of 1", "a4", 4), whole(told, "of 2", "a5 a6", 4)
    found = kept(told, *holds)
    assert {job: hour for job, (_, hour) in found.items()} == {"of 3": 5, "of 1": 4, "of 2": 1}
    assert found["of 2"] == ("a1 a2", 1)


@pytest.mark.parametrize("most", [0, 1])
def test_no_more_promises_are_tried_than_allowed(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    told, holds = in_each_others_way()
    asked: list[int] = []

    def counted(outlook: Outlook, job: int, pools: list[int]) -> Soonest | None:
        asked.append(job)
        return soonest(outlook, job, pools)

    monkeypatch.setattr(standing, "soonest", counted)
    monkeypatch.setattr(standing, "MOST_TRIED", most)
    assert stand(told, status_quo(told), holds) == holds
    assert len(asked) == 2 + 2 + most  # what each would get alone, the orders, and to move each


# -- at random and in the lab -----------------------------------------------------------------------------------------


def any_promises(rng: Random, told: Problem) -> tuple[Hold, ...]:
    """Promises beside each other on any nodes, at any instant at which these can hold them, or a little later."""
    outlook, jobs, out = Outlook(told, status_quo(told)), told.jobs, []
    for job in rng.sample(waiting := np.flatnonzero(jobs.rank >= 0).tolist(), len(waiting)):
        domains = told.topology.domain_of[jobs.required_level[job]]
        nearby = outlook.over(np.flatnonzero(domains == rng.choice(domains.tolist())))
        fit = nearby.earliest(job)
        later = [t for t in nearby.instants.tolist() if fit is not None and t >= fit.at_us and t > told.now_us]
        if fit is None or not later:
            continue
        at_us, left, gpus = rng.choice(later), int(jobs.replicas[job]), {}
        spared = outlook.over(nearby.nodes, fit.spared)
        slots = list(zip(nearby.nodes.tolist(), spared.slots(job, at_us).tolist(), strict=True))
        for n, most in rng.sample(slots, len(slots)):
            if count := min(left, most):
                gpus[told.nodes.names[n]], left = count * int(jobs.gpus_per_replica[job]), left - count
        in_s = (at_us - told.now_us) // US + rng.choice([0, HOUR // 2])
        out.append(book(outlook, replace(hold(told, jobs.ids[job], gpus, in_s=in_s), relies_on=fit.spared)))
    return tuple(sorted(out, key=lambda h: int(jobs.rank[h.job])))


def any_round(rng: Random, sizes: Sequence[int]) -> Problem:
    """Racks full of work that leaves sooner or later, and gangs that wait for them."""
    racks, jobs = rng.randint(1, 2), list[Pending]()
    nodes = [Node(f"n{i}", within=f"r{i % racks}") for i in range(rng.randint(3, 6))]
    for n in nodes:
        free = 8
        while free and rng.random() < 0.9:
            free -= (gpus := min(free, rng.choice(sizes)))
            whose, left = rng.choice(["x", "x", "over"]), rng.randint(1, 9) * HOUR
            work = until(left // HOUR, n.name, gpus=gpus, name=f"s{len(jobs)}")
            jobs.append(work if whose == "x" else replace(work, budget="over", timeout_s=-1, protected_s=left))
    for i in range(rng.randint(2, 5)):
        level, many, first = rng.choice(["cluster", "rack"]), rng.randint(1, 3), rng.randint(1, 3)
        jobs.append(Pending(f"g{i}", gpus=rng.choice(sizes), replicas=many, priority=first, required=level))
    over = Budget("over", charged=2000, claim=rng.choice([0, 0, 8]))
    return problem(nodes=nodes, jobs=jobs, budgets=[Budget("x"), over], levels=["rack"])


def random_rounds(count: int, sizes: Sequence[int] = (8,)) -> Iterator[Promised]:
    for seed in range(count):
        told = any_round(rng := Random(seed), sizes)
        yield told, any_promises(rng, told)


def lab_rounds() -> Iterator[tuple[Promised, Sequence[ReservationRow]]]:
    for met in read()[::10]:
        round_ = parse_round(json.dumps(met.document))
        told, rows = compile_round(round_).problem, round_.previous.reservations
        yield (told, read_holds(told, rows)[0]), rows


def renewed(told: Problem, promised: Sequence[Hold]) -> list[Hold]:
    outlook = Outlook(told, status_quo(told))
    return [fresh for h in by_instant(promised) if (fresh := renew(outlook, h)) is not None]


def checked(told: Problem, promised: Sequence[Hold], *, again: bool = True) -> tuple[Hold, ...]:
    """The promises that stand, for which all is true that is true of whole nodes."""
    found, own = stand(told, status_quo(told), promised), renewed(told, promised)
    assert fits(told, found)
    assert no_later(found, own)  # so that they wait no longer in all, either
    assert no_later(found, [h for h in promised if h.job in {f.job for f in found}])
    assert list(found) == sorted(found, key=lambda h: int(told.jobs.rank[h.job]))
    assert not again or stand(told, status_quo(told), found) == found
    return found


def test_on_whole_nodes_nobody_loses_a_promise_or_gets_it_later_whatever_the_order() -> None:
    earlier = 0
    for told, promised in random_rounds(120):
        found = checked(told, promised)
        assert no_later(found, promised)
        assert no_later(checked(told, promised[::-1]), promised)
        earlier += wait(told, found) < wait(told, renewed(told, promised))
    assert earlier >= 25


def test_with_few_tries_promises_are_as_sound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing, "MOST_TRIED", 2)
    for told, promised in random_rounds(60):
        assert no_later(checked(told, promised, again=False), promised)


def test_on_parts_of_nodes_nobody_loses_a_promise_or_gets_it_later_either() -> None:
    for told, promised in random_rounds(120, (2, 4, 8)):
        assert no_later(checked(told, promised), promised)


def test_in_the_lab_promises_only_get_earlier_in_whatever_order_they_are_handed_back() -> None:
    moved = 0
    for (told, promised), rows in lab_rounds():
        found = checked(told, promised)
        assert found == told.holds
        assert kept_holds(told, rows[::-1])[0] == found
        moved += wait(told, found) < wait(told, renewed(told, promised))
    assert moved >= 5


def met_in_the_lab() -> Iterator[Doc]:
    for met in read()[::34]:
        yield {"options": {}, **met.document}


def generated() -> Iterator[Doc]:
    for seed in (2, 5, 7, 8, 9, 11):
        yield generate_doc(GeneratorConfig(nodes=8, seed=seed, family="gang-heavy"))


@pytest.mark.parametrize("docs", [met_in_the_lab, generated])
def test_handed_back_at_the_same_instant_they_stay_unless_somebody_gets_it_earlier(
    docs: Callable[[], Iterator[Doc]],
) -> None:
    handed = 0
    for doc in docs():
        answer = solve(parse_round(json.dumps(deterministic(doc, 1))))
        told = compile_round(parse_round(json.dumps(applied(doc, answer)))).problem
        promised, _ = read_holds(told, answer.reservations)
        assert not told.broken
        assert no_later(told.holds, promised)
        assert told.holds == promised or wait(told, told.holds) < wait(told, promised)
        handed += len(promised)
    assert handed >= 10


# -- every way to give them -------------------------------------------------------------------------------------------


def least(hours: Sequence[int], sizes: Sequence[int], by: Sequence[int]) -> int:
    """Node-hours that gangs of whole nodes wait at least, each until some hour at the latest."""

    def rest(gang: int, free: frozenset[int]) -> int:
        if gang == len(sizes):
            return 0
        ways = [c for c in combinations(free, sizes[gang]) if max(hours[n] for n in c) <= by[gang]]
        costs = (sizes[gang] * max(hours[n] for n in c) + rest(gang + 1, free - set(c)) for c in ways)
        return min(costs, default=10**9)

    return rest(0, frozenset(range(len(hours))))


def test_there_is_no_better_way_in_which_nobody_gets_it_later() -> None:
    # Later than it has it in the end: who moves first may take a node with which others would gain more than it does.
    gained = 0
    for seed in range(150):
        rng = Random(seed)
        hours = {f"a{i}": rng.randint(1, 9) for i in range(rng.randint(3, 6))}
        names, sizes = rng.sample(list(hours), len(hours)), [1]
        while len(sizes) < 4 and sum(sizes) < len(hours):
            sizes.append(rng.randint(1, min(3, len(hours) - sum(sizes))))
        told = filled(hours, *(Pending(f"g{i}", gpus=8, replicas=size) for i, size in enumerate(sizes)))
        held = [[names.pop() for _ in range(size)] for size in sizes]
        own = [max(hours[n] for n in mine) for mine in held]
        holds = [whole(told, f"g{i}", " ".join(mine), own[i] + rng.choice([0, 2])) for i, mine in enumerate(held)]
        found = [int(hour) for _, hour in kept(told, *holds).values()]
        waits = [sum(size * hour for size, hour in zip(sizes, way, strict=True)) for way in (own, found)]
        assert waits[1] == least(list(hours.values()), sizes, found), seed
        gained += waits[1] < waits[0]
    assert gained >= 50


# -- parts of nodes, and nodes of one's own ---------------------------------------------------------------------------


def test_who_shares_a_node_with_a_later_promise_keeps_its_own() -> None:
    work = until(1, "a1", gpus=4), until(2, "a1", gpus=4)
    told = problem(nodes=[Node("a1")], jobs=[*work, Pending("big", gpus=6), Pending("small", gpus=2)])
    holds = hold(told, "big", {"a1": 6}, in_s=2 * HOUR), hold(told, "small", {"a1": 2}, in_s=HOUR)
    assert fits(told, holds)
    assert kept(told, *holds) == {"big": ("a1", 2), "small": ("a1", 1)}


def test_who_is_brought_forward_holds_what_is_there_then() -> None:
    work = until(1, "a1", gpus=2), until(2, "a1", gpus=2), until(1, "a2", gpus=4)
    nodes = [Node("a1", gpus=4), Node("a2", gpus=4)]
    told = problem(nodes=nodes, jobs=[*work, Pending("gang", gpus=2, replicas=3), Pending("one", gpus=2)])
    holds = hold(told, "gang", {"a1": 4, "a2": 2}, in_s=2 * HOUR), hold(told, "one", {"a2": 2}, in_s=HOUR)
    assert fits(told, holds)
    assert fits(told, stand(told, status_quo(told), holds))


def test_nobody_is_moved_beside_who_wants_to_be_alone() -> None:
    told = filled({"a1": 1, "a2": 2}, Pending("alone", gpus=2, exclusive=True), Pending("other", gpus=4))
    holds = hold(told, "alone", {"a1": 2}, in_s=HOUR), hold(told, "other", {"a2": 4}, in_s=2 * HOUR)
    assert kept(told, *holds) == {"alone": ("a1", 1), "other": ("a2", 2)}
