"""The answer models: documents as the format shows them."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from pydantic import ValidationError

from cpalloc.schema import Allocation, CheckReport, Decision, TierRow, parse_allocation

ANSWER: dict[str, Any] = {
    "schema_version": 1,
    "request_fingerprint": "sha256:" + "0" * 64,
    "now": "2026-11-29T12:00:00Z",
    "engine": {"cpalloc": "0.1.0", "ortools": "9.15"},
    "status": "optimal",
    "stop_reason": "proved",
    "decisions": [
        {"job": "a", "action": "start", "mode": "allocated", "placement": [{"node": "n0", "gpus": [0, 1]}],
         "protected_until": "2026-11-29T14:00:00.000001Z"},
        {"job": "b", "action": "keep", "mode": "borrowed", "promoted": False, "placement": [{"node": "n1", "gpus": 2}]},
        {"job": "c", "action": "preempt", "requeue": True, "lost_gpu_seconds": 960, "beneficiaries": ["a"]},
        {"job": "d", "action": "preempt", "requeue": False, "lost_gpu_seconds": 0, "beneficiaries": [],
         "forced": "drain"},
        {"job": "e", "action": "wait", "position": 1, "starts_by": "2026-11-29T13:00:00Z",
         "reason": {"code": "reserved", "message": "waits for n1", "blockers": ["b"], "missing_gpus": 6}},
        {"job": "f", "action": "lost", "requeue": True},
    ],
    "budgets": [
        {"name": "x", "share": 1.0, "owed_gpu_seconds": 0, "charged_gpu_seconds": 0, "ratio": None, "demand_gpus": 0,
         "claim_gpus": 0, "entitled_gpus": 0, "granted_gpus": 0, "borrowed_gpus": 0, "shortfall_gpus": 0,
         "ratio_after": None},
    ],
    "tiers": [
        {"name": "shortfall", "value": 4, "best": 4, "limit": 5, "bound": 3.5,
         "gap": 0.125, "status": "feasible", "bound_source": "lp",
         "seconds": 0.01, "parts": []},
        {"name": "idle", "value": None, "best": None, "limit": None, "bound": None,
         "gap": None, "status": "feasible", "bound_source": None,
         "seconds": 0.0, "parts": [{"name": "free", "value": 0, "bound": 0, "gap": 0.0, "status": "optimal"}]},
    ],
    "reservations": [
        {"job": "e", "domain": {"level": "rack", "name": "r0"}, "nodes": ["n1"], "starts_by": "2026-11-29T13:00:00Z",
         "broken": None},
    ],
    "fragmentation": {
        "free_gpus": 4, "stranded_gpus": 1.5, "largest_gang": {"rack": 8, "cluster": 8},
        "largest_gang_with_borrowed": {}, "expected_time_to_place_s": 0.0,
        "by_shape": [{"replicas": 1, "gpus_per_replica": 8, "level": "node", "gpu_type": None, "weight": 1,
                      "placeable_now": 0,
                      "stranded_gpus": 4, "time_to_place_s": 28800}],
        "by_domain": [{"level": "rack", "name": "r0", "free_gpus": 4, "whole_free_nodes": 0, "free_at": None}],
    },
    "measures": {"installed_gpus": 16, "in_service_gpus": 16, "held_gpus": 12, "held_draining_gpus": 0,
                 "allocated_gpus": 10, "borrowed_gpus": 2, "occupancy": 0.75},
    "warnings": [{"code": "node_missing", "path": "jobs[1].running", "message": "n9 is not listed"}],
    "stats": {"nodes": 2, "jobs": 6, "compile_s": 0.0, "build_s": 0.0, "solve_s": 0.0, "total_s": 0.0, "variables": 0,
              "constraints": 0},
}  # fmt: skip

DECISION_FIELDS = (
    "job", "action", "mode", "promoted", "placement", "protected_until", "requeue", "lost_gpu_seconds",
    "beneficiaries", "forced", "position", "starts_by", "blocked", "reason",
)  # fmt: skip


def answer() -> dict[str, Any]:
    return copy.deepcopy(ANSWER)


def test_documents_come_out_as_they_went_in() -> None:
    expected = answer()
    for decision in expected["decisions"]:
        for field in DECISION_FIELDS:
            decision.setdefault(field, None)
    allocation = parse_allocation(answer())
    assert allocation.model_dump(mode="json") == expected
    assert json.loads(allocation.model_dump_json()) == expected
    assert parse_allocation(allocation.model_dump_json()) == allocation
    assert Allocation.model_validate(allocation.model_dump()) == allocation


def test_fields_of_other_actions_are_present_as_null() -> None:
    dumped = Decision.model_validate({"job": "a", "action": "wait"}).model_dump(mode="json")
    assert tuple(dumped) == DECISION_FIELDS
    assert all(dumped[field] is None for field in DECISION_FIELDS[2:])


def test_unknown_fields_are_ignored_everywhere() -> None:
    document = answer()
    document["added"] = 1
    document["decisions"][0]["added"] = document["decisions"][0]["placement"][0]["added"] = 1
    document["tiers"][0]["added"] = document["engine"]["added"] = document["stats"]["added"] = 1
    assert parse_allocation(document) == parse_allocation(answer())


def test_answers_are_frozen() -> None:
    allocation = parse_allocation(answer())
    with pytest.raises(ValidationError):
        allocation.status = "feasible"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize(
    "path",
    [("budgets", 0, "share"), ("budgets", 0, "ratio"), ("tiers", 0, "value"), ("tiers", 0, "bound"),
     ("tiers", 0, "gap"), ("fragmentation", "stranded_gpus"), ("measures", "occupancy"), ("stats", "total_s")],
    ids=lambda p: ".".join(map(str, p)),
)  # fmt: skip
def test_numbers_are_finite(path: tuple[Any, ...], value: float) -> None:
    document: Any = answer()
    here = document
    for step in path[:-1]:
        here = here[step]
    here[path[-1]] = value
    with pytest.raises(ValidationError):
        Allocation.model_validate(document)


def test_whole_numbers_stay_integers() -> None:
    row = TierRow.model_validate({"name": "idle", "value": 10**18, "bound": 2.5, "status": "optimal"})
    assert (row.value, type(row.value), row.bound) == (10**18, int, 2.5)


def test_check_reports() -> None:
    document = {
        "violations": [{"constraint": "capacity", "message": "n0 holds 9 of 8", "jobs": ["a"], "nodes": ["n0"]}],
        "tiers": [{"name": "idle", "value": 0}],
    }
    assert CheckReport.model_validate(document).model_dump(mode="json") == document
