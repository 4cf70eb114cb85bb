"""What is free while a decision is built or judged."""

from __future__ import annotations

import random

import numpy as np
import pytest

from builders import DOWN, DRAINING, Budget, Node, Pending, Running, decide, job_at, node_at, problem
from cpalloc.problem.problem import JobState, Problem, Replica
from cpalloc.problem.usage import Usage
from reference.usage_state import state


def slots(p: Problem, usage: Usage, job: str, node: str = "n1") -> int:
    """Slots of a job on a node, asked both ways."""
    one = usage.slots(job_at(p, job), node_at(p, node))
    assert usage.slots_all(job_at(p, job))[node_at(p, node)] == one
    return one


# -- what the status quo leaves free --------------------------------------------------------------------------------


def test_forced_ends_have_left_and_stopping_jobs_have_not() -> None:
    # n1: 8 - 1 unhealthy - 2 kept - 2 stopping = 3; the drained and lost jobs have left nodes that take nothing.
    p = problem(
        nodes=[Node("n1", unhealthy=[7]), Node("n2", state=DRAINING), Node("n3", state=DOWN)],
        jobs=[
            Running("kept", at="n1", gpus=2),
            Running("stops", at="n1", gpus=2, stopping=True),
            Running("drained", at="n2", gpus=8),
            Running("lost", at="n3", gpus=8),
            Pending("new"),
        ],
    )
    usage = Usage(p)
    assert usage.free_gpus.tolist() == [3, 0, 0]
    assert usage.free_devices == [0b0111_0000, 0, 0]
    assert usage.running_on.tolist() == [2, 0, 0]
    assert usage.slots_all(job_at(p, "new")).tolist() == [3, 0, 0]


def test_status_quo_shares_nothing_with_the_problem() -> None:
    p = problem(nodes=[Node("n1")], jobs=[Pending("new", gpus=8)])
    usage = Usage(p)
    usage.place(job_at(p, "new"), decide(p, start={"new": "n1"}).placement[job_at(p, "new")])
    assert p.nodes.free_gpus.tolist() == [8]
    assert p.nodes.free_devices == (0b1111_1111,)


# -- coming and going -----------------------------------------------------------------------------------------------


def test_evict_and_restore() -> None:
    p = problem(nodes=[Node("n1", resources={"cpu": 10})], jobs=[Running("v", at="n1", gpus=6, resources={"cpu": 7})])
    usage, before = Usage(p), state(Usage(p))
    usage.evict(0)
    assert state(usage) == ([8], [0b1111_1111], [[10]], [0])
    usage.restore(0)
    assert state(usage) == before == ([2], [0b1100_0000], [[3]], [1])


def test_place_and_remove() -> None:
    p = problem(
        nodes=[Node("n1", resources={"cpu": 10}), Node("n2")],
        jobs=[Pending("new", gpus=3, replicas=3, resources={"cpu": 2})],
    )
    usage, before = Usage(p), state(Usage(p))
    placement = decide(p, start={"new": {"n1": 2, "n2": 1}}).placement[0]
    usage.place(0, placement)
    # n1: 8 - 2·3 GPUs, 10 - 2·2 cpu; n2: 8 - 3 GPUs, and a job more on each node.
    assert state(usage) == ([2, 5], [0b1100_0000, 0b1111_1000], [[6], [-2]], [1, 1])
    usage.remove(0, placement)
    assert state(usage) == before


def test_counts_where_devices_are_unknown() -> None:
    p = problem(nodes=[Node("n1", unknown=True)], jobs=[Running("v", at="n1", gpus=5), Pending("new", gpus=4)])
    usage = Usage(p)
    assert (usage.free_gpus.tolist(), usage.free_devices) == ([3], [-1])
    assert slots(p, usage, "new") == 0
    usage.evict(job_at(p, "v"))
    assert (usage.free_gpus.tolist(), usage.free_devices) == ([8], [-1])
    assert usage.choose_devices(job_at(p, "new"), 0, 2) == [Replica(0, 4, -1)] * 2
    usage.place(job_at(p, "new"), [Replica(0, 4, -1)])
    assert (usage.free_gpus.tolist(), usage.free_devices) == ([4], [-1])


