from __future__ import annotations

from fractions import Fraction

from cpalloc.metrics.occupancy import NodeUse, measures, node_use
from cpalloc.problem.problem import JobState, NodeState, status_quo

from .helpers import HOUR, A, B, J, N, decide, devices, make

FULL = devices(0, 8)


def lists(use: NodeUse) -> tuple[list[int], ...]:
    return tuple(a.tolist() for a in (use.free, use.usable_free, use.allocated, use.borrowed, use.stopping))


def test_an_empty_cluster_is_free() -> None:
    problem = make([N(), N(4)])
    told = measures(problem, status_quo(problem))
    # 8 + 4 installed and in service, nothing held
    assert (told.installed_gpus, told.in_service_gpus, told.held_gpus) == (12, 12, 0)
    assert told.occupancy == 0


def test_kept_started_and_preempted_jobs() -> None:
    nodes = [N(), N()]
    jobs = [
        J(JobState.FIXED, A, ((0, devices(0, 3)),), left_s=60),
        J(JobState.EVICTABLE, B, ((0, devices(3, 5)), (1, devices(0, 2)))),
        J(min_runtime_s=HOUR),
    ]
    problem = make(nodes, jobs)
    decision = decide(problem, nodes, preempt=[1], start={2: (A, [(0, devices(4, 4))])})
    use = node_use(problem, decision)
    # node 0: 3 kept + 4 started, 8 - 7 = 1 free; node 1: the borrowed gang has left both nodes
    assert lists(use) == ([1, 8], [1, 8], [7, 0], [0, 0], [0, 0])
    assert measures(problem, decision).occupancy == Fraction(7, 16)
    # status quo: 3 + 5 on node 0, 2 on node 1
    assert lists(node_use(problem, status_quo(problem))) == ([0, 6], [0, 6], [3, 0], [5, 2], [0, 0])


def test_forced_ends_have_left_and_stopping_jobs_have_not() -> None:
    nodes = [N(), N(state=NodeState.DRAINING), N(state=NodeState.DOWN), N()]
    jobs = [
        J(JobState.STOPPING, A, ((0, devices(0, 2)),)),
        J(JobState.DRAINED, A, ((1, devices(0, 4)), (3, devices(0, 4)))),
        J(JobState.LOST, A, ((2, FULL),)),
        J(JobState.FIXED, A, ((1, devices(4, 3)),), left_s=60),
    ]
    problem = make(nodes, jobs)
    told = measures(problem, status_quo(problem))
    # in service: nodes 0 and 3. Held there: 2 stopping. Draining: 3 of the protected job; the drained one has left
    assert (told.installed_gpus, told.in_service_gpus) == (32, 16)
    assert (told.held_gpus, told.stopping_gpus, told.allocated_gpus, told.borrowed_gpus) == (2, 2, 0, 0)
    assert told.held_draining_gpus == 3
    assert told.occupancy == Fraction(2, 16)
    assert node_use(problem, status_quo(problem)).free.tolist() == [6, 0, 0, 8]


def test_a_gpu_held_by_a_stopping_job_and_its_successor_counts_once() -> None:
    nodes = [N()]
    jobs = [
        J(JobState.STOPPING, B, ((0, devices(0, 4)),)),
        J(JobState.FIXED, A, ((0, devices(2, 4)),), left_s=60),
        J(JobState.EVICTABLE, B, ((0, devices(0, 2)),)),
    ]
    problem = make(nodes, jobs)
    # devices 0-5 are held, 6: allocated 4 (2-5), borrowed 2 (0-1), nothing is left for the stopping job
    use = node_use(problem, status_quo(problem))
    assert lists(use) == ([2], [2], [4], [2], [0])
    assert use.usable_with_borrowed.tolist() == [2]  # 8 - 4 allocated - 2 that the stopping job is still on
    # taking the borrowed job back frees nothing while the stopping job is there
    assert lists(node_use(problem, decide(problem, nodes, preempt=[2]))) == ([2], [2], [4], [0], [2])


