"""What gangs that wait leave each other, in a pool and in its racks: never more delay than the best promises have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import permutations
from random import Random
from types import ModuleType

import numpy as np
import pytest

from builders import HOUR, NOW_US, Budget, Node, Pending, Running, decide, hold, job_at, problem
from cpalloc.metrics.outlook import Outlook
from cpalloc.metrics.reservations import reserve
from cpalloc.models import earliest, sharing
from cpalloc.models.earliest import Choice, Gang, Step, cost_of_waiting
from cpalloc.models.leaving import RoomAt
from cpalloc.models.objectives.delay import instants, places
from cpalloc.models.partition import Partition
from cpalloc.models.round import build
from cpalloc.models.variables import ModelContext
from cpalloc.problem.problem import US, Action, Decision, Problem, status_quo
from cpalloc.solver.jointly import promised_jointly
from cpalloc.solver.run import minimise
from cpalloc.solver.values import violations
from gangs import delay, gangs, mostly_held, until
from models.fixing import ONE_WORKER, any_decision, asking, counted, fixed

WEEK = 7 * 24 * HOUR


def said(p: Problem, d: Decision, jobs: Sequence[int]) -> list[int]:
    """What the model says the jobs wait after a decision, coarse and fine."""
    values = [counted(p, asking(p, jobs, fine=fine), d, "delay") for fine in (False, True)]
    return [value for value in values if value is not None]


def at(p: Problem, *names: str) -> list[int]:
    return [job_at(p, name) for name in names]


def promises(p: Problem, d: Decision, jobs: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Delay of the promises given in every order, and all together."""
    for order in permutations(jobs):
        holds, blocked = reserve(p, d, kept=p.holds, jobs=order)
        in_turn = replace(d, reservations=holds, blocked=blocked)
        yield delay(p, in_turn), delay(p, promised_jointly(p, in_turn, p.holds, order))


def racks(*waiting: Pending, free: Sequence[str] = (), **hours: int) -> Problem:
    """Nodes, named after their racks, that are free or come free in so many hours."""
    return problem(
        nodes=[Node(name, within=name[0]) for name in (*free, *hours)],
        jobs=[*(until(name, h) for name, h in hours.items()), *waiting],
        budgets=[Budget("x", claim=64), Budget("y", claim=64), Budget("z", claim=128)],
        levels=["rack"],
    )


def in_rack(name: str, replicas: int = 2, gpus: int = 8) -> Pending:
    return Pending(name, replicas=replicas, gpus=gpus, required="rack")


