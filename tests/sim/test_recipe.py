from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from tests.sim.traces.files import issues_of

from cpalloc.schema.types import Funding, JobKind
from cpalloc.sim.lab.config import Spread
from cpalloc.sim.lab.streams import draw_spread, stream
from cpalloc.sim.recipe import Recipe, apply, estimates_s, recipe_of
from cpalloc.sim.traces.base import ALWAYS_KNOWN, JOB_FIELDS, ClusterFacts, Trace
from cpalloc.sim.traces.nodes import count_nodes, team_cluster
from cpalloc.sim.traces.table import parse_time
from cpalloc.sim.workload import WorkJob
from cpalloc.topology.cluster import Cluster

FACTS = team_cluster({"red": 3, "blue": 1}, 8)


def trace_of(
    count: int = 2_000, facts: ClusterFacts = FACTS, known: frozenset[str] = ALWAYS_KNOWN, **more: object
) -> Trace:
    """Jobs of one GPU to four nodes whose work spreads from seconds to days."""
    work = draw_spread(stream(9, "work"), Spread(median=1_800, sigma=2.0, most=300_000), count).tolist()
    gpus = stream(9, "gpus").choice([1, 2, 8, 16, 32], size=count).tolist()
    jobs = [
        WorkJob(
            id=f"j{i}",
            budget="red" if i % 3 else "blue",
            submitted_s=60 * i,
            replicas=max(1, gpus[i] // 8),
            gpus_per_replica=min(8, gpus[i]),
            work_s=work[i],
            **more,  # type: ignore[arg-type]
        )
        for i in range(count)
    ]
    epoch = parse_time("2026-03-02T00:00:00Z")
    return Trace(name="made up", epoch=epoch, jobs=tuple(jobs), facts=facts, known=known)


def test_what_the_trace_says_stays() -> None:
    trace = trace_of(known=frozenset(JOB_FIELDS), min_runtime_s=77, resumable=True, restart_cost_s=5)
    assert apply(Recipe(), trace, 1).jobs == trace.jobs
    facts = count_nodes(4, 8)
    kept = apply(Recipe(), trace_of(facts=facts, known=ALWAYS_KNOWN | {"resumable"}, resumable=True), 1)
    assert all(job.resumable and job.restart_cost_s > 0 for job in kept.jobs)


def test_ids_sizes_and_work_never_change() -> None:
    trace = trace_of()
    for before, after in zip(trace.jobs, apply(Recipe(), trace, 4).jobs, strict=True):
        assert all(getattr(before, name) == getattr(after, name) for name in ALWAYS_KNOWN)


def test_everything_filled_in_is_named() -> None:
    trace = trace_of()
    workload = apply(Recipe(name="mine"), trace, 4)
    changed = {
        name
        for name in JOB_FIELDS
        if any(getattr(a, name) != getattr(b, name) for a, b in zip(trace.jobs, workload.jobs, strict=True))
    }
    assert "min_runtime_s" in changed
    for name in changed:
        assert any(note.startswith(f"{name}: ") and "recipe mine, seed 4" in note for note in workload.notes), name
    assert any(note.startswith("budgets: ") for note in workload.notes)
    assert any(note.startswith("topology: ") for note in workload.notes)


def test_seeds_and_streams() -> None:
    trace = trace_of()
    assert apply(Recipe(), trace, 1) == apply(Recipe(), trace, 1)
    assert apply(Recipe(), trace, 1).jobs != apply(Recipe(), trace, 2).jobs
    # another share of borrowed jobs must not change who is resumable
    other = apply(replace(Recipe(), any_share=0.9), trace, 1)
    assert [j.resumable for j in other.jobs] == [j.resumable for j in apply(Recipe(), trace, 1).jobs]


def test_minimum_runtimes_are_what_people_type() -> None:
    jobs = apply(Recipe(), trace_of(), 1).jobs
    assert {job.min_runtime_s for job in jobs} <= {0, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 28_800}
    assert all((job.min_runtime_s == 0) == (job.funding is Funding.BORROWED) for job in jobs)
    assert max(j.min_runtime_s for j in apply(replace(Recipe(), max_min_runtime_s=3_600), trace_of(), 1).jobs) == 3_600


def test_debug_jobs_are_small_and_expected_short() -> None:
    recipe = Recipe()
    trace = trace_of()
    estimates = estimates_s(recipe, trace, 1)
    for job, estimate in zip(apply(recipe, trace, 1).jobs, estimates.tolist(), strict=True):
        is_debug = 0 < job.min_runtime_s <= 900
        assert is_debug == (job.size <= 8 and estimate <= 1_800)
        if is_debug:
            assert not job.resumable
            assert job.kind is JobKind.BATCH


def test_the_expectation_is_noisy_and_sometimes_another_jobs() -> None:
    trace = trace_of()
    work = np.array([job.work_s for job in trace.jobs])
    estimates = estimates_s(Recipe(), trace, 1)
    below = (estimates < work).mean()
    assert 0.05 < below < 0.35  # only the surprised can expect less than they need
    assert (estimates_s(replace(Recipe(), surprised=0.0), trace, 1) >= work).all()
    assert 0.3 < np.corrcoef(np.log(work), np.log(estimates))[0, 1] < 0.85


def test_a_stated_timeout_is_the_expectation() -> None:
    trace = trace_of(known=ALWAYS_KNOWN | {"timeout_s"}, timeout_s=5_400)
    assert set(estimates_s(Recipe(), trace, 1).tolist()) == {5_400}


def test_no_made_up_timeout_cuts_off_what_ran() -> None:
    jobs = apply(Recipe(), trace_of(), 1).jobs
    with_timeout = [job for job in jobs if job.timeout_s >= 0]
    assert len(with_timeout) / len(jobs) == pytest.approx(0.5, abs=0.05)
    assert all(job.timeout_s >= job.work_s for job in with_timeout)


def test_shares_of_the_recipe_come_out() -> None:
    recipe = replace(Recipe(), borrowed_share=0.3, interactive_share=0.4)
    jobs = apply(recipe, trace_of(6_000), 1).jobs
    batch = [j for j in jobs if j.kind is JobKind.BATCH and not 0 < j.min_runtime_s <= 900]
    assert np.mean([j.funding is Funding.BORROWED for j in batch]) == pytest.approx(0.3, abs=0.03)
    multi = [j for j in batch if j.replicas > 1]
    assert np.mean([j.resumable for j in multi]) == pytest.approx(0.9, abs=0.03)
    assert np.mean([j.preferred_level == "rack" for j in multi]) == pytest.approx(0.7, abs=0.03)
    assert all(j.size <= 2 for j in jobs if j.kind is JobKind.INTERACTIVE)
    assert any(j.kind is JobKind.INTERACTIVE for j in jobs)
    assert all(j.restart_cost_s == j.checkpoint_interval_s == 0 for j in jobs if not j.resumable)
    assert {j.restart_cost_s for j in jobs if j.resumable and j.replicas == 4} == {60 + 4 * 15}


def test_budgets_follow_nodes_or_work_or_nothing() -> None:
    trace = trace_of()
    work = {t: sum(j.size * j.work_s for j in trace.jobs if j.budget == t) for t in ("red", "blue")}
    for by, ratio in (("nodes", 3.0), ("work", work["red"] / work["blue"]), ("equal", 1.0)):
        workload = apply(replace(Recipe(), budgets=by), trace, 1)
        weight = {b.name: b.weight for b in workload.budgets}
        assert weight["red"] / weight["blue"] == pytest.approx(ratio, rel=1e-4), by
        assert workload.team_nodes == FACTS.team_nodes


def test_teams_are_made_up_where_there_are_none() -> None:
    trace = trace_of(facts=count_nodes(8, 8), known=ALWAYS_KNOWN - {"budget"})
    workload = apply(replace(Recipe(), teams=4), trace, 1)
    teams = Counter(job.budget for job in workload.jobs)
    assert list(dict(teams.most_common())) == ["team01", "team02", "team03", "team04"]
    assert {b.name for b in workload.budgets} == set(teams)
    assert teams["team01"] / teams["team04"] == pytest.approx(4, rel=0.35)


def test_racks_and_blocks() -> None:
    workload = apply(replace(Recipe(), nodes_per_rack=2, racks_per_block=2), trace_of(facts=count_nodes(9, 8)), 1)
    cluster = Cluster.from_wire(workload.cluster)
    assert cluster.levels == ("block", "rack")
    assert sorted(Counter(n.domains["rack"] for n in cluster.nodes).values()) == [1, 2, 2, 2, 2]
    assert sorted(Counter(n.domains["block"] for n in cluster.nodes).values()) == [1, 4, 4]


def test_a_topology_of_the_trace_stays() -> None:
    plain = count_nodes(4, 8)
    nodes = tuple(n.model_copy(update={"domains": {"leaf": "s0"}}) for n in plain.nodes)
    workload = apply(Recipe(), trace_of(facts=ClusterFacts(nodes=nodes, levels=("leaf",))), 1)
    assert workload.cluster.levels == ("leaf",)
    assert {job.preferred_level for job in workload.jobs} == {None, "leaf"}
    assert not any(note.startswith("topology") for note in workload.notes)


def test_recipes_from_mappings() -> None:
    recipe = recipe_of({"name": "x", "surprised": 0.1, "checkpoint_s": {"600": 1}, "useful_part": [0.2, 0.3]})
    assert recipe == Recipe(name="x", surprised=0.1, checkpoint_s={600: 1.0}, useful_part=(0.2, 0.3))
    for key, value in (
        ("suprised", 0.1),
        ("surprised", 2.0),
        ("budgets", "x"),
        ("teams", 0),
        ("useful_part", [0.5, 0.1]),
    ):
        assert issues_of(recipe_of, {key: value})[0].path == f"recipe.{key}"