def test_of_a_decision_with_and_without_some_starts() -> None:
    p = problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[Running("v", budget="y", at="n1", gpus=8), Pending("a", gpus=8), Pending("b", gpus=2)],
        budgets=[Budget("x"), Budget("y")],
    )
    d = decide(p, start={"a": "n1", "b": "n2"}, preempt=["v"])
    assert Usage.of(p, d).free_gpus.tolist() == [0, 6]
    assert Usage.of(p, d, without=[job_at(p, "a")]).free_gpus.tolist() == [8, 6]
    assert Usage.of(p, d, without=set(d.placement)).free_gpus.tolist() == [8, 8]


def test_an_evicted_job_may_return_only_to_its_own_devices() -> None:
    p = problem(
        nodes=[Node("n1")],
        jobs=[Running("v", at="n1", gpus=2), Pending("beside"), Pending("there")],
    )
    for name, devices, may in (("beside", [2], True), ("there", [1], False)):
        usage = Usage(p)
        usage.evict(job_at(p, "v"))
        usage.place(job_at(p, name), [Replica(0, 1, sum(1 << d for d in devices))])
        assert usage.can_restore(job_at(p, "v")) is may


@pytest.mark.parametrize(("cpu", "may"), [(5, True), (4, False)])
def test_an_evicted_job_may_return_only_to_resources_that_are_left(cpu: int, may: bool) -> None:
    # Less 2 for new; v needs 3.
    p = problem(
        nodes=[Node("n1", resources={"cpu": cpu})],
        jobs=[Running("v", at="n1", resources={"cpu": 3}), Pending("new", gpus=2, resources={"cpu": 2})],
    )
    usage = Usage(p)
    usage.evict(job_at(p, "v"))
    usage.place(job_at(p, "new"), [Replica(0, 2, 0b1100_0000)])
    assert usage.can_restore(job_at(p, "v")) is may


@pytest.mark.parametrize(("gpus", "may"), [(3, True), (4, False)])
def test_an_evicted_job_may_return_only_to_gpus_that_are_left(gpus: int, may: bool) -> None:
    # Devices unknown: 8 GPUs less those of new; v needs 5.
    p = problem(nodes=[Node("n1", unknown=True)], jobs=[Running("v", at="n1", gpus=5), Pending("new", gpus=gpus)])
    usage = Usage(p)
    usage.evict(job_at(p, "v"))
    usage.place(job_at(p, "new"), [Replica(0, gpus, -1)])
    assert usage.can_restore(job_at(p, "v")) is may


def test_a_random_walk_ends_where_the_decision_says() -> None:
    """Any order of comings and goings that ends at a decision gives the state of that decision."""
    p = problem(
        nodes=[Node(f"n{i}", resources={"cpu": 16}) for i in range(4)],
        jobs=[
            *(Running(f"v{i}", at=f"n{i}", gpus=3, replicas=2, resources={"cpu": 2}) for i in range(4)),
            *(Pending(f"a{i}", gpus=1, replicas=2, resources={"cpu": 1}) for i in range(4)),
        ],
    )
    d = decide(p, start={f"a{i}": f"n{i}" for i in range(4)}, preempt=["v0", "v2"])
    rng = random.Random(0)
    for _ in range(20):
        usage = Usage(p)
        gone, there = set[int](), set[int]()
        victims = {job_at(p, "v0"), job_at(p, "v2")}

        def turn(j: int, usage: Usage = usage, gone: set[int] = gone, there: set[int] = there) -> None:
            """The job comes if it is away and goes if it is there, unless others are in its place."""
            if j in there:
                usage.remove(j, d.placement[j])
                there.remove(j)
            elif j in d.placement:
                if all(not r.devices & ~usage.free_devices[r.node] for r in d.placement[j]):
                    usage.place(j, d.placement[j])
                    there.add(j)
            elif j not in gone:
                usage.evict(j)
                gone.add(j)
            elif usage.can_restore(j):
                usage.restore(j)
                gone.remove(j)

        for _ in range(50):
            turn(rng.randrange(len(p.jobs)))
        for j in [*victims - gone, *gone - victims, *d.placement.keys() - there]:
            turn(j)
        assert (gone, there) == (victims, set(d.placement))
        assert state(usage) == state(Usage.of(p, d))


# -- exclusive nodes ------------------------------------------------------------------------------------------------


def test_an_exclusive_start_takes_the_whole_node_and_gives_it_back() -> None:
    p = problem(nodes=[Node("n1")], jobs=[Pending("alone", gpus=2, exclusive=True), Pending("new")])
    usage, before = Usage(p), state(Usage(p))
    alone, placement = job_at(p, "alone"), [Replica(0, 2, 0b11)]
    usage.place(alone, placement)
    assert (usage.free_gpus.tolist(), usage.free_devices, slots(p, usage, "new")) == ([0], [0], 0)
    usage.remove(alone, placement)
    assert state(usage) == before
    assert slots(p, usage, "new") == 8


