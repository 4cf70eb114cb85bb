"""Workloads that cannot be simulated are refused with everything that is wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cpalloc.errors import InputError
from cpalloc.schema import Budget
from cpalloc.schema.types import NodeState
from cpalloc.sim.check import all_leaves, check_workload, leaf_shares
from cpalloc.sim.workload import BudgetChange, NodeEvent, Workload
from sim.worlds import job, nodes, world


def issues(w: Workload, start_s: int = 0) -> dict[str, str]:
    with pytest.raises(InputError) as error:
        check_workload(w, start_s)
    return {i.path: i.code for i in error.value.issues}


def test_all_that_is_wrong_with_jobs_is_said_at_once() -> None:
    w = world([job("j", 0, 8, 5)], teams={"a": 1})
    w = replace(
        w,
        jobs=(
            job("j", 5, 8, 5),
            job("j", 3, 0, -1, "b", timeout_s=-2, required_level="rack"),
        ),
    )
    assert issues(w, start_s=4) == {
        "jobs[1].id": "duplicate_id",
        "jobs[1].budget": "unknown_budget",
        "jobs[1].submitted_s": "range",
        "jobs[1]": "order",
        "jobs[1].work_s": "range",
        "jobs[1].gpus_per_replica": "range",
        "jobs[1].timeout_s": "range",
        "jobs[1].required_level": "unknown_level",
    }


def test_a_budget_with_children_pays_for_no_job() -> None:
    w = world([job("j", 0, 8, 5, "lab")], teams={"lab": 1})
    w = replace(w, budgets=(*w.budgets, Budget(name="team", parent="lab", weight=1)))
    assert issues(w) == {"jobs[0].budget": "unknown_budget"}


def test_events_name_nodes_and_come_after_the_start() -> None:
    w = world(
        [],
        node_events=(NodeEvent(0, "n7", NodeState.DOWN),),
        budget_changes=(BudgetChange(1, (Budget(name="a", weight=1),)),),
        team_nodes={"a": ("n0", "n9")},
    )
    assert issues(w, start_s=2) == {
        "node_events[0].node": "unknown_node",
        "node_events[0].at_s": "range",
        "budget_changes[0].at_s": "range",
        "team_nodes.a": "unknown_node",
    }


def test_cluster_and_budgets_are_checked_as_those_of_a_round() -> None:
    w = world([], [*nodes(1), *nodes(1)], budget_changes=(BudgetChange(1, (Budget(name="b", parent="c", weight=1),)),))
    found = issues(w)
    assert "cluster.nodes[1].name" in found
    assert "budget_changes[0].budgets[0].parent" in found


def test_leaves_are_those_of_all_trees() -> None:
    tree = (Budget(name="z", weight=1), Budget(name="lab", weight=3), Budget(name="t", parent="lab", weight=1))
    w = world([], teams={"a": 1}, budget_changes=(BudgetChange(1, tree),))
    assert all_leaves(w) == ("a", "t", "z")
    assert {k: str(v) for k, v in leaf_shares(tree).items()} == {"z": "1/4", "t": "3/4"}
