"""Reading rounds: every issue at once, nothing refused that only concerns one pending job."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from pydantic import ValidationError

from cpalloc.errors import InputError, Issue
from cpalloc.schema import Round, parse_allocation, parse_round, snapshot_issues
from cpalloc.schema.examples import load, names

from .malformed import CASES, EVAL, NODE, PLACE, PRETRAIN, SWEEP, VIDEO, Malformed, add, drop, job, put, runs


def found(document: Any) -> list[tuple[str, str]]:
    with pytest.raises(InputError) as caught:
        parse_round(document)
    assert all(issue.message for issue in caught.value.issues)
    return [(issue.code, issue.path) for issue in caught.value.issues]


@pytest.mark.parametrize("malformed", CASES, ids=lambda m: m.name.replace(" ", "-"))
def test_malformed_rounds_are_refused_with_exactly_their_issues(malformed: Malformed) -> None:
    issues = found(malformed.document())
    assert sorted(issues) == sorted(malformed.issues)


def test_there_are_enough_malformed_rounds_and_their_names_differ() -> None:
    assert len(CASES) >= 40
    assert len({c.name for c in CASES}) == len(CASES)
    assert sum(len(c.issues) >= 2 for c in CASES) >= 10


@pytest.mark.parametrize("malformed", CASES, ids=lambda m: m.name.replace(" ", "-"))
def test_the_python_path_refuses_them_too(malformed: Malformed) -> None:
    """Either the models raise, or ``snapshot_issues`` says the same as ``parse_round``."""
    document = malformed.document()
    try:
        round_ = Round.model_validate(document)
    except ValidationError:
        return
    assert sorted((i.code, i.path) for i in snapshot_issues(round_)) == sorted(malformed.issues)


@pytest.mark.parametrize("name", names())
def test_examples_are_accepted_in_every_form(name: str) -> None:
    document = load(name)
    text = json.dumps(document)
    assert parse_round(document) == parse_round(text) == parse_round(text.encode())


HARMLESS = {
    "unknown budget": {"budget": "nobody"},
    "interior budget": {"budget": "vision"},
    "unknown type": {"gpu_types": ["tpu"]},
    "no type": {"gpu_types": []},
    "unknown level": {"topology": {"required": "block"}},
    "unknown label": {"node_selector": {"planet": "mars"}},
    "min_runtime over the maximum": {"min_runtime": "P30D"},
    "no replicas": {"replicas": 0},
    "no GPUs": {"gpus_per_replica": 0},
    "10^12 replicas": {"replicas": 10**12},
    "10^30 GPUs": {"gpus_per_replica": 10**30},
    "absurd durations": {"min_runtime": 10**18, "timeout": 10**18, "restart_cost": 10**18},
    "absurd resources": {"resources_per_replica": {"cpu": 10**18}},
    "no replica a node": {"max_replicas_per_node": 0},
    "from the future": {"submitted_at": "2036-11-29T12:00:00Z"},
}


@pytest.mark.parametrize("fields", HARMLESS.values(), ids=HARMLESS)
def test_what_concerns_one_pending_job_is_accepted(fields: dict[str, Any]) -> None:
    document = load("small")
    document["jobs"].append(job("odd", **fields))
    assert parse_round(document).jobs[-1].id == "odd"


TOLERATED = {
    "stopping under a placed job": (
        put("jobs", EVAL, "running", "stopping", value=True),
        add("jobs", value=job("next", running=runs(("r0n0", [0, 1, 2, 3]), started_at=None))),
    ),
    "two stopping jobs": (
        put("jobs", EVAL, "running", "stopping", value=True),
        add("jobs", value=job("next", running=runs(("r0n0", [0, 1, 2, 3]), stopping=True))),
    ),
    "counts that fit": (add("jobs", value=job("next", running=runs(("r0n0", 4)))),),
    "running beyond the terms": (
        put("jobs", EVAL, "min_runtime", value="P30D"),
        put("jobs", EVAL, "running", "started_at", value="2036-11-29T11:00:00Z"),
        put("jobs", EVAL, "gpu_types", value=["tpu"]),
    ),
    "running on an unhealthy GPU": (put("jobs", VIDEO, *PLACE, 0, "gpus", value=[4, 5, 6, 7]),),
    "running on a node that is down": (put(*NODE, 0, "state", value="down"),),
    "no nodes and nothing runs": (put("cluster", "nodes", value=[]), put("jobs", value=[])),
    "sixteen deep": (
        put("budgets", value=[{"name": f"d{i}", "weight": 1, "parent": f"d{i - 1}" if i else None} for i in range(16)]),
        put("jobs", value=[]),
    ),
    "a node without domains": (drop(*NODE, 0, "domains"),),
    "an explicit zero on a programme": (put("budgets", 0, "charged_gpu_seconds", value=0),),
    "node and cluster as levels of shapes": (
        put(
            "policy",
            "shape_mix",
            value=[
                {"replicas": 1, "gpus_per_replica": 8, "level": v, "weight": 1} for v in ("node", "cluster", "rack")
            ],
        ),
    ),
}


@pytest.mark.parametrize("changes", TOLERATED.values(), ids=TOLERATED)
def test_what_a_snapshot_may_say(changes: tuple[Any, ...]) -> None:
    assert parse_round(Malformed("", changes, frozenset()).document())


def absent(gpus: int, of: int) -> dict[str, Any]:
    """A round in which ``gpus`` of ``of`` running GPUs are on a node that is not listed."""
    document = load("small")
    document["cluster"]["nodes"] = [{"name": "big", "gpu_type": "h100", "gpus": of}]
    document["jobs"] = [
        job("here", gpus_per_replica=of - gpus, running=runs(("big", of - gpus))),
        job("gone", gpus_per_replica=gpus, running=runs(("lost", gpus))),
    ]
    return document


def test_up_to_five_per_cent_of_the_running_gpus_may_be_absent() -> None:
    assert parse_round(absent(5, 100))
    assert found(absent(6, 100)) == [("snapshot_incomplete", "cluster.nodes")]
    assert found(absent(51, 1000)) == [("snapshot_incomplete", "cluster.nodes")]


def test_the_order_of_lists_does_not_matter() -> None:
    document = load("small")
    for entries in (document["jobs"], document["budgets"], document["cluster"]["nodes"]):
        entries.reverse()
    assert parse_round(document)


@pytest.mark.parametrize("text", ["", "{", "[1", b"\xff", '{"a": 01}', "[" * 100_000], ids=range(6))
def test_what_is_not_json(text: str | bytes) -> None:
    assert found(text) == [("json", "")]


@pytest.mark.parametrize("text", ["[]", "1", "null", '"round"'])
def test_what_is_no_object(text: str) -> None:
    assert found(text) == [("type", "")]


def test_nan_in_json_text_is_refused_where_it_stands() -> None:
    text = json.dumps(load("small")).replace('"gpus": 8', '"gpus": NaN', 1)
    assert found(text) == [("type", "cluster.nodes[0].gpus")]


def graph() -> dict[str, Any]:
    """The example's cluster as node-link data."""
    nodes = load("small")["cluster"]["nodes"]
    racks = [{"id": f"r{i}", "level": "rack"} for i in range(2)]
    hosts = [{"id": n["name"], "gpu_type": "h100", "gpus": 8, "x": 0.5} for n in nodes]
    edges = [{"source": n["domains"]["rack"], "target": n["name"]} for n in nodes]
    return {
        "directed": False,
        "multigraph": False,
        "graph": {"levels": ["rack"]},
        "nodes": racks + hosts,
        "edges": edges,
    }


