"""Fragmentation of the simulated cluster, by hand and against the measure of an answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cpalloc.metrics.fragmentation import fragmentation
from cpalloc.problem.compile import compile_round
from cpalloc.problem.problem import Mode, NodeState, Shape, status_quo
from cpalloc.schema import Policy as SitePolicy
from cpalloc.schema.request import Options
from cpalloc.sim.config import SimConfig
from cpalloc.sim.policies.base import Moves, News
from cpalloc.sim.rounds import RoundMaker
from cpalloc.sim.sampling import FragmentationSample, fragmentation_sample, workload_mix
from cpalloc.sim.simulate import simulate
from cpalloc.sim.state import State
from sim.chaos import Chaos, random_workload
from sim.worlds import HOUR, job, nodes, world


def shape(replicas: int, gpus: int, weight: int = 1, level: int = 0) -> Shape:
    return Shape(replicas=replicas, gpus_per_replica=gpus, level=level, weight=weight)


def held() -> State:
    """n0: 5 GPUs protected for 600 s, 3 free; n1: 8 past protection; n2, n3: free, n3 in another rack and draining."""
    racks = [n.model_copy(update={"domains": {"rack": "r0" if i < 3 else "r1"}}) for i, n in enumerate(nodes(4))]
    jobs = [job("a", 0, 5, 9999, min_runtime_s=700), job("b", 0, 8, 9999, min_runtime_s=50)]
    state = State(world(jobs, racks, levels=("rack",)), SimConfig(site=SitePolicy(max_min_runtime=HOUR)))
    for i, places in enumerate((((0, 0b11111),), ((1, 0xFF),))):
        state.submit(i)
        state.start(i, Mode.ALLOCATED, places, state.jobs.min_runtime_s[i])
    state.now_s = 90
    state.set_node_state(3, NodeState.DRAINING)
    return state


def test_stranded_gpus_time_to_place_and_the_largest_gang() -> None:
    """11 free. 1×8: one copy, 3 stranded, at once. 3×8: none, 11 stranded, n0 whole 600 s on. 1×4: two, 3, at once."""
    state = held()
    assert fragmentation_sample(state, [shape(1, 8)], 100) == FragmentationSample(3, 0, 8)
    assert fragmentation_sample(state, [shape(3, 8)], 100) == FragmentationSample(11, 600, 8)
    assert fragmentation_sample(state, [shape(1, 4)], 100) == FragmentationSample(3, 0, 8)
    mix = [shape(1, 8, 2), shape(3, 8), shape(1, 4)]
    assert fragmentation_sample(state, mix, 100) == FragmentationSample(20 / 4, 150, 8)


def test_a_shape_is_placed_inside_one_domain_and_waits_for_the_maximum_at_most() -> None:
    state = held()
    state.set_node_state(3, NodeState.READY)
    assert fragmentation_sample(state, [shape(2, 8, level=1)], 100) == FragmentationSample(19, 0, 16)
    assert fragmentation_sample(state, [shape(4, 8, level=1)], 100) == FragmentationSample(19, HOUR, 16)


def test_the_mix_of_a_workload_is_its_jobs_and_a_whole_node() -> None:
    jobs = [job("a", 0, 2, 1), job("b", 0, 2, 1), job("c", 0, 8, 1, replicas=9), job("d", 0, 1, 1, replicas=3)]
    state = State(world(jobs, 2), SimConfig())
    assert workload_mix(state) == (shape(1, 2, 2), shape(1, 8), shape(3, 1))


def test_a_mix_without_weight_measures_nothing() -> None:
    assert fragmentation_sample(held(), [], 100) == FragmentationSample(0, 0, 8)


class Comparing:
    """Chaos, with every state measured a second time: as a round, by what measures an answer."""

    def __init__(self, seed: int) -> None:
        self._chaos = Chaos(seed)
        self.name, self.traits = self._chaos.name, self._chaos.traits
        self.stranded: list[float] = []

    def begin(self, state: State) -> None:
        self._mix = workload_mix(state)
        self._chaos.begin(state)

    def decide(self, state: State, news: News) -> Moves:
        round_, _ = RoundMaker(Options()).make(state, [], ())
        problem = replace(compile_round(round_).problem, shape_mix=self._mix)
        expected = fragmentation(problem, status_quo(problem))
        sample = fragmentation_sample(state, self._mix, state.now_s)
        assert sample.stranded == pytest.approx(float(expected.stranded_gpus))
        assert sample.time_to_place_s == pytest.approx(float(expected.expected_time_to_place_s))
        assert sample.largest_gang == expected.largest_gang[0].gpus
        self.stranded.append(sample.stranded)
        return self._chaos.decide(state, news)


@pytest.mark.parametrize("seed", range(6))
def test_a_sample_is_what_an_answer_would_say(seed: int) -> None:
    policy = Comparing(seed)
    simulate(random_workload(seed), policy, config=SimConfig(round_interval_s=40))
    assert len(set(policy.stranded)) > 3