def test_an_exclusive_start_needs_a_node_without_company() -> None:
    p = problem(
        nodes=[Node("n1"), Node("n2"), Node("n3")],
        jobs=[
            Running("v", at="n1"),
            Running("stays", at="n2", mode="allocated", protected_s=60),
            Pending("alone", gpus=2, exclusive=True),
        ],
    )
    usage = Usage(p)
    assert usage.slots_all(job_at(p, "alone")).tolist() == [0, 0, 4]
    usage.evict(job_at(p, "v"))
    assert usage.slots_all(job_at(p, "alone")).tolist() == [4, 0, 4]
    usage.clear_company()
    assert usage.slots_all(job_at(p, "alone")).tolist() == [4, 3, 4]


def test_an_exclusive_job_that_is_evicted_gives_back_the_whole_node() -> None:
    p = problem(nodes=[Node("n1")], jobs=[Running("alone", at="n1", gpus=2, exclusive=True), Pending("new", gpus=4)])
    usage = Usage(p)
    assert slots(p, usage, "new") == 0
    usage.evict(job_at(p, "alone"))
    assert slots(p, usage, "new") == 2
    usage.restore(job_at(p, "alone"))
    assert slots(p, usage, "new") == 0


def test_nobody_returns_to_a_node_that_an_exclusive_start_has_taken() -> None:
    # v runs on an unhealthy GPU: it frees no GPU, so counting GPUs alone would let it return beside the start.
    p = problem(
        nodes=[Node("n1", unhealthy=[0])],
        jobs=[Running("v", at=[("n1", [0])]), Pending("alone", gpus=7, exclusive=True)],
    )
    usage, v = Usage(p), job_at(p, "v")
    usage.evict(v)
    assert usage.can_restore(v)
    usage.place(job_at(p, "alone"), [Replica(0, 7, 0b1111_1110)])
    assert not usage.can_restore(v)


def test_evicting_beside_an_exclusive_start_frees_nothing_for_others() -> None:
    p = problem(
        nodes=[Node("n1")], jobs=[Running("v", at="n1"), Pending("alone", gpus=2, exclusive=True), Pending("new")]
    )
    usage, alone, v = Usage(p), job_at(p, "alone"), job_at(p, "v")
    usage.place(alone, [Replica(0, 2, 0b110)])
    usage.evict(v)
    assert (usage.free_gpus.tolist(), slots(p, usage, "new")) == ([0], 0)
    usage.remove(alone, [Replica(0, 2, 0b110)])
    assert (usage.free_gpus.tolist(), usage.free_devices) == ([8], [0b1111_1111])


# -- slots ----------------------------------------------------------------------------------------------------------


def test_slots_obey_every_limit_in_turn() -> None:
    p = problem(
        nodes=[Node("n1", resources={"cpu": 10, "ram": 100})],
        jobs=[
            Pending("gpus", gpus=3),  # ⌊8 / 3⌋ = 2
            Pending("cpu", gpus=1, resources={"cpu": 3}),  # ⌊10 / 3⌋ = 3
            Pending("both", gpus=1, resources={"cpu": 2, "ram": 60}),  # min(⌊10 / 2⌋, ⌊100 / 60⌋) = 1
            Pending("spread", gpus=1, max_per_node=2),
            Pending("elsewhere", nodes=["n2"]),
            Pending("refused", refused=True, nodes=[]),
        ],
    )
    usage = Usage(p)
    wanted = {"gpus": 2, "cpu": 3, "both": 1, "spread": 2, "elsewhere": 0, "refused": 0}
    assert {name: slots(p, usage, name) for name in wanted} == wanted


def test_slots_are_never_negative() -> None:
    # Kept jobs were promised 6 of 4 cpu: the snapshot is overbooked.
    p = problem(
        nodes=[Node("n1", resources={"cpu": 4})],
        jobs=[Running("v", at="n1", replicas=2, resources={"cpu": 3}), Pending("new", resources={"cpu": 1})],
    )
    assert slots(p, Usage(p), "new") == 0


def test_replicas_bound_to_one_gpu_group() -> None:
    # Groups of 4: v holds 1 of the first; 3 + 4 are free, replicas of 2: ⌊3/2⌋ + ⌊4/2⌋ = 3, of 3: 2, of 4: 1.
    p = problem(
        nodes=[Node("n1", groups=[range(4), range(4, 8)])],
        jobs=[Running("v", at="n1"), *(Pending(f"g{g}", gpus=g, same_gpu_group=True) for g in (2, 3, 4, 5))],
    )
    usage = Usage(p)
    assert [slots(p, usage, f"g{g}") for g in (2, 3, 4, 5)] == [3, 2, 1, 0]


