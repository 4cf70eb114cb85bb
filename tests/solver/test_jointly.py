"""Promises given all together: never worse than one after the other, and mostly the best there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from builders import HOUR, Budget, Node, Pending, hold, job_at, problem
from cpalloc.metrics.outlook import Outlook
from cpalloc.problem.problem import US, Action, Decision, Hold, Problem, status_quo
from cpalloc.solver.jointly import promised_jointly
from cpalloc.solver.promising import best_order
from gangs import delay, gangs, in_turn, mostly_held, until
from models.fixing import any_decision
from reference.best_promises import Best, room_for


def promised(p: Problem, d: Decision) -> dict[str, tuple[float, tuple[str, ...]]]:
    """Hours until, and nodes on which, gangs are held."""
    names = p.nodes.names
    return {
        p.jobs.ids[h.job]: ((h.starts_us - p.now_us) / US / HOUR, tuple(names[n] for n in h.nodes))
        for h in d.reservations
    }


def orders_of(p: Problem, *names: str) -> Iterator[list[int]]:
    """Every gang once as the first."""
    for i in range(len(names)):
        yield [job_at(p, name) for name in (*names[i:], *names[:i])]


# -- by hand ----------------------------------------------------------------------------------------------------------


def crowded() -> Problem:
    """n1 is free, the others come free one after the other; big wants four nodes, one and two a node each."""
    return problem(
        nodes=[Node(f"n{i}") for i in range(1, 7)],
        jobs=[
            *(until(f"n{i}", hours) for i, hours in ((2, 5), (3, 5), (4, 5), (5, 7), (6, 8))),
            Pending("big", budget="x", gpus=8, replicas=4),
            Pending("one", budget="x", gpus=8),
            Pending("two", budget="x", gpus=8),
        ],
        budgets=[Budget("x", claim=48), Budget("z", claim=40)],
    )


def test_who_could_be_held_early_waits_where_that_lets_others_start_at_once() -> None:
    # One after the other, in any order: one and two could each start on n1, big is held on n1 to n4 at 5 h, and so one
    # and two have to wait for n5 and n6 after all: 32·5 + 8·7 + 8·8 = 280. Together: big waits for n5 until 7 h.
    p = crowded()
    for jobs in orders_of(p, "big", "one", "two"):
        before = in_turn(p, status_quo(p), jobs)
        assert promised(p, before)["big"] == (5, ("n1", "n2", "n3", "n4"))
        assert delay(p, before) == (32 * 5 + 8 * 7 + 8 * 8) * HOUR
        after = promised_jointly(p, before, (), jobs)
        assert promised(p, after) == {"big": (7, ("n2", "n3", "n4", "n5"))}
        assert after.blocked == (job_at(p, "big"),)
        assert delay(p, after) == 32 * 7 * HOUR


def racks(*waiting: Pending, free: Sequence[str] = (), **hours: int) -> Problem:
    """Nodes, named after their racks, that are free or come free in so many hours."""
    return problem(
        nodes=[Node(name, within=name[0]) for name in (*free, *hours)],
        jobs=[*(until(name, h) for name, h in hours.items()), *waiting],
        budgets=[Budget("x", claim=64), Budget("z", claim=128)],
        levels=["rack"],
    )


def test_a_gang_that_may_be_anywhere_leaves_its_rack_to_one_that_could_start_there() -> None:
    # wide is held at 5 h with one of a1 and a2: then pair waits for rack e: 24·5 + 16·20 = 440. Or it waits for d1.
    wide = Pending("wide", gpus=8, replicas=3)
    pair = Pending("pair", gpus=8, replicas=2, required="rack")
    p = racks(wide, pair, free=["a1", "a2"], b1=5, c1=5, d1=6, e1=20, e2=20)
    for jobs in orders_of(p, "pair", "wide"):
        before = in_turn(p, status_quo(p), jobs)
        assert delay(p, before) == (24 * 5 + 16 * 20) * HOUR
        after = promised_jointly(p, before, (), jobs)
        assert promised(p, after) == {"wide": (6, ("b1", "c1", "d1"))}
        assert delay(p, after) == 24 * 6 * HOUR


def test_the_nodes_of_a_gang_that_may_be_anywhere_are_those_another_can_spare() -> None:
    # pair first: it has rack a at 2 h, and wide waits for b2: 16·2 + 24·3 = 104. wide first: a1, a2 and b1 at 2 h, all
    # of them ready last, so that rack b is of no use to pair: 24·2 + 16·20 = 368. Best: wide has c1 in place of b1.
    wide = Pending("wide", gpus=8, replicas=3)
    pair = Pending("pair", gpus=8, replicas=2, required="rack")
    p = racks(wide, pair, a1=2, a2=2, b1=2, b2=3, c1=1, d1=20, d2=20)
    for jobs, said in zip(orders_of(p, "pair", "wide"), (16 * 2 + 24 * 3, 24 * 2 + 16 * 20), strict=True):
        before = in_turn(p, status_quo(p), jobs)
        assert delay(p, before) == said * HOUR
        after = promised_jointly(p, before, (), jobs)
        assert promised(p, after) == {"wide": (2, ("a1", "a2", "c1")), "pair": (3, ("b1", "b2"))}
        assert delay(p, after) == (24 * 2 + 16 * 3) * HOUR


def test_gangs_of_half_a_node_are_held_side_by_side() -> None:
    # Half of n1 is free for one. trio is held at 3 h on all of n1 and half of n2, and one waits for n4: 12·3 + 4·9.
    # Together: trio has half of n2 and, at 5 h, all of n3: 12·5 = 60.
    leave = [("n1", 3, 4), ("n2", 3, 4), ("n2", 99, 4), ("n3", 5, 8), ("n4", 9, 4), ("n4", 99, 4)]
    p = problem(
        nodes=[Node(f"n{i}") for i in range(1, 5)],
        jobs=[
            *(until(n, hours, gpus) for n, hours, gpus in leave),
            Pending("trio", gpus=4, replicas=3),
            Pending("one", gpus=4, nodes=["n1", "n4"]),
        ],
        budgets=[Budget("x", claim=16), Budget("z", claim=64)],
    )
    for jobs in orders_of(p, "trio", "one"):
        before = in_turn(p, status_quo(p), jobs)
        assert promised(p, before) == {"trio": (3, ("n1", "n2")), "one": (9, ("n4",))}
        after = promised_jointly(p, before, (), jobs)
        assert promised(p, after) == {"trio": (5, ("n2", "n3"))}
        assert delay(p, after) == 12 * 5 * HOUR


def test_who_takes_all_of_a_node_starts_beside_nobody_who_has_half_of_it() -> None:
    # duo could start on n1, which is free. trio is held at 3 h on n2 and half of n1, and duo on the other half only
    # when n4 is free: 12·3 + 8·9. Together: trio has half of n3 at 5 h: 12·5 = 60.
    p = problem(
        nodes=[Node(f"n{i}") for i in range(1, 5)],
        jobs=[
            *(until(n, hours, gpus) for n, hours, gpus in (("n2", 3, 8), ("n3", 5, 4), ("n3", 99, 4), ("n4", 9, 8))),
            Pending("trio", gpus=4, replicas=3),
            Pending("duo", gpus=4, replicas=2, nodes=["n1", "n4"]),
        ],
        budgets=[Budget("x", claim=24), Budget("z", claim=64)],
    )
    for jobs in orders_of(p, "trio", "duo"):
        before = in_turn(p, status_quo(p), jobs)
        assert promised(p, before) == {"trio": (3, ("n1", "n2")), "duo": (9, ("n1", "n4"))}
        after = promised_jointly(p, before, (), jobs)
        assert promised(p, after) == {"trio": (5, ("n2", "n3"))}
        assert delay(p, after) == 12 * 5 * HOUR


def test_who_could_start_in_several_places_is_in_nobodys_way_in_any_of_them() -> None:
    # As with big, one and two above; half of n2 is free, and so is half of n7, for ever. small could start on either.
    p = problem(
        nodes=[Node(f"n{i}") for i in range(1, 8)],
        jobs=[
            *(
                until(f"n{i}", hours, gpus)
                for i, hours, gpus in ((2, 5, 4), (3, 5, 8), (4, 5, 8), (5, 7, 8), (6, 8, 8))
            ),
            until("n7", 99, 4),
            Pending("big", gpus=8, replicas=4),
            Pending("one", gpus=8),
            Pending("two", gpus=8),
            Pending("small", gpus=4),
        ],
        budgets=[Budget("x", claim=64), Budget("z", claim=64)],
    )
    for jobs in orders_of(p, "big", "one", "two", "small"):
        before = in_turn(p, status_quo(p), jobs)
        assert delay(p, before) == (32 * 5 + 8 * 7 + 8 * 8) * HOUR
        after = promised_jointly(p, before, (), jobs)
        assert promised(p, after) == {"big": (7, ("n2", "n3", "n4", "n5"))}
        assert delay(p, after) == 32 * 7 * HOUR


# -- what stays as it is ----------------------------------------------------------------------------------------------


def test_a_gang_alone_is_promised_what_it_was() -> None:
    p = crowded()
    quo = status_quo(p)
    for jobs in ([], [job_at(p, "big")]):
        before = in_turn(p, quo, jobs)
        assert promised_jointly(p, before, (), jobs) is before
    # Nor does it count who is promised something already, or starts.
    jobs = [job_at(p, "big"), job_at(p, "one")]
    kept = in_turn(p, quo, jobs[:1]).reservations
    before = in_turn(p, quo, jobs, kept)
    assert promised_jointly(p, before, kept, jobs) is before
    started = replace(quo, action=quo.action.copy())
    started.action[jobs[1]] = Action.START
    before = in_turn(p, started, jobs)
    assert promised_jointly(p, before, (), jobs) is before


def test_models_that_would_be_too_large_are_not_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    # Nodes with room for big: 4 at 5 h, 5 at 7 h, 6 at 8 h; for one, and for two, 1 now, 4, 5 and 6 then: 15 + 2·16.
    p = crowded()
    jobs = [job_at(p, name) for name in ("big", "one", "two")]
    before = in_turn(p, status_quo(p), jobs)
    for most, better in ((0, False), (46, False), (47, True)):
        monkeypatch.setattr("cpalloc.solver.jointly.MOST_COUNTS", most)
        after = promised_jointly(p, before, (), jobs)
        assert (after is not before) == better
        assert (delay(p, after) < delay(p, before)) == better


def test_a_kept_promise_is_nobody_elses_room() -> None:
    # n5 is promised to kept for in 9 h, free from 7 h on: big cannot have it, and has to wait for n6 until 8 h.
    p = crowded()
    more = [Pending("kept", budget="x", gpus=8), Pending("big", budget="x", gpus=8, replicas=4)]
    more += [Pending("one", budget="x", gpus=8), Pending("two", budget="x", gpus=8)]
    p = problem(
        nodes=[Node(f"n{i}") for i in range(1, 7)],
        jobs=[*(until(f"n{i}", hours) for i, hours in ((2, 5), (3, 5), (4, 5), (5, 7), (6, 8))), *more],
        budgets=[Budget("x", claim=48), Budget("z", claim=40)],
    )
    kept = (hold(p, "kept", {"n5": 8}, in_s=9 * HOUR),)
    jobs = [job_at(p, name) for name in ("kept", "big", "one", "two")]
    before = in_turn(p, status_quo(p), jobs, kept)
    assert promised(p, before) == {"kept": (7, ("n5",)), "big": (5, ("n1", "n2", "n3", "n4")), "one": (8, ("n6",))}
    after = promised_jointly(p, before, kept, jobs)
    assert promised(p, after) == {"kept": (7, ("n5",)), "big": (8, ("n2", "n3", "n4", "n6"))}
    assert delay(p, after) == (8 * 7 + 32 * 8) * HOUR


def test_a_kept_promise_comes_forward_as_far_as_it_did() -> None:
    # On m1 4 GPUs come free at 1 h and 4 at 3 h, on m2 4 at 1 h. kept has 4 of m1 at 5 h, so at 1 h; wide has to wait
    # for the others: 4·1 + 8·3. big, one and two are promised something else together than one after the other.
    nodes = [Node("m1"), Node("m2", gpus=4), *(Node(f"n{i}") for i in range(1, 7))]
    ms, ns = [n.name for n in nodes[:2]], [n.name for n in nodes[2:]]
    p = problem(
        nodes=nodes,
        jobs=[
            *(until(n, hours, 4) for n, hours in (("m1", 1), ("m1", 3), ("m2", 1))),
            *(until(f"n{i}", hours) for i, hours in ((2, 5), (3, 5), (4, 5), (5, 7), (6, 8))),
            Pending("kept", gpus=4, nodes=ms),
            Pending("wide", gpus=4, replicas=2, nodes=ms),
            Pending("big", gpus=8, replicas=4, nodes=ns),
            Pending("one", gpus=8, nodes=ns),
            Pending("two", gpus=8, nodes=ns),
        ],
        budgets=[Budget("x", claim=64), Budget("z", claim=64)],
    )
    kept = (hold(p, "kept", {"m1": 4}, in_s=5 * HOUR),)
    jobs = [job_at(p, name) for name in ("kept", "wide", "big", "one", "two")]
    before = in_turn(p, status_quo(p), jobs, kept)
    after = promised_jointly(p, before, kept, jobs)
    for d in (before, after):
        assert promised(p, d)["kept"] == (1, ("m1",))
        assert promised(p, d)["wide"] == (3, ("m1", "m2"))
    assert promised(p, after)["big"] == (7, ("n2", "n3", "n4", "n5"))


# -- at random --------------------------------------------------------------------------------------------------------


def tiny(rng: Random) -> Problem:
    """Two racks of nodes of four GPUs, held or half held for some hours; gangs of whole and half nodes wait."""
    nodes = [Node(f"n{i}", gpus=4, within=f"r{i % 2}") for i in range(rng.randint(2, 4))]
    jobs: list[Pending] = [*mostly_held(nodes, [0, 2, 2, 4], rng)]
    for i in range(rng.randint(2, 4)):
        required = rng.choice(["cluster", "rack", "rack"])
        jobs.append(Pending(f"g{i}", gpus=rng.choice([2, 4]), replicas=rng.choice([1, 1, 2, 3]), required=required))
    return problem(nodes=nodes, jobs=jobs, budgets=[Budget("x", claim=64), Budget("z", claim=64)], levels=["rack"])


def motley(rng: Random) -> Problem:
    """As above, with what promises know and the sums of GPUs do not: pools, groups, limits per node, whole nodes; with
    budgets over their share, which spare some of what runs; with jobs that start."""
    pools, over = rng.choice([["p"], ["p", "q"]]), rng.choice([0, 2000])
    nodes = [
        Node(f"n{i}", gpus=4, within=f"r{i % 3}", pool=rng.choice(pools), groups=rng.choice([[], [[0, 1], [2, 3]]]))
        for i in range(rng.randint(3, 6))
    ]
    jobs: list[Pending] = []
    for node in nodes:
        free = 4
        while free and 0 < (gpus := rng.choice([0, 1, 2, 2, 4])) <= free:
            free -= gpus
            old = until(node.name, rng.choice([*range(1, 9), 30]), gpus)
            left_s = rng.choice([0, HOUR, 2 * HOUR])
            jobs.append(replace(old, name=f"r{len(jobs)}", budget=rng.choice("wz"), protected_s=left_s))
    for i in range(rng.randint(0, 2)):
        jobs.append(Pending(f"s{i}", budget="y", gpus=rng.choice([1, 2, 4]), timeout_s=rng.choice([-1, 2 * HOUR])))
    for i in range(rng.randint(2, 5)):
        new = Pending(f"g{i}", gpus=rng.choice([1, 2, 4]), replicas=rng.choice([1, 1, 2, 3]))
        new = replace(new, required=rng.choice(["cluster", "rack", "node"]), max_per_node=rng.choice([0, 0, 1]))
        jobs.append(replace(new, exclusive=rng.random() < 0.1, same_gpu_group=rng.random() < 0.1))
    budgets = [
        Budget("x", claim=64),
        Budget("y", claim=8),
        *(Budget(b, charged=over, claim=rng.choice([0, 4, 64])) for b in "wz"),
    ]
    return problem(nodes=nodes, jobs=jobs, budgets=budgets, levels=["rack"])


def in_any_order(p: Problem, rng: Random) -> list[int]:
    """The gangs, in any order."""
    jobs = gangs(p)
    rng.shuffle(jobs)
    return jobs


def check(p: Problem, d: Decision, jobs: Sequence[int]) -> None:
    """Promises are for GPUs that are there by then, for one gang each; who is promised none has room now, or never."""
    nearby = Outlook(p, d).over(np.arange(len(p.nodes.names)))
    held = np.zeros(len(p.nodes.names), dtype=np.int64)
    for h in sorted(d.reservations, key=lambda h: h.starts_us):
        g, level = int(p.jobs.gpus_per_replica[h.job]), int(p.jobs.required_level[h.job])
        assert sum(h.gpus) == p.jobs.size[h.job]
        assert all(gpus > 0 and gpus % g == 0 for gpus in h.gpus)
        assert {int(p.topology.domain_of[level, n]) for n in h.nodes} == {h.domain}
        held[list(h.nodes)] += h.gpus
        assert (held <= nearby.room(h.starts_us)).all()
    now, last = nearby.room(p.now_us) - held, nearby.room(int(nearby.instants[-1])) - held
    promised = {h.job for h in d.reservations}
    for j in jobs:
        if d.action[j] == Action.WAIT and j not in promised:
            assert room_for(p, j, now) == (j not in d.blocked)
            assert not room_for(p, j, last) or j not in d.blocked


def drawn(rounds: int) -> Iterator[tuple[Problem, Decision, list[int], tuple[Hold, ...]]]:
    """Rounds in which nothing, or one thing, is promised from the last answer, some hours later than it could be."""
    rng = Random("drawn")
    for _ in range(rounds):
        p = tiny(rng)
        jobs = in_any_order(p, rng)
        for d in (status_quo(p), any_decision(p, rng)):
            if d is None:
                continue
            holds = in_turn(p, d, jobs).reservations
            late = [replace(h, starts_us=h.starts_us + rng.randint(0, 3) * HOUR * US) for h in holds]
            yield from ((p, d, jobs, kept) for kept in ((), tuple(rng.sample(late, min(1, len(late))))))


def test_promises_share_nothing_and_what_is_kept_stays_where_it_is() -> None:
    better = beside = 0
    for p, d, jobs, kept in drawn(130):
        before = in_turn(p, d, jobs, kept)
        after = promised_jointly(p, before, kept, jobs)
        assert (after is before) == (delay(p, after) == delay(p, before))
        assert delay(p, after) <= delay(p, before)
        assert after.action is d.action
        assert after.placement is d.placement
        check(p, after, jobs)
        at = {h.job: h for h in after.reservations}
        for h in kept:
            assert at[h.job].nodes == h.nodes
            assert at[h.job].gpus == h.gpus
            assert at[h.job].starts_us <= h.starts_us
        better += after is not before
        beside += after is not before and bool(kept)
    assert better >= 40
    assert beside >= 5


def test_whoever_is_promised_what_it_would_be_alone_is_promised_that() -> None:
    alone = 0
    for p, d, jobs, kept in drawn(100):
        before = in_turn(p, d, jobs, kept)
        each = [
            delay(p, in_turn(p, d, [h.job for h in kept] + [j], kept)) for j in jobs if j not in {h.job for h in kept}
        ]
        of_kept = delay(p, in_turn(p, d, [], kept))
        if delay(p, before) == of_kept + sum(x - of_kept for x in each):
            assert promised_jointly(p, before, kept, jobs) is before
            alone += delay(p, before) > 0
    assert alone >= 100


def test_whatever_promises_have_to_heed_they_never_delay_more() -> None:
    rng, better = Random("motley"), 0
    for _ in range(180):
        p = motley(rng)
        jobs = in_any_order(p, rng)
        for d in (status_quo(p), any_decision(p, rng)):
            if d is None:
                continue
            before = in_turn(p, d, jobs)
            after = promised_jointly(p, before, (), jobs)
            assert (after is before) == (delay(p, after) == delay(p, before))
            assert delay(p, after) <= delay(p, before)
            again = in_turn(p, d, jobs, after.reservations)
            assert {h.job for h in again.reservations} == {h.job for h in after.reservations}
            assert delay(p, again) <= delay(p, after)
            better += after is not before
    assert better >= 20


def test_the_same_round_is_promised_the_same() -> None:
    better = 0
    for seed in range(60):
        told = []
        for _ in range(2):
            rng = Random(f"same{seed}")
            p = tiny(rng)
            jobs = in_any_order(p, rng)
            before = in_turn(p, status_quo(p), jobs)
            after = promised_jointly(p, before, (), jobs)
            told.append((after.reservations, after.blocked))
        assert told[0] == told[1]
        better += after is not before
    assert better >= 6


# -- against the best there are ---------------------------------------------------------------------------------------


def test_promises_given_together_are_mostly_the_best_there_are() -> None:
    rng, exact, better, than_any_order = Random("best"), 0, 0, 0
    for _ in range(250):
        p = tiny(rng)
        jobs, drawn = in_any_order(p, rng), any_decision(p, rng) if rng.random() < 0.3 else None
        d = status_quo(p) if drawn is None else drawn
        before = in_turn(p, d, jobs)
        after, least = promised_jointly(p, before, (), jobs), Best(p, d, jobs).least
        assert least <= delay(p, after)
        exact += delay(p, after) == least
        better += delay(p, after) < delay(p, before)
        than_any_order += delay(p, after) < delay(p, in_turn(p, d, best_order(p, d, (), jobs)))
    assert exact >= 0.95 * 250
    assert better >= 30
    assert than_any_order >= 10