def test_unhealthy_gpus_are_not_in_service_whoever_holds_them() -> None:
    nodes = [N(healthy=~0b11)]
    jobs = [J(JobState.EVICTABLE, A, ((0, FULL),))]
    problem = make(nodes, jobs)
    told = measures(problem, status_quo(problem))
    # 8 installed, 6 in service, the job holds 8 of which 6 count: occupancy 1, not 8/6
    assert (told.installed_gpus, told.in_service_gpus, told.allocated_gpus) == (8, 6, 6)
    assert told.occupancy == 1
    assert node_use(problem, decide(problem, nodes, preempt=[0])).usable_free.tolist() == [6]


def test_counts_never_exceed_what_is_in_service() -> None:
    nodes = [N(healthy=~0b1, unknown=True)]
    jobs = [J(JobState.EVICTABLE, A, ((0, 4),)), J(JobState.EVICTABLE, B, ((0, 4),))]
    problem = make(nodes, jobs)
    # 7 in service, 4 + 4 held by count: the borrowed job is cut to 3
    assert lists(node_use(problem, status_quo(problem))) == ([0], [0], [4], [3], [0])
    # without the allocated job 7 - 4 = 3 are surely free
    assert lists(node_use(problem, decide(problem, nodes, preempt=[0]))) == ([3], [3], [0], [4], [0])


def test_an_exclusive_job_leaves_nothing_usable_but_holds_only_its_own() -> None:
    nodes = [N(), N()]
    jobs = [J(JobState.EVICTABLE, B, ((0, devices(0, 4)),), exclusive=True), J(min_runtime_s=HOUR, exclusive=True)]
    problem = make(nodes, jobs)
    decision = decide(problem, nodes, start={1: (A, [(1, devices(0, 2))])})
    use = node_use(problem, decision)
    # 4 held of 8, and 2 held of 8: free 4 and 6, usable 0 and 0
    assert lists(use) == ([4, 6], [0, 0], [0, 2], [4, 0], [0, 0])
    assert measures(problem, decision).occupancy == Fraction(6, 16)
    # borrowed work taken back: node 0 whole; node 1 stays with the allocated job
    assert use.usable_with_borrowed.tolist() == [8, 0]
    assert node_use(problem, decide(problem, nodes, preempt=[0])).usable_free.tolist() == [8, 8]


def test_promoted_work_counts_as_allocated() -> None:
    nodes = [N()]
    problem = make(nodes, [J(JobState.EVICTABLE, B, ((0, FULL),), min_runtime_s=HOUR)])
    told = measures(problem, decide(problem, nodes, promote=[0]))
    assert (told.allocated_gpus, told.borrowed_gpus) == (8, 0)


def test_replicas_on_absent_nodes_take_nothing() -> None:
    problem = make([N()], [J(JobState.FIXED, A, ((-1, 8), (0, devices(0, 2))), left_s=60)])
    # 2 of 8; the 8 GPUs on a node the snapshot lacks count nowhere
    assert measures(problem, status_quo(problem)).occupancy == Fraction(2, 8)


def test_nothing_in_service_has_no_occupancy() -> None:
    problem = make([N(state=NodeState.DOWN)])
    told = measures(problem, status_quo(problem))
    assert told.installed_gpus == 8
    assert told.occupancy is None


def test_a_stopping_job_on_a_node_that_is_down_holds_nothing() -> None:
    problem = make([N(state=NodeState.DOWN), N()], [J(JobState.STOPPING, A, ((0, FULL), (1, devices(0, 1))))])
    # 8 on the lost node count nowhere, 1 of 8 on the other
    assert lists(node_use(problem, status_quo(problem))) == ([0, 7], [0, 7], [0, 0], [0, 0], [0, 1])


def test_a_decision_that_gives_too_much_still_counts_each_gpu_once() -> None:
    # ``check`` may be handed such a thing: 6 kept and 4 started on 8 GPUs. 6 + 2 count
    nodes = [N()]
    problem = make(nodes, [J(JobState.FIXED, A, ((0, devices(0, 6)),), left_s=60), J()])
    decision = decide(problem, nodes, start={1: (B, [(0, devices(4, 4))])})
    assert lists(node_use(problem, decision)) == ([0], [0], [6], [2], [0])
    assert measures(problem, decision).occupancy == 1

    nodes = [N(state=NodeState.DOWN)]
    problem = make(nodes, [J()])
    # a start on a node that is down holds nothing
    assert lists(node_use(problem, decide(problem, nodes, start={0: (A, [(0, FULL)])}))) == ([0], [0], [0], [0], [0])