def told(p: Problem, *names: str) -> tuple[list[int], int]:
    """In hours of a GPU: what the model says, coarse and fine, of the status quo, and the least any promises delay."""
    jobs = at(p, *names)
    least = min(min(pair) for pair in promises(p, status_quo(p), jobs))
    return [value // HOUR for value in said(p, status_quo(p), jobs)], least // HOUR


# -- by hand ----------------------------------------------------------------------------------------------------------


def test_two_gangs_that_want_a_rack_at_the_same_time_do_not_both_get_it() -> None:
    # Rack a is free in 2 h, as are c1 and d1, which are of no use to pairs: 4 nodes of the pool for 2 + 2, and of rack
    # a 2. So one has to wait for rack b: 16·2 + 16·9, of which the pool alone knows 16·2 + 16·2.
    p = racks(in_rack("one"), in_rack("two"), a1=2, a2=2, b1=9, b2=9, c1=2, d1=2)
    assert told(p, "one", "two") == ([16 * (2 + 2), 16 * (2 + 9)], 16 * (2 + 9))
    # Without c1 and d1 the pool has 2 slots by 2 h, and 4 by 9 h.
    p = racks(in_rack("one"), in_rack("two"), a1=2, a2=2, b1=9, b2=9)
    assert told(p, "one", "two") == ([16 * (2 + 9), 16 * (2 + 9)], 16 * (2 + 9))


def test_small_gangs_and_large_ones_share_a_rack_in_slots_of_either_size() -> None:
    # By 2 h rack a has 2 slots of 8 GPUs, 4 of 4: halves takes 3 of the latter, pair all of the former. One of them
    # waits for b: 12·5 + 16·2 < 12·2 + 16·5.
    p = racks(in_rack("pair"), in_rack("halves", 3, 4), a1=2, a2=2, b1=5, b2=5, c1=2, d1=2)
    assert told(p, "pair", "halves") == ([28 * 2, 12 * 5 + 16 * 2], 12 * 5 + 16 * 2)


def test_who_is_held_early_with_nodes_of_a_rack_leaves_less_of_it_to_who_needs_it_later() -> None:
    # wide finds two nodes by 1 h, of which one is a1; then rack a, complete at 2 h, is of no use to pair, which waits
    # for b: 16·1 + 16·20. Or wide waits until 2 h for e1. Slots outside a by 1 h: 1, in it by 2 h: 2; for 2 + 2.
    # The pool has 2 by 1 h and 4 by 2 h, rack a 2 by 2 h: they do not tell.
    p = racks(Pending("wide", replicas=2, gpus=8), in_rack("pair"), a1=1, a2=2, b1=20, b2=20, c1=1, e1=2)
    assert told(p, "wide", "pair") == ([16 * 1 + 16 * 2, 16 * 2 + 16 * 2], 16 * 2 + 16 * 2)


def test_who_could_start_at_once_in_a_rack_cannot_beside_who_is_promised_all_of_it() -> None:
    # Two nodes of rack a are free, and c1 and d1, which are of no use here. trio is promised a at 2 h, so that pair
    # waits for b: 24·2 + 16·9; or trio waits for b, and pair could start: 24·9. The pool has 5 slots by 2 h, for 3 + 2.
    p = racks(in_rack("trio", 3), in_rack("pair"), free=["a1", "a2", "c1", "d1"], a3=2, b1=9, b2=9, b3=9)
    assert told(p, "trio", "pair") == ([24 * 2, 24 * 2 + 16 * 9], 24 * 2 + 16 * 9)


def test_each_of_those_who_could_start_at_once_has_to_but_not_all_of_them_together() -> None:
    # one and two could start on a1, late is promised a2 and a3 at 2 h: each of them has its GPUs beside that.
    p = racks(in_rack("one", 1), in_rack("two", 1), in_rack("late"), free=["a1"], a2=2, a3=2)
    assert told(p, "one", "two", "late") == ([16 * 2, 16 * 2], 16 * 2)
    # Where late needs a1 as well neither could, ever: 24·2 + 2·8·168, less than 24·168.
    p = racks(in_rack("one", 1), in_rack("two", 1), in_rack("late", 3), free=["a1"], a2=2, a3=2)
    assert told(p, "one", "two", "late") == ([24 * 2 + 16 * 168] * 2, 24 * 2 + 16 * 168)


def test_now_is_no_step_with_later_instants(monkeypatch: pytest.MonkeyPatch) -> None:
    # one and two could start on rack a. Of seven instants two are chosen among: if the first were for now and until
    # 2 h, they would share the five nodes there are by then.
    p = racks(
        *(Pending(name, replicas=3, gpus=8) for name in ("one", "two")),
        free=["a1", "a2", "a3"],
        **{f"b{h}": h for h in range(1, 7)},
    )
    monkeypatch.setattr(earliest, "MAX_STEPS", 2)
    monkeypatch.setattr(earliest, "MAX_FINE_STEPS", 2)
    assert told(p, "one", "two") == ([0, 0], 0)


def test_what_is_held_early_elsewhere_takes_nothing_from_those_who_could_start_at_once() -> None:
    # one and two could start on a1. wide is held at 1 h on c1 and d1: whoever starts takes nothing of rack a by 3 h.
    p = racks(in_rack("one", 1), in_rack("two", 1), Pending("wide", replicas=2, gpus=8), free=["a1"], c1=1, d1=1, e1=3)
    assert told(p, "one", "two", "wide") == ([16 * 1, 16 * 1], 16 * 1)


@pytest.mark.parametrize(("module", "limit", "most"), [(earliest, "MOST_TOLD", 3), (sharing, "MOST_ACROSS", 0)])
def test_of_too_many_racks_less_is_told(
    module: ModuleType, limit: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As above: four racks, of which a could be had whatever starts, and what is left of one rack for later.
    same = racks(in_rack("one"), in_rack("two"), a1=2, a2=2, b1=9, b2=9, c1=2, d1=2)
    later = racks(Pending("wide", replicas=2, gpus=8), in_rack("pair"), a1=1, a2=2, b1=20, b2=20, c1=1, e1=2)
    monkeypatch.setattr(module, limit, most)
    (pool, fine), _ = told(same, "one", "two")
    assert (pool, fine) == (16 * (2 + 2), 16 * (2 + (2 if limit == "MOST_TOLD" else 9)))
    assert told(later, "wide", "pair")[0] == [16 * 1 + 16 * 2] * 2


# -- what is stated once ----------------------------------------------------------------------------------------------


def waits(p: Problem, job: str, *, by_pool: bool, fine: bool = False) -> tuple[ModelContext, Choice, int]:
    """A gang that may be held now or at one of the instants, at a cost of so many hours; and how many rows say so."""
    j = job_at(p, job)
    gang = Gang(job, int(p.jobs.replicas[j]), int(p.jobs.gpus_per_replica[j]), places(p, j))
    ctx = build(p, Partition(split=True, fine=fine, instants=instants(p), by_release=True))
    room, before = RoomAt(ctx), len(ctx.model.proto.constraints)
    choices = [Step(t, (t - NOW_US) // US // HOUR) for t in instants(p)]
    choice = cost_of_waiting(ctx, gang, choices, 100, room, by_pool=by_pool)
    return ctx, choice, len(ctx.model.proto.constraints) - before


def hours_of(choice: Choice) -> list[int]:
    return [(h.at_us - NOW_US) // US // HOUR for h in choice.held]


def test_choices_that_find_the_same_slots_share_a_row() -> None:
    # new may start on a1 or a2 and never leave. Nothing changes there at 1 h, 2 h or 3 h, when c1 to c3 come free. Two
    # rows bind the slots of a1, two those of a2; one says that the choices need them, one that some choice is made.
    new = Pending("new", budget="y", gpus=4, nodes=["a1", "a2"])
    p = racks(new, in_rack("pair"), free=["a1", "a2"], c1=1, d1=2, e1=3)
    _, choice, rows = waits(p, "pair", by_pool=True)
    assert hours_of(choice) == [0, 1, 2, 3]
    assert rows == 2 + 2 + 1 + 1
    # Waiting longer is for those who mind who else is held.
    _, choice, rows = waits(p, "pair", by_pool=False)
    assert hours_of(choice) == [0]
    assert rows == 2 + 2 + 1 + 1


def test_choices_that_find_other_slots_have_a_row_of_their_own() -> None:
    # Half of a2 comes free at 2 h: until then there is a slot on a1, from then on one on each. c1 comes free at 3 h.
    new = Pending("new", budget="y", gpus=4, nodes=["a1", "a2"])
    p = problem(
        nodes=[Node("a1"), Node("a2"), Node("c1")],
        jobs=[until("a2", 2, 4), until("c1", 3), new, Pending("one", gpus=8, nodes=["a1", "a2"])],
        budgets=[Budget("x", claim=8), Budget("y", claim=8), Budget("z", claim=16)],
    )
    for by_pool, found in ((True, [0, 2, 3]), (False, [0, 2])):
        _, choice, rows = waits(p, "one", by_pool=by_pool)
        assert hours_of(choice) == found
        assert rows == 2 + 2 + 2 + 1


def test_as_many_slots_at_most_are_not_as_many_beside_starts() -> None:
    # n1 has room for four from 5 h on, where new is not: 4 GPUs by 5 h, 5 by 6 h, which is one slot either way.
    p = problem(
        nodes=[Node("n1")],
        jobs=[
            *(until("n1", hours, gpus) for hours, gpus in ((5, 3), (6, 1), (99, 3))),
            Pending("new", budget="y"),
            Pending("four", gpus=4),
        ],
        budgets=[Budget("x", claim=8), Budget("y", claim=8), Budget("z", claim=8)],
    )
    for d, hours in ((status_quo(p), 5), (decide(p, start={"new": "n1"}), 6)):
        assert min(min(pair) for pair in promises(p, d, at(p, "four"))) == 4 * hours * HOUR
        assert said(p, d, at(p, "four")) == [4 * hours * HOUR] * 2


def test_which_rack_holds_a_gang_is_told_where_there_are_several() -> None:
    # Nothing can start: a surely holds pair from 1 h on, b from 2 h on. Who asks nobody else need not wait longer.
    p = racks(in_rack("pair"), a1=1, a2=1, b1=2, b2=2, c1=3)
    _, choice, _ = waits(p, "pair", by_pool=False)
    assert [(h.at_us, h.inside) for h in choice.held] == [(NOW_US + HOUR * US, ())]
    _, choice, _ = waits(p, "pair", by_pool=True)
    assert hours_of(choice) == [1, 2, 3]
    assert [h.inside for h in choice.held] == [(), (), ()]
    _, choice, _ = waits(p, "pair", by_pool=True, fine=True)
    assert hours_of(choice) == [1, 2, 3]
    assert [[nodes.tolist() for nodes, _ in h.inside] for h in choice.held] == [
        [[0, 1]],
        [[0, 1], [2, 3]],
        [[0, 1], [2, 3]],
    ]
    assert choice.held[0].inside[0][1] is choice.held[0].chosen
    assert all(var is not h.chosen for h in choice.held[1:] for _, var in h.inside)


# -- at random --------------------------------------------------------------------------------------------------------


def racked(rng: Random) -> Problem:
    """Racks of nodes of four GPUs, mostly held for some hours; jobs that may start on them; gangs that wait."""
    across = rng.choice([2, 2, 3])
    nodes = [Node(f"n{i}", gpus=4, within=f"r{i % across}") for i in range(rng.randint(4, 6))]
    jobs: list[Pending] = [*mostly_held(nodes, [0, 2, 4, 4], rng)]
    for i in range(rng.randint(0, 2)):
        left_s = rng.choice([-1, 2 * HOUR, 5 * HOUR])
        jobs.append(Pending(f"s{i}", budget="y", gpus=rng.choice([1, 2, 4]), timeout_s=left_s))
    sizes = rng.sample([(1, 4), (2, 4), (3, 2), (2, 2), (3, 4), (4, 1)], rng.randint(2, 3))
    for i, (replicas, gpus) in enumerate(sizes):
        required = rng.choice(["cluster", "rack", "rack"])
        jobs.append(Pending(f"g{i}", replicas=replicas, gpus=gpus, required=required))
    budgets = [Budget("x", claim=64), Budget("y", claim=8), Budget("z", claim=64)]
    return problem(nodes=nodes, jobs=jobs, budgets=budgets, levels=["rack"])


def drawn(seed: str, rounds: int) -> Iterator[tuple[Problem, Decision]]:
    rng = Random(seed)
    for _ in range(rounds):
        p = racked(rng)
        yield from ((p, d) for d in (status_quo(p), any_decision(p, rng)) if d is not None)


def test_gangs_in_racks_never_wait_longer_in_the_model_than_the_best_promises_say() -> None:
    positive = exact = coarsely = finer = together = 0
    for p, d in drawn("racked", 75):
        coarse, fine = said(p, d, gangs(p))
        pairs = list(promises(p, d, gangs(p)))
        in_turn, best = min(one for one, _ in pairs), min(min(pair) for pair in pairs)
        assert coarse <= fine <= best
        positive += best > 0
        exact += 0 < fine == best
        coarsely += 0 < coarse == best
        finer += coarse < fine
        together += best < in_turn
    assert positive >= 100
    assert exact >= 0.79 * positive
    assert exact >= coarsely + 15
    assert finer >= 20
    assert together >= 4


def test_beside_what_is_kept_gangs_never_wait_longer_in_the_model_than_the_best_promises_say() -> None:
    rng, kept, positive, exact = Random("kept"), 0, 0, 0
    for p, d in drawn("beside", 40):
        holds, _ = reserve(p, status_quo(p), jobs=gangs(p))
        q = replace(p, holds=tuple(rng.sample(holds, min(1, len(holds)))))
        if violations(q, d):
            continue
        coarse, fine = said(q, d, gangs(p))
        best = min(min(pair) for pair in promises(q, d, gangs(p)))
        assert coarse <= fine <= best
        kept += bool(q.holds)
        positive += best > 0
        exact += 0 < fine == best
    assert min(kept, positive) >= 45
    assert exact >= 0.83 * positive


def test_a_gang_by_itself_is_held_at_the_first_instant_at_which_a_rack_has_room_for_it() -> None:
    waited = late = 0
    for p, d in drawn("alone", 45):
        for j in (j for j in gangs(p) if d.action[j] == Action.WAIT):
            replicas, g = int(p.jobs.replicas[j]), int(p.jobs.gpus_per_replica[j])
            domains, nearby = places(p, j), Outlook(p, d).over(np.arange(len(p.nodes.names)))
            choices = [Step(t, (t - NOW_US) // US // HOUR) for t in instants(p)]
            rooms = [nearby.room(step.at_us) // g for step in choices]
            fits = [any(int(room[nodes].sum()) >= replicas for nodes in domains) for room in rooms]
            least = next((step.cost for step, fit in zip(choices, fits, strict=True) if fit), 100)
            for by_pool, fine in ((False, False), (True, False), (True, True)):
                ctx = fixed(p, Partition(split=True, fine=fine, instants=instants(p), by_release=True), d)
                choice = cost_of_waiting(
                    ctx, Gang("g", replicas, g, domains), choices, 100, RoomAt(ctx), by_pool=by_pool
                )
                assert minimise(ctx.model, choice.cost, options=ONE_WORKER, limit_s=10.0).bound == least
            waited += least > 0
            late += least == 100
    assert waited >= 100
    assert late >= 12


# -- what is kept -----------------------------------------------------------------------------------------------------


def kept_on(node: str, gpus: int, jobs: Sequence[Pending], **holds: int) -> Problem:
    """Gangs promised GPUs of a node from the last answer, for in so many hours."""
    names = sorted({job.at for job in jobs if isinstance(job, Running) and isinstance(job.at, str)})
    p = problem(
        nodes=[Node(name) for name in names],
        jobs=jobs,
        budgets=[Budget("x", claim=64), Budget("y", claim=64), Budget("z", claim=64)],
    )
    return replace(p, holds=tuple(hold(p, name, {node: gpus}, in_s=h * HOUR) for name, h in holds.items()))


def test_two_kept_promises_on_a_node_come_forward_one_after_the_other() -> None:
    # n1 has 4 GPUs from 1 h on and 8 from 3 h on. b, promised 4 of them for in 4 h, is renewed at 1 h, a at 3 h.
    work = [until("n1", 1, 4), until("n1", 3, 4)]
    p = kept_on("n1", 4, [*work, Pending("a", gpus=4), Pending("b", gpus=4)], a=5, b=4)
    jobs = at(p, "a", "b")
    assert min(min(pair) for pair in promises(p, status_quo(p), jobs)) == (4 * 1 + 4 * 3) * HOUR
    assert max(said(p, status_quo(p), jobs)) <= (4 * 1 + 4 * 3) * HOUR


def test_a_promise_for_later_than_all_that_is_known_may_be_broken() -> None:
    # new, which ranks above gang, takes the free half of n1, promised to gang for in 9 h: then n2 it is, at 7 h.
    new, gang = Pending("new", budget="y", gpus=4, priority=3), Pending("gang", gpus=8)
    p = kept_on("n1", 8, [until("n1", 6, 4), until("n2", 7), new, gang], gang=9)
    d, jobs = decide(p, start={"new": "n1"}), at(p, "gang")
    assert violations(p, d) == []
    assert min(min(pair) for pair in promises(p, d, jobs)) == 8 * 7 * HOUR
    assert max(said(p, d, jobs)) <= 8 * 7 * HOUR
