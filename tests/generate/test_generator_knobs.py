"""Every knob does what it says, and knobs out of range are refused together."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from cpalloc.errors import InputError
from cpalloc.generate import Family, GeneratorConfig, generate_doc
from cpalloc.schema.validate import parse_round

from .rounds import (
    Doc,
    allocated,
    demand,
    gangs,
    healthy,
    held,
    leaves,
    pending,
    protection_age,
    running,
    size,
)


def nodes_in(doc: Doc, state: str) -> float:
    return sum(n.get("state", "ready") == state for n in doc["cluster"]["nodes"])


def unhealthy(doc: Doc) -> float:
    return sum(n["gpus"] - healthy(n) for n in doc["cluster"]["nodes"])


def counting(jobs: Callable[[Doc], list[Doc]], what: Callable[[Doc], Any]) -> Callable[[Doc], float]:
    return lambda doc: sum(bool(what(j)) for j in jobs(doc))


def all_jobs(doc: Doc) -> list[Doc]:
    jobs: list[Doc] = doc["jobs"]
    return jobs


def all_gangs(doc: Doc) -> list[Doc]:
    return gangs(doc["jobs"])


def protected(doc: Doc) -> float:
    return sum(protection_age(doc, j) < j["min_runtime"] for j in allocated(doc))


def borrowed(doc: Doc) -> float:
    return sum(size(j) for j in running(doc) if j["running"]["mode"] == "borrowed")


def capped(doc: Doc) -> float:
    return sum("max_gpus" in leaf or "max_borrowed_gpus" in leaf for leaf, _ in leaves(doc))


def misfit(job: Doc) -> bool:
    return "node_selector" in job or job.get("gpu_types") == ["mi300x"] or job.get("min_runtime", 0) > 8 * 3_600


def debug(job: Doc) -> bool:
    return size(job) <= 8 and 0 < job.get("min_runtime", 0) <= 900


MEASURES: list[tuple[str, float, Callable[[Doc], float]]] = [
    ("fill", 0.5, held),
    ("demand", 3.0, demand),
    ("capped_budgets", 1.0, capped),
    ("borrowed", 0.6, borrowed),
    ("protected", 1.0, protected),
    ("promoted", 1.0, counting(allocated, lambda j: "allocated_since" in j["running"])),
    ("starting", 0.5, counting(allocated, lambda j: j["running"]["started_at"] is None)),
    ("draining", 0.2, lambda doc: nodes_in(doc, "draining")),
    ("down", 0.2, lambda doc: nodes_in(doc, "down")),
    ("unhealthy", 0.1, unhealthy),
    ("required_topology", 1.0, counting(all_gangs, lambda j: "required" in j.get("topology", {}))),
    ("preferred_rack", 1.0, counting(all_gangs, lambda j: "preferred" in j.get("topology", {}))),
    ("timeouts", 1.0, counting(all_jobs, lambda j: "timeout" in j)),
    ("resumable", 1.0, counting(all_jobs, lambda j: j.get("resumable"))),
    ("interactive", 0.5, counting(all_jobs, lambda j: j.get("kind") == "interactive")),
    ("debug", 0.5, counting(all_jobs, debug)),
    ("any_funding", 1.0, counting(pending, lambda j: j.get("funding") == "any")),
    ("sweeps", 0.6, counting(pending, lambda j: j.get("min_runtime", 0) == 0)),
    ("misfits", 0.05, counting(pending, misfit)),
    ("odd_sizes", 0.5, counting(all_jobs, lambda j: j["gpus_per_replica"] in (3, 5, 6))),
    ("cpu_bound", 0.5, counting(all_jobs, lambda j: "resources_per_replica" in j)),
]
"""Knob, a value above (for ``fill`` below) its default, and a measure that moves with it."""


@pytest.fixture(scope="module")
def default() -> Doc:
    return generate_doc(GeneratorConfig(nodes=256))


@pytest.mark.parametrize(("knob", "value", "measure"), MEASURES, ids=[m[0] for m in MEASURES])
def test_knob_moves_its_measure(default: Doc, knob: str, value: float, measure: Callable[[Doc], float]) -> None:
    turned = generate_doc(GeneratorConfig(nodes=256, **{knob: value}))  # type: ignore[arg-type]
    parse_round(turned)
    if knob == "fill":
        assert measure(turned) < 0.6 * measure(default)
    else:
        assert measure(turned) > 1.15 * measure(default)


@pytest.mark.parametrize("knob", [m[0] for m in MEASURES if m[0] not in ("fill", "demand", "protected", "sweeps")])
def test_a_share_of_nothing_gives_nothing(knob: str) -> None:
    measure = next(m for name, _, m in MEASURES if name == knob)
    # Debug jobs always have a timeout.
    assert measure(generate_doc(GeneratorConfig(nodes=256, **{"debug": 0.0, knob: 0.0}))) == 0  # type: ignore[arg-type]


def test_without_sweeps_everything_pending_has_a_minimum_runtime() -> None:
    doc = generate_doc(GeneratorConfig(nodes=64, sweeps=0))
    assert all(j["min_runtime"] > 0 for j in pending(doc))


def test_cpu_bound_gives_all_nodes_cpus_and_some_of_them_few() -> None:
    doc = generate_doc(GeneratorConfig(nodes=64, cpu_bound=0.5))
    assert {n["resources"]["cpu"] for n in doc["cluster"]["nodes"]} == {128, 256}


def test_a_knob_leaves_the_rest_alone() -> None:
    """Asking for timeouts changes timeouts only."""
    few, many = (generate_doc(GeneratorConfig(timeouts=share)) for share in (0.1, 0.9))
    for doc in (few, many):
        for job in doc["jobs"]:
            job.pop("timeout", None)
    assert few == many


def test_an_empty_and_a_full_cluster() -> None:
    assert running(generate_doc(GeneratorConfig(fill=0))) == []
    full = generate_doc(GeneratorConfig(fill=1, unhealthy=0, down=0))
    assert held(full) == 64 * 8
    assert pending(generate_doc(GeneratorConfig(demand=0.5))) == []


def test_shape_of_the_cluster() -> None:
    config = GeneratorConfig(nodes=30, gpus_per_node=4, nodes_per_rack=5, racks_per_block=2, gpu_types=("x", "y", "z"))
    nodes = generate_doc(config)["cluster"]["nodes"]
    assert {n["gpus"] for n in nodes} == {4}
    assert [len({n["domains"][level] for n in nodes}) for level in ("block", "rack")] == [3, 6]
    assert {n["gpu_type"] for n in nodes} == {"x", "y", "z"}
    assert nodes[-1]["name"] == "b02/r01/n04"


@pytest.mark.parametrize(
    ("nodes", "family", "types"),
    [
        (8, Family.MIXED, {"h100"}),
        (64, Family.MIXED, {"h100", "a100"}),
        (256, Family.MIXED, {"h100", "a100", "b200"}),
        (256, Family.GANG_HEAVY, {"h100"}),
    ],
)
def test_default_gpu_types(nodes: int, family: Family, types: set[str]) -> None:
    doc = generate_doc(GeneratorConfig(nodes=nodes, family=family))
    assert {n["gpu_type"] for n in doc["cluster"]["nodes"]} == types


def test_budgets_now_and_time_limit() -> None:
    now = datetime(2027, 1, 2, 3, 4, 5, 600, tzinfo=UTC)
    doc = generate_doc(GeneratorConfig(budgets=40, now=now, time_limit=30))
    assert len(leaves(doc)) == 40
    assert doc["now"] == "2027-01-02T03:04:05.000600Z"
    assert doc["options"] == {"time_limit": 30}
    parse_round(doc)


def test_misfits_only_in_big_rounds() -> None:
    assert not any(misfit(j) for j in generate_doc(GeneratorConfig(nodes=64, misfits=0.5))["jobs"])
    big = generate_doc(GeneratorConfig(nodes=1_000))
    assert 0 < sum(map(misfit, big["jobs"])) < 0.01 * len(big["jobs"])


def test_knobs_out_of_range_are_refused_together() -> None:
    with pytest.raises(InputError) as refused:
        GeneratorConfig(nodes=0, fill=1.5, seed=-1, demand=-1, family="other", gpu_types=(), now=datetime(2026, 1, 1))
    assert {i.path for i in refused.value.issues} == {
        "nodes", "fill", "seed", "demand", "family", "gpu_types", "now"
    }  # fmt: skip
    with pytest.raises(InputError, match="GPUs in all"):
        GeneratorConfig(nodes=200_000)
