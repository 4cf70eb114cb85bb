from __future__ import annotations

from dataclasses import replace

import pytest
from tests.sim.test_recipe import trace_of
from tests.sim.traces.files import issues_of

from cpalloc.schema import Cluster as WireCluster
from cpalloc.schema.types import NodeState
from cpalloc.sim.recipe import Recipe, apply
from cpalloc.sim.scale import scale_demand, scale_nodes, submitted_until
from cpalloc.sim.traces.nodes import count_nodes, team_cluster
from cpalloc.sim.workload import NodeEvent, Workload
from cpalloc.topology.cluster import Cluster


def teams(counts: dict[str, int]) -> Workload:
    return apply(Recipe(), trace_of(facts=team_cluster(counts, 8)), 1)


def test_every_team_loses_its_part() -> None:
    smaller = scale_nodes(teams({"red": 8, "blue": 4, "green": 1}), 0.75)
    # 9.75 nodes in all: 10 of them; exact parts 6, 3 and 0.75, and none goes without
    assert {team: len(nodes) for team, nodes in smaller.team_nodes.items()} == {"red": 6, "blue": 3, "green": 1}
    assert len(smaller.cluster.nodes) == 10
    assert smaller.team_nodes["red"] == tuple(f"red-0{i}" for i in range(6))
    assert "13 to 10" in smaller.notes[-1]


def test_a_team_keeps_a_node_before_another_gets_one_more() -> None:
    smaller = scale_nodes(teams({"red": 8, "blue": 4, "green": 1}), 0.4)
    # exact parts 3.2, 1.6 and 0.4 of 5: blue's remainder is larger, but green would have nothing
    assert {team: len(nodes) for team, nodes in smaller.team_nodes.items()} == {"red": 3, "blue": 1, "green": 1}


def test_the_sum_is_met_by_largest_remainders() -> None:
    # 101.25 of 135 in the same proportions as three teams of 45: 33.75 each; 101 = 34 + 34 + 33
    smaller = scale_nodes(teams({"a": 45, "b": 45, "c": 45}), 0.75)
    assert sorted(len(nodes) for nodes in smaller.team_nodes.values()) == [33, 34, 34]


def test_what_happens_to_nodes_that_are_gone_does_not_happen() -> None:
    workload = apply(Recipe(), trace_of(facts=count_nodes(8, 8)), 1)
    events = tuple(NodeEvent(at, f"n000{at}", NodeState.DOWN) for at in range(8))
    whole = Workload(
        name=workload.name,
        provenance=workload.provenance,
        epoch=workload.epoch,
        cluster=workload.cluster,
        budgets=workload.budgets,
        jobs=workload.jobs,
        node_events=events,
    )
    smaller = scale_nodes(whole, 0.5)
    assert [n.name for n in smaller.cluster.nodes] == ["n0000", "n0001", "n0002", "n0003"]
    assert smaller.node_events == events[:4]
    assert smaller.jobs == whole.jobs


def test_more_nodes_are_in_domains_of_their_own() -> None:
    workload = apply(Recipe(nodes_per_rack=4), trace_of(facts=count_nodes(8, 8)), 1)
    larger = scale_nodes(workload, 2.5)
    cluster = Cluster.from_wire(larger.cluster)
    assert len(cluster.nodes) == 20
    racks = {n.domains["rack"] for n in cluster.nodes}
    assert racks == {"r000", "r001", "r000+1", "r001+1", "r000+2"}


def test_jobs_that_fit_no_more_are_counted() -> None:
    assert "jobs are larger than that" in scale_nodes(teams({"red": 3, "blue": 1}), 0.5).notes[-1]


def test_a_part_of_the_demand() -> None:
    whole = apply(Recipe(), trace_of(4_000), 1)
    part = scale_demand(whole, 0.4, 7)
    assert {j.id for j in part.jobs} < {j.id for j in whole.jobs}
    assert len(part.jobs) == pytest.approx(1_600, abs=2)
    work = [sum(j.size * j.work_s for j in w.jobs) for w in (part, whole)]
    assert work[0] / work[1] == pytest.approx(0.4, rel=0.05)
    assert scale_demand(whole, 0.4, 7) == part
    assert scale_demand(whole, 0.4, 8).jobs != part.jobs


def test_more_demand_is_copies_near_the_originals() -> None:
    whole = apply(Recipe(), trace_of(), 1)
    more = scale_demand(whole, 2.5, 7)
    assert len(more.jobs) == pytest.approx(5_000, abs=2)
    assert len({j.id for j in more.jobs}) == len(more.jobs)
    originals = {j.id: j for j in whole.jobs}
    assert originals.keys() <= {j.id for j in more.jobs}
    for job in more.jobs:
        original = originals[job.id.split("+")[0]]
        assert abs(job.submitted_s - original.submitted_s) <= 1_800
        assert (job.size, job.work_s, job.budget) == (original.size, original.work_s, original.budget)
    keys = [(j.submitted_s, j.order, j.id) for j in more.jobs]
    assert keys == sorted(keys)


def test_a_factor_of_one_changes_nothing_but_the_notes() -> None:
    whole = teams({"red": 3, "blue": 1})
    assert scale_demand(whole, 1.0, 3).jobs == whole.jobs
    assert scale_nodes(whole, 1.0).cluster == whole.cluster


def test_what_is_submitted_later_is_left_out() -> None:
    whole = teams({"red": 3, "blue": 1})
    last = max(job.submitted_s for job in whole.jobs)
    early = submitted_until(whole, last)
    assert early.jobs == tuple(job for job in whole.jobs if job.submitted_s < last) != whole.jobs
    assert f"{len(whole.jobs):,} jobs to {len(early.jobs):,}" in early.notes[-1]
    assert submitted_until(whole, last + 1).jobs == whole.jobs
    late = replace(whole, jobs=tuple(replace(job, submitted_s=job.submitted_s + 100) for job in whole.jobs))
    issue = issues_of(submitted_until, late, 100)[0]
    assert issue.path == "submissions"
    assert "leaves no job" in issue.message


@pytest.mark.parametrize("factor", [0.0, -1.0, float("nan")])
def test_factors_must_be_above_zero(factor: float) -> None:
    whole = teams({"red": 3, "blue": 1})
    assert issues_of(scale_nodes, whole, factor)[0].path == "nodes"
    assert issues_of(scale_demand, whole, factor, 1)[0].path == "demand"


def test_a_graph_cannot_be_scaled() -> None:
    whole = teams({"red": 3, "blue": 1})
    graph = WireCluster(name="g", graph={"nodes": [], "edges": []})
    drawn = Workload(
        name="g", provenance=whole.provenance, epoch=whole.epoch, cluster=graph, budgets=whole.budgets, jobs=whole.jobs
    )
    assert issues_of(scale_nodes, drawn, 0.5)[0].code == "graph"