def test_replicas_bound_to_one_group_find_none_where_devices_are_unknown() -> None:
    p = problem(
        nodes=[Node("n1", unknown=True)], jobs=[Running("v", at="n1"), Pending("new", gpus=2, same_gpu_group=True)]
    )
    assert slots(p, Usage(p), "new") == 0


# -- whole gangs ----------------------------------------------------------------------------------------------------


def test_a_gang_fits_only_inside_one_domain_of_its_level() -> None:
    p = problem(
        nodes=[Node("n1", within="r1"), Node("n2", within="r2"), Node("n3", within="r2", gpus=4)],
        levels=["rack"],
        jobs=[
            Pending("loose", gpus=4, replicas=5),  # 2 + 2 + 1 slots in the cluster
            Pending("rack", gpus=4, replicas=3, required="rack"),  # r1 has 2, r2 has 3
            Pending("too big", gpus=4, replicas=4, required="rack"),
            Pending("either", gpus=8, replicas=1, required="rack"),
            Pending("node", gpus=4, replicas=2, required="node"),
        ],
    )
    usage = Usage(p)
    assert usage.fits(job_at(p, "loose"))
    assert usage.best_domain(job_at(p, "rack")) == (0, 1)
    assert usage.best_domain(job_at(p, "too big")) is None
    assert not usage.fits(job_at(p, "too big"))
    assert usage.best_domain(job_at(p, "either")) == (0, 0)  # r1 and r2 have one slot each: the first by name
    assert usage.best_domain(job_at(p, "node")) == (0, 0)


def test_the_tightest_domain_is_best() -> None:
    p = problem(
        nodes=[Node("n1", within="r1"), Node("n2", within="r2", gpus=4)],
        levels=["rack"],
        jobs=[Pending("new", gpus=2, replicas=2, required="rack")],
    )
    assert Usage(p).best_domain(0) == (0, 1)  # 4 slots in r1, 2 in r2


def test_a_gang_does_not_span_pools() -> None:
    p = problem(
        nodes=[Node("n1", pool="a100"), Node("n2", pool="h100", gpus=16)],
        jobs=[Pending("three", gpus=8, replicas=3), Pending("two", gpus=8, replicas=2)],
    )
    usage = Usage(p)
    assert not usage.fits(job_at(p, "three"))  # 1 + 2 slots, in two pools
    assert usage.best_domain(job_at(p, "two")) == (1, 0)


def test_nothing_fits_a_cluster_without_nodes() -> None:
    p = problem(nodes=[], jobs=[Pending("new")])
    assert Usage(p).best_domain(0) is None


# -- devices --------------------------------------------------------------------------------------------------------

GROUPS = [range(4), range(4, 8)]


@pytest.mark.parametrize(
    ("held", "gpus", "count", "masks"),
    [
        pytest.param([], 2, 2, [0b0000_0011, 0b0000_1100], id="lowest first, one group after the other"),
        pytest.param([4, 5], 2, 1, [0b1100_0000], id="the fullest group that holds it"),
        pytest.param([0], 3, 2, [0b0000_1110, 0b0111_0000], id="one replica a group"),
        pytest.param([0, 4], 4, 1, [0b0010_1110], id="over both where none holds it"),
    ],
)
def test_devices_of_replicas(held: list[int], gpus: int, count: int, masks: list[int]) -> None:
    jobs = [Running("v", at=[("n1", held)], gpus=len(held))] if held else []
    p = problem(nodes=[Node("n1", groups=GROUPS)], jobs=[*jobs, Pending("new", gpus=gpus)])
    chosen = Usage(p).choose_devices(job_at(p, "new"), 0, count)
    assert chosen == [Replica(0, gpus, mask) for mask in masks]


def test_devices_of_replicas_bound_to_a_group() -> None:
    # 3 + 3 free: one replica of 3 in each group, and no third one.
    p = problem(
        nodes=[Node("n1", groups=GROUPS)],
        jobs=[Running("v", at=[("n1", [0, 4])], gpus=2), Pending("new", gpus=3, same_gpu_group=True)],
    )
    usage, new = Usage(p), job_at(p, "new")
    assert [r.devices for r in usage.choose_devices(new, 0, 2)] == [0b0000_1110, 0b1110_0000]
    with pytest.raises(ValueError, match="no room"):
        usage.choose_devices(new, 0, 3)