def test_a_graph_is_checked_against_the_placements() -> None:
    document = load("small")
    document["cluster"] = {"name": "juno", "graph": graph()}
    assert parse_round(document)
    document["jobs"][EVAL]["running"]["placement"][0]["gpus"] = [0, 1, 2, 8]
    document["cluster"]["graph"]["nodes"][3]["gpus"] = -8
    document["cluster"]["graph"]["nodes"][4]["id"] = "r0n0"
    assert sorted(found(document)) == [
        ("duplicate_id", "cluster.graph.nodes[4].name"),
        ("range", "cluster.graph.nodes[3].gpus"),
        ("snapshot_incomplete", "cluster.graph.nodes"),
    ]


def test_a_graph_is_checked_beside_malformed_fields() -> None:
    document = load("small")
    document["cluster"] = {"name": "juno", "graph": graph()}
    document["cluster"]["graph"]["graph"]["levels"] = ["rack", "node"]
    document["jobs"][PRETRAIN]["min_runtime"] = "P1M"
    document["jobs"][SWEEP]["running"]["placement"][0]["gpus"] = [4, 5, 6, 7]
    assert found(document) == [
        ("duration", "jobs[3].min_runtime"),
        ("reserved_level", "cluster.graph.graph.levels[1]"),
        ("overlap", "jobs[1].running.placement[1]"),
    ]


def paths(value: Any, base: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a document."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [base, *(path for key, child in children for path in paths(child, (*base, key)))]


JUNK = (None, True, -1, 10**40, 0.5, float("nan"), "", "a b", "\ud800", [], [[]], {}, {"a b": {}}, {1: 2})


@pytest.mark.parametrize("junk", JUNK, ids=range(len(JUNK)))
@pytest.mark.parametrize("with_graph", [False, True])
def test_junk_anywhere_is_refused_in_an_orderly_way(junk: Any, with_graph: bool) -> None:
    base = load("small")
    if with_graph:
        base["cluster"] = {"name": "juno", "graph": graph()}
    for path in paths(base)[1:]:
        document = copy.deepcopy(base)
        put(*path, value=junk)(document)
        issues: tuple[Issue, ...] = ()
        try:
            parse_round(document)
        except InputError as error:
            issues = error.issues
        assert len({(i.code, i.path) for i in issues}) == len(issues)


def test_allocations_report_all_their_issues() -> None:
    with pytest.raises(InputError) as caught:
        parse_allocation({"schema_version": 1, "decisions": [{"job": "a", "action": "dance"}], "now": "today"})
    issues = {(issue.code, issue.path) for issue in caught.value.issues}
    assert {("instant", "now"), ("enum", "decisions[0].action"), ("missing", "budgets")} <= issues


def test_a_large_round_is_walked_once() -> None:
    """2,000 nodes and 1,000 gangs; a quadratic check would be felt here."""
    document = load("small")
    document["cluster"]["nodes"] = [
        {"name": f"n{i}", "gpu_type": "h100", "gpus": 8, "domains": {"rack": f"r{i // 16}"}} for i in range(2000)
    ]
    document["jobs"] = [
        job(
            f"j{i}",
            replicas=2,
            gpus_per_replica=8,
            running=runs(*((f"n{2 * i + k}", list(range(8))) for k in range(2))),
        )
        for i in range(1000)
    ]
    assert len(parse_round(document).jobs) == 1000
