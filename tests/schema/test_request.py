"""The request models: defaults as the format states them, strictness, and the way there and back."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from cpalloc.schema import (
    Budget,
    Cluster,
    Job,
    Node,
    NodeState,
    Options,
    Placement,
    Policy,
    Previous,
    Priority,
    Round,
    Running,
    TierName,
    TierSpec,
    Topology,
)
from cpalloc.schema import request as request_module
from cpalloc.schema.examples import load, names

from .malformed import job


def test_defaults_of_a_node() -> None:
    node = Node(name="n", gpu_type="h100", gpus=8)
    assert node.model_dump() == {
        "name": "n", "gpu_type": "h100", "gpus": 8, "domains": {}, "state": NodeState.READY, "resources": {},
        "labels": {}, "gpu_groups": None, "unhealthy_gpus": (),
    }  # fmt: skip


def test_defaults_of_a_budget() -> None:
    assert Budget(name="b", weight=1).model_dump() == {
        "name": "b", "parent": None, "weight": 1, "charged_gpu_seconds": 0, "owed_gpu_seconds": None,
        "max_gpus": None, "max_borrowed_gpus": None,
    }  # fmt: skip


def test_defaults_of_a_job() -> None:
    model = Job.model_validate(job("j"))
    assert model.size == 4
    assert model.model_dump(exclude={"submitted_at"}) == {
        "id": "j", "budget": "vision/video", "replicas": 1, "gpus_per_replica": 4, "priority": Priority.NORMAL,
        "kind": "batch", "resources_per_replica": {}, "max_replicas_per_node": None, "exclusive_nodes": False,
        "gpu_types": None, "node_selector": {}, "exclude_nodes": (), "topology": {"required": None, "preferred": None},
        "same_gpu_group": False, "min_runtime": 0, "resumable": False, "funding": None, "timeout": None,
        "restart_cost": 0, "running": None,
    }  # fmt: skip


def test_defaults_of_a_running_job() -> None:
    running = Running(mode="allocated", started_at=None, placement=())
    assert running.model_dump() == {
        "mode": "allocated", "placed_at": None, "started_at": None, "allocated_since": None, "checkpointed_at": None,
        "placement": (), "stopping": False, "utilisation": None,
    }  # fmt: skip


def test_defaults_of_the_policy() -> None:
    policy = Policy()
    assert (policy.window, policy.charge_horizon) == (7 * 86400, 3600)
    assert (policy.max_min_runtime, policy.start_timeout) == (8 * 3600, 900)
    assert (policy.preempt_under_share, policy.reservations, policy.max_preempted_gpus) == (False, 4, None)
    assert policy.shape_mix is None
    assert [tier.name for tier in policy.tiers] == list(TierName)
    assert {tier.name: tier.slack for tier in policy.tiers if tier.slack} == {TierName.SHORTFALL: Decimal("0.05")}


def test_defaults_of_the_options() -> None:
    assert Options().model_dump() == {
        "time_limit": Decimal(5), "workers": 2, "seed": 0, "deterministic": False, "deterministic_limit": None,
        "gap": Decimal(0),
    }  # fmt: skip


def test_the_tiers_of_the_format_are_the_default() -> None:
    listed = ["starvation", {"name": "shortfall", "slack": 0.05}, *list(TierName)[2:]]
    assert Policy.model_validate({"tiers": listed}) == Policy()


@pytest.mark.parametrize("tier", ["shortfall", {"name": "shortfall"}, {"name": "shortfall", "slack": "0.05"}])
def test_shortfall_without_slack_gets_the_default(tier: object) -> None:
    assert TierSpec.model_validate(tier) == TierSpec(name=TierName.SHORTFALL, slack=Decimal("0.05"))
    assert TierSpec.model_validate({"name": "shortfall", "slack": 0}).slack == 0


def test_tiers_may_be_reordered_and_dropped_within_their_rules() -> None:
    policy = Policy.model_validate({"tiers": ["preemption", "idle", "starvation", {"name": "delay", "slack": 0.5}]})
    assert [(str(t.name), t.slack) for t in policy.tiers] == [
        ("preemption", 0), ("idle", 0), ("starvation", 0), ("delay", Decimal("0.5")),
    ]  # fmt: skip


@pytest.mark.parametrize("slack", [-0.1, 1.1, 0.1234567, "x"])
def test_slack_is_a_fraction_of_six_places(slack: object) -> None:
    with pytest.raises(ValidationError):
        TierSpec.model_validate({"name": "shortfall", "slack": slack})


def test_placements_hold_devices_or_a_count() -> None:
    assert Placement.model_validate({"node": "n", "gpus": [2, 3]}).num_gpus == 2
    assert Placement.model_validate({"node": "n", "gpus": 4}).num_gpus == 4
    assert Placement.model_validate({"node": "n", "gpus": []}).gpus == ()
    for bad in (True, 1.0, "4", None, [True], [1.0], ["1"], {"0": 1}, -1, [-1]):
        with pytest.raises(ValidationError):
            Placement.model_validate({"node": "n", "gpus": bad})


def test_a_cluster_has_one_form() -> None:
    graph = {"nodes": [], "links": []}
    assert Cluster.model_validate({"name": "c", "nodes": []}).levels == ()
    assert Cluster.model_validate({"name": "c", "graph": graph}).graph == graph
    again = Cluster.model_validate({"name": "c", "graph": graph}).model_dump()
    assert Cluster.model_validate(again).graph == graph
    for bad in ({}, {"graph": graph, "levels": ["rack"]}, {"graph": {"nodes": [], "edges": [], "links": []}}):
        with pytest.raises(ValidationError):
            Cluster.model_validate({"name": "c", **bad})


def test_previous_reservations_are_rows_of_an_answer() -> None:
    row = {
        "job": "j", "domain": {"level": "rack", "name": "r0"}, "nodes": ["n0"], "starts_by": "2026-11-29T13:00:00Z",
        "broken": {"code": "gone", "message": "…"}, "added_later": 1,
    }  # fmt: skip
    (reservation,) = Previous.model_validate({"reservations": [row]}).reservations
    assert reservation.starts_by == datetime(2026, 11, 29, 13, tzinfo=UTC)
    assert reservation.broken is not None


@pytest.mark.parametrize("name", names())
def test_examples_survive_the_way_there_and_back(name: str) -> None:
    round_ = Round.model_validate(load(name))
    dumped = round_.model_dump(mode="json")
    assert Round.model_validate(dumped) == round_
    assert Round.model_validate_json(round_.model_dump_json()) == round_
    assert Round.model_validate(round_.model_dump()) == round_
    assert json.loads(round_.model_dump_json()) == dumped
    assert dumped["now"] == "2026-11-29T12:00:00Z"
    assert dumped["options"]["time_limit"] == 5


def request_models() -> list[type[BaseModel]]:
    found = [value for value in vars(request_module).values() if isinstance(value, type)]
    return [model for model in found if issubclass(model, request_module.RequestModel)]


@pytest.mark.parametrize("model", request_models(), ids=lambda m: m.__name__)
def test_request_models_are_frozen_and_refuse_unknown_fields(model: type[BaseModel]) -> None:
    assert model.model_config["frozen"]
    assert model.model_config["extra"] == "forbid"
    assert model.__doc__


def test_models_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        Topology().required = "rack"


def test_unknown_examples_are_named() -> None:
    with pytest.raises(KeyError, match="small"):
        load("huge")


amounts = st.integers(0, 10**20)
durations = st.one_of(amounts, st.integers(0, 10**9).map(lambda s: f"PT{s}S"))


@settings(deadline=None)
@given(amounts, amounts, durations, st.sampled_from(list(Priority)), st.none() | durations)
def test_any_job_survives_the_way_there_and_back(
    replicas: int, gpus: int, min_runtime: object, priority: Priority, timeout: object
) -> None:
    document = job(
        "j", replicas=replicas, gpus_per_replica=gpus, min_runtime=min_runtime, priority=priority, timeout=timeout
    )
    model = Job.model_validate(document)
    assert Job.model_validate(json.loads(json.dumps(model.model_dump(mode="json")))) == model