def test_devices_that_are_not_there_are_refused() -> None:
    p = problem(nodes=[Node("n1", gpus=4)], jobs=[Pending("new", gpus=3)])
    with pytest.raises(ValueError, match="n1 has no room for 2 replicas of 3 GPUs"):
        Usage(p).choose_devices(0, 0, 2)


def test_choosing_devices_takes_nothing() -> None:
    p = problem(nodes=[Node("n1")], jobs=[Pending("new", gpus=2)])
    usage = Usage(p)
    usage.choose_devices(0, 0, 2)
    assert state(usage) == state(Usage(p))


def test_slots_of_devices_are_what_can_be_chosen() -> None:
    """``slots`` promises as many replicas as ``choose_devices`` finds, disjoint and free."""
    rng = np.random.default_rng(0)
    for _ in range(100):
        held = np.flatnonzero(rng.random(8) < 0.4).tolist()
        g, bound = int(rng.integers(1, 5)), bool(rng.random() < 0.5)
        jobs = [Running("v", at=[("n1", held)], gpus=len(held))] if held else []
        new = Pending("new", gpus=g, same_gpu_group=bound)
        p = problem(nodes=[Node("n1", groups=[range(3), range(3, 8)])], jobs=[*jobs, new])
        usage, j = Usage(p), job_at(p, "new")
        count = usage.slots(j, 0)
        chosen = usage.choose_devices(j, 0, count)
        union = 0
        for r in chosen:
            assert r.devices.bit_count() == g
            assert not r.devices & (union | ~usage.free_devices[0])
            assert not bound or any(not r.devices & ~m for m in p.nodes.groups[0])
            union |= r.devices
        with pytest.raises(ValueError, match="no room"):
            usage.choose_devices(j, 0, count + 1)


def test_evictable_jobs_of_the_builder_are_evictable() -> None:
    p = problem(nodes=[Node("n1")], jobs=[Running("v", at="n1")])
    assert p.jobs.state[0] == JobState.EVICTABLE


def neighbours() -> Problem:
    """Alone wants n1 to itself and shares it all the same: it holds GPUs 0-3, v holds 4 and 5."""
    return problem(
        nodes=[Node("n1")],
        jobs=[
            Running("alone", at=[("n1", [0, 1, 2, 3])], gpus=4, exclusive=True),
            Running("v", at=[("n1", [4, 5])], gpus=2),
            Pending("new", gpus=2),
        ],
    )


def test_evicting_beside_a_kept_exclusive_job_frees_nothing_for_others() -> None:
    p = neighbours()
    usage, before = Usage(p), state(Usage(p))
    usage.evict(job_at(p, "v"))
    assert (usage.free_gpus.tolist(), slots(p, usage, "new")) == ([0], 0)
    assert usage.can_restore(job_at(p, "v"))
    usage.evict(job_at(p, "alone"))
    assert (usage.free_gpus.tolist(), usage.free_devices, slots(p, usage, "new")) == ([8], [0b1111_1111], 4)
    usage.restore(job_at(p, "v"))
    usage.restore(job_at(p, "alone"))
    assert state(usage) == before


def test_an_exclusive_job_does_not_return_beside_a_start() -> None:
    # new takes what v left; all that alone held is free, but it would no longer be alone.
    p = neighbours()
    usage = Usage(p)
    usage.evict(job_at(p, "alone"))
    usage.evict(job_at(p, "v"))
    usage.place(job_at(p, "new"), [Replica(0, 2, 0b0011_0000)])
    assert not usage.can_restore(job_at(p, "alone"))
    assert not usage.can_restore(job_at(p, "v"))
    usage.remove(job_at(p, "new"), [Replica(0, 2, 0b0011_0000)])
    assert usage.can_restore(job_at(p, "alone"))


def test_a_node_stays_shut_beside_an_exclusive_job_that_stays() -> None:
    p = problem(
        nodes=[Node("n1")],
        jobs=[
            Running("alone", at="n1", gpus=2, exclusive=True, mode="allocated", protected_s=60),
            Running("v", at=[("n1", [4, 5])], gpus=2),
            Pending("new"),
        ],
    )
    usage = Usage(p)
    usage.evict(job_at(p, "v"))
    assert slots(p, usage, "new") == 0
    usage.restore(job_at(p, "v"))
    assert state(usage) == state(Usage(p))
