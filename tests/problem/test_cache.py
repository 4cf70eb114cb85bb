"""Rounds compiled with a cache: never another problem, whatever changes between two of them."""

from __future__ import annotations

import dataclasses
import gc
import pickle
import weakref
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from cpalloc.errors import InputError
from cpalloc.generate import GeneratorConfig, generate
from cpalloc.problem.compile import CompileCache, Compiled, compile_round
from cpalloc.schema import Round
from cpalloc.schema.types import NodeState


def same(a: Any, b: Any) -> bool:
    """Equality of dataclasses with arrays in them."""
    if dataclasses.is_dataclass(a):
        return type(a) is type(b) and all(same(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(a))
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b)
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


@pytest.fixture(scope="module", params=["mixed", "gang-heavy"])
def start(request: pytest.FixtureRequest) -> Round:
    return generate(
        GeneratorConfig(nodes=24, seed=4, family=request.param, cpu_bound=0.3, draining=0.1, unhealthy=0.02)
    )


def later(round_: Round, seconds: int = 3600) -> Round:
    return round_.model_copy(update={"now": round_.now + timedelta(seconds=seconds)})


def with_node(round_: Round, at: int, **change: Any) -> Round:
    nodes = list(round_.cluster.nodes)
    nodes[at] = nodes[at].model_copy(update=change)
    return round_.model_copy(update={"cluster": round_.cluster.model_copy(update={"nodes": tuple(nodes)})})


def with_jobs(round_: Round, *, drop: int = 0, **change: Any) -> Round:
    jobs = [job.model_copy(update=change) if i % 3 == 0 else job for i, job in enumerate(round_.jobs[drop:])]
    return round_.model_copy(update={"jobs": tuple(jobs)})


def sequence(start: Round) -> list[Round]:
    """What may happen from one round to the next."""
    budgets = tuple(b.model_copy(update={"charged_gpu_seconds": b.charged_gpu_seconds // 2}) for b in start.budgets)
    return [
        start,
        later(start),
        later(start, -600),
        start.model_copy(update={"budgets": budgets}),
        with_jobs(start, drop=5),
        with_jobs(start, priority="urgent"),
        with_jobs(start, resources_per_replica={}),
        with_jobs(start, resources_per_replica={"tokens": 1}),
        with_node(start, 3, state=NodeState.DOWN),
        with_node(start, 3, state=NodeState.DRAINING),
        with_node(start, 3, unhealthy_gpus=(0, 1)),
        start.model_copy(update={"policy": start.policy.model_copy(update={"max_min_runtime": 600})}),
        start.model_copy(update={"jobs": start.jobs[::-1]}),
        start,
    ]


def test_a_cache_never_changes_the_problem(start: Round) -> None:
    cache = CompileCache()
    for i, round_ in enumerate(sequence(start)):
        alone = compile_round(round_)
        assert same(compile_round(round_, cache=cache, trusted=True), alone), i
        assert same(compile_round(round_, cache=cache), alone), i


def test_what_stays_is_not_read_again(start: Round) -> None:
    cache = CompileCache()
    first = compile_round(start, cache=cache).problem
    again = compile_round(later(start), cache=cache).problem
    assert again.topology is first.topology
    assert all(a is b for a, b in zip(first.jobs.placement, again.jobs.placement, strict=True))
    other = compile_round(with_node(start, 3, state=NodeState.DOWN), cache=cache).problem
    assert other.topology is not first.topology


def test_the_last_round_only_is_kept_alive(start: Round) -> None:
    cache = CompileCache()
    gone = start.model_copy(update={"jobs": tuple(job.model_copy() for job in start.jobs)})
    compile_round(start, cache=cache)
    compile_round(gone, cache=cache)
    watched = [weakref.ref(job) for job in gone.jobs]
    compile_round(start, cache=cache)
    del gone
    gc.collect()
    assert not any(ref() for ref in watched)


def test_a_cache_read_back_forgets_without_harm(start: Round) -> None:
    cache = CompileCache()
    compile_round(start, cache=cache)
    # The worst case: another object under an identity that is known from before.
    known = cache._asked
    cache._asked = {id(job): row for job, row in zip(start.jobs, reversed(known.values()), strict=True)}
    assert same(compile_round(start, cache=cache), compile_round(start))
    again = pickle.loads(pickle.dumps(cache))
    assert same(compile_round(start, cache=again), compile_round(start))


def test_only_a_trusted_snapshot_is_not_checked(start: Round) -> None:
    doubled = start.model_copy(update={"jobs": (*start.jobs, start.jobs[0])})
    with pytest.raises(InputError) as caught:
        compile_round(doubled, cache=CompileCache())
    assert "duplicate_id" in [issue.code for issue in caught.value.issues]
    told: Compiled = compile_round(doubled, trusted=True)
    assert len(told.problem.jobs) == len(start.jobs) + 1
