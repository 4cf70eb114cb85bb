"""Malformed rounds: small mutations of the example round, each with the exact issues it must be refused with.

A mutation sets or deletes values by path, where a path is a tuple of keys and indices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cpalloc.schema.examples import load

Document = dict[str, Any]
Change = Callable[[Document], None]

EVAL, SWEEP, VIDEO, PRETRAIN, NOTEBOOK, WAITING = range(6)
"""Indices of the example's jobs; the first three run, on r0n0 (devices 0-3), r1n0 (all) and r1n1 (devices 0-3)."""


@dataclass(frozen=True)
class Malformed:
    name: str
    changes: tuple[Change, ...]
    issues: frozenset[tuple[str, str]]

    def document(self) -> Document:
        document = load("small")
        for change in self.changes:
            change(document)
        return document


def put(*path: str | int, value: Any) -> Change:
    def change(document: Document) -> None:
        here: Any = document
        for step in path[:-1]:
            here = here[step]
        here[path[-1]] = value

    return change


def drop(*path: str | int) -> Change:
    def change(document: Document) -> None:
        here: Any = document
        for step in path[:-1]:
            here = here[step]
        del here[path[-1]]

    return change


def add(*path: str | int, value: Any) -> Change:
    def change(document: Document) -> None:
        here: Any = document
        for step in path:
            here = here[step]
        here.append(value)

    return change


def case(name: str, *parts: Change | tuple[str, str]) -> Malformed:
    changes = tuple(part for part in parts if not isinstance(part, tuple))
    return Malformed(name, changes, frozenset(part for part in parts if isinstance(part, tuple)))


def job(id_: str, **fields: Any) -> Document:
    base = {
        "id": id_,
        "budget": "vision/video",
        "submitted_at": "2026-11-29T11:00:00Z",
        "replicas": 1,
        "gpus_per_replica": 4,
    }
    return base | fields


def runs(*placement: tuple[str, Any], **fields: Any) -> Document:
    places = [{"node": node, "gpus": gpus} for node, gpus in placement]
    return {"mode": "borrowed", "started_at": "2026-11-29T11:00:00Z", "placement": places} | fields


def chain(length: int) -> list[Document]:
    """Budgets d1 > d2 > …, one below the other."""
    return [{"name": f"d{i}", "weight": 1} | ({"parent": f"d{i - 1}"} if i > 1 else {}) for i in range(1, length + 1)]


def deepen(length: int) -> Change:
    def change(document: Document) -> None:
        document["budgets"] += chain(length)

    return change


NODE = ("cluster", "nodes")
PLACE = ("running", "placement")

FIELDS = (
    case("no version", drop("schema_version"), ("missing", "schema_version")),
    case("unsupported version", put("schema_version", value=2), ("enum", "schema_version")),
    case("version is a boolean", put("schema_version", value=True), ("type", "schema_version")),
    case("unknown top field", put("colour", value="red"), ("unknown_field", "colour")),
    case("now without offset", put("now", value="2026-11-29T12:00:00"), ("instant", "now")),
    case("now of nanoseconds", put("now", value="2026-11-29T12:00:00.000000001Z"), ("instant", "now")),
    case("now as a number", put("now", value=1796040000), ("instant", "now")),
    case("no such day", put("now", value="2026-02-30T12:00:00Z"), ("instant", "now")),
    case("duration of months", put("jobs", PRETRAIN, "min_runtime", value="P1M"), ("duration", "jobs[3].min_runtime")),
    case("duration of fractions", put("policy", "window", value="PT1.5H"), ("duration", "policy.window")),
    case("duration is a boolean", put("jobs", VIDEO, "timeout", value=True), ("duration", "jobs[2].timeout")),
    case("negative duration", put("jobs", VIDEO, "restart_cost", value=-1), ("range", "jobs[2].restart_cost")),
    case("empty window", put("policy", "window", value=0), ("range", "policy.window")),
    case("boolean GPUs", put(*NODE, 0, "gpus", value=True), ("type", "cluster.nodes[0].gpus")),
    case("fractional GPUs", put("jobs", WAITING, "gpus_per_replica", value=1.5), ("type", "jobs[5].gpus_per_replica")),
    case("negative replicas", put("jobs", WAITING, "replicas", value=-1), ("range", "jobs[5].replicas")),
    case(
        "NaN charge",
        put("budgets", 1, "charged_gpu_seconds", value=float("nan")),
        ("type", "budgets[1].charged_gpu_seconds"),
    ),
    case(
        "negative charge",
        put("budgets", 1, "charged_gpu_seconds", value=-5),
        ("range", "budgets[1].charged_gpu_seconds"),
    ),
    case(
        "charge of 10^16",
        put("budgets", 1, "charged_gpu_seconds", value=10**16),
        ("too_large", "budgets[1].charged_gpu_seconds"),
    ),
    case("weight over 10^6", put("budgets", 0, "weight", value=10**6 + 1), ("range", "budgets[0].weight")),
    case("blank in an id", put("jobs", NOTEBOOK, "id", value="note book"), ("pattern", "jobs[4].id")),
    case("newline in an id", put("jobs", NOTEBOOK, "id", value="notebook\n"), ("pattern", "jobs[4].id")),
    case("long id", put("jobs", NOTEBOOK, "id", value="x" * 254), ("pattern", "jobs[4].id")),
    case("misspelt job field", put("jobs", NOTEBOOK, "replica", value=1), ("unknown_field", "jobs[4].replica")),
    case("unknown priority", put("jobs", PRETRAIN, "priority", value="vip"), ("enum", "jobs[3].priority")),
    case("yes is not a boolean", put("jobs", PRETRAIN, "resumable", value="yes"), ("type", "jobs[3].resumable")),
    case("jobs is an object", put("jobs", value={}), ("type", "jobs")),
    case("a node is a word", put(*NODE, 0, value="r0n0"), ("type", "cluster.nodes[0]")),
    case("no started_at", drop("jobs", EVAL, "running", "started_at"), ("missing", "jobs[0].running.started_at")),
    case(
        "GPUs in words",
        put("jobs", EVAL, *PLACE, 0, "gpus", value="all"),
        ("type", "jobs[0].running.placement[0].gpus"),
    ),
    case(
        "negative device",
        put("jobs", EVAL, *PLACE, 0, "gpus", value=[0, 1, 2, -3]),
        ("range", "jobs[0].running.placement[0].gpus[3]"),
    ),
    case(
        "infinite utilisation",
        put("jobs", EVAL, "running", "utilisation", value=float("inf")),
        ("range", "jobs[0].running.utilisation"),
    ),
    case("time limit too short", put("options", "time_limit", value=0.01), ("range", "options.time_limit")),
    case("time limit too long", put("options", "time_limit", value=3601), ("range", "options.time_limit")),
    case("seven decimals", put("options", "gap", value=0.1234567), ("decimal", "options.gap")),
    case("NaN gap", put("options", "gap", value=float("nan")), ("decimal", "options.gap")),
    case("odd key", put(*NODE, 0, "labels", "a b", value="x"), ("pattern", 'cluster.nodes[0].labels["a b"]')),
    case("an unknown tier", put("policy", "tiers", value=["preemption", "speed"]), ("enum", "policy.tiers[1]")),
    case("too many jobs", put("jobs", value=[None] * (10**6 + 1)), ("too_many", "jobs")),
    case("a node of too many GPUs", put(*NODE, 0, "gpus", value=10**6 + 1), ("range", "cluster.nodes[0].gpus")),
)

POLICIES = (
    case("no preemption tier", put("policy", "tiers", value=["idle"]), ("tier_order", "policy.tiers")),
    case("no tiers", put("policy", "tiers", value=[]), ("tier_order", "policy.tiers")),
    case(
        "preemption after idle", put("policy", "tiers", value=["idle", "preemption"]), ("tier_order", "policy.tiers[1]")
    ),
    case(
        "preemption after delay",
        put("policy", "tiers", value=["delay", "preemption"]),
        ("tier_order", "policy.tiers[1]"),
    ),
    case(
        "tier twice",
        put("policy", "tiers", value=["preemption", "idle", "idle"]),
        ("tier_duplicate", "policy.tiers[2]"),
    ),
    case(
        "starvation with slack, a tier twice, preemption late",
        put("policy", "tiers", value=[{"name": "starvation", "slack": 0.1}, "delay", "delay", "preemption"]),
        ("tier_slack", "policy.tiers[0].slack"),
        ("tier_duplicate", "policy.tiers[2]"),
        ("tier_order", "policy.tiers[3]"),
    ),
    case(
        "shape of an unknown level",
        put("policy", "shape_mix", value=[{"replicas": 2, "gpus_per_replica": 8, "level": "block", "weight": 1}]),
        ("unknown_level", "policy.shape_mix[0].level"),
    ),
)

CLUSTERS = (
    case("neither nodes nor graph", put("cluster", value={"name": "juno"}), ("cluster_form", "cluster")),
    case("nodes and graph", put("cluster", "graph", value={"nodes": [], "edges": []}), ("cluster_form", "cluster")),
    case(
        "graph without edges",
        put("cluster", value={"name": "juno", "graph": {"nodes": []}}),
        ("graph", "cluster.graph"),
    ),
    case("node twice", put(*NODE, 1, "name", value="r0n0"), ("duplicate_id", "cluster.nodes[1].name")),
    case("reserved level", put("cluster", "levels", value=["rack", "node"]), ("reserved_level", "cluster.levels[1]")),
    case("level twice", put("cluster", "levels", value=["rack", "rack"]), ("duplicate_level", "cluster.levels[1]")),
    case(
        "unlisted level",
        put(*NODE, 2, "domains", "block", value="b0"),
        ("unknown_level", "cluster.nodes[2].domains.block"),
    ),
    case(
        "a rack in two blocks",
        put("cluster", "levels", value=["block", "rack"]),
        put(*NODE, 0, "domains", value={"block": "b0", "rack": "r0"}),
        put(*NODE, 1, "domains", value={"block": "b1", "rack": "r0"}),
        put(*NODE, 2, "domains", value={"block": "b1", "rack": "r1"}),
        put(*NODE, 3, "domains", value={"block": "b1", "rack": "r1"}),
        ("domain_two_parents", "cluster.nodes[1].domains.rack"),
    ),
    case(
        "racks partly without a block",
        put("cluster", "levels", value=["block", "rack"]),
        put(*NODE, 0, "domains", value={"block": "b0", "rack": "r0"}),
        ("domain_two_parents", "cluster.nodes[1].domains.rack"),
        ("domain_two_parents", "cluster.nodes[3].domains.rack"),
    ),
    case(
        "group of a GPU not there",
        put(*NODE, 0, "gpu_groups", value=[[0, 8]]),
        ("unknown_gpu", "cluster.nodes[0].gpu_groups[0][1]"),
    ),
    case(
        "groups overlap",
        put(*NODE, 0, "gpu_groups", value=[[0, 1], [1, 2]]),
        ("overlap", "cluster.nodes[0].gpu_groups[1][0]"),
    ),
    case(
        "unhealthy GPU not there",
        put(*NODE, 3, "unhealthy_gpus", value=[8]),
        ("unknown_gpu", "cluster.nodes[3].unhealthy_gpus[0]"),
    ),
    case(
        "unhealthy GPU twice",
        put(*NODE, 3, "unhealthy_gpus", value=[7, 7]),
        ("overlap", "cluster.nodes[3].unhealthy_gpus[1]"),
    ),
    case(
        "GPUs beyond 10^6 in total",
        put(*NODE, 0, "gpus", value=500_000),
        put(*NODE, 1, "gpus", value=500_000),
        ("too_many", "cluster.nodes"),
    ),
)

BUDGETS = (
    case("budget twice", add("budgets", value={"name": "vision", "weight": 1}), ("duplicate_id", "budgets[5].name")),
    case("unknown parent", put("budgets", 2, "parent", value="speech"), ("unknown_parent", "budgets[2].parent")),
    case(
        "its own parent",
        add("budgets", value={"name": "x", "parent": "x", "weight": 1}),
        ("budget_cycle", "budgets[5].parent"),
    ),
    case(
        "cycle of three with one hanging on it",
        add("budgets", value={"name": "hangs", "parent": "a", "weight": 1}),
        add("budgets", value={"name": "b", "parent": "a", "weight": 1}),
        add("budgets", value={"name": "a", "parent": "c", "weight": 1}),
        add("budgets", value={"name": "c", "parent": "b", "weight": 1}),
        ("budget_cycle", "budgets[6].parent"),
    ),
    case("seventeen deep", deepen(18), ("budget_depth", "budgets[21]")),
    case(
        "charge on a programme",
        put("budgets", 0, "charged_gpu_seconds", value=1),
        ("interior_charge", "budgets[0].charged_gpu_seconds"),
    ),
    case(
        "owed on a programme",
        put("budgets", 3, "owed_gpu_seconds", value=0),
        ("interior_charge", "budgets[3].owed_gpu_seconds"),
    ),
    case(
        "charges beyond 10^15 in total",
        put("budgets", 1, "charged_gpu_seconds", value=10**15),
        put("budgets", 2, "charged_gpu_seconds", value=1),
        ("too_large", "budgets"),
    ),
)

JOBS = (
    case("job twice", put("jobs", WAITING, "id", value="notebook-2"), ("duplicate_id", "jobs[5].id")),
    case(
        "running on an unknown budget",
        put("jobs", SWEEP, "budget", value="speech"),
        ("unknown_budget", "jobs[1].budget"),
    ),
    case("running on a programme", put("jobs", SWEEP, "budget", value="vision"), ("unknown_budget", "jobs[1].budget")),
    case(
        "two jobs on the same GPUs",
        add("jobs", value=job("late", running=runs(("r0n0", [3, 4, 5, 6])))),
        ("overlap", "jobs[6].running.placement[0]"),
    ),
    case(
        "two replicas on the same GPUs",
        put("jobs", SWEEP, *PLACE, 1, "gpus", value=[0, 1, 2, 3]),
        ("overlap", "jobs[1].running.placement[1]"),
    ),
    case(
        "a placed job over one that is not stopping",
        add("jobs", value=job("late", running=runs(("r0n0", [0, 1, 2, 3]), started_at=None))),
        ("overlap", "jobs[6].running.placement[0]"),
    ),
    case(
        "device twice",
        put("jobs", EVAL, *PLACE, 0, "gpus", value=[0, 1, 2, 2]),
        ("overlap", "jobs[0].running.placement[0].gpus[3]"),
    ),
    case(
        "device not there",
        put("jobs", EVAL, *PLACE, 0, "gpus", value=[0, 1, 2, 8]),
        ("unknown_gpu", "jobs[0].running.placement[0].gpus[3]"),
    ),
    case(
        "device far away",
        put("jobs", EVAL, *PLACE, 0, "gpus", value=[0, 1, 2, 10**15]),
        ("unknown_gpu", "jobs[0].running.placement[0].gpus[3]"),
    ),
    case(
        "counts over the node",
        add("jobs", value=job("late", gpus_per_replica=5, running=runs(("r0n0", 5)))),
        ("node_exceeded", "jobs[6].running.placement[0].gpus"),
    ),
    case(
        "a stopping job over the node",
        add("jobs", value=job("late", gpus_per_replica=9, running=runs(("r0n1", 9), stopping=True))),
        ("node_exceeded", "jobs[6].running.placement[0].gpus"),
    ),
    case(
        "a stopping job over itself",
        add(
            "jobs",
            value=job("late", replicas=2, running=runs(("r0n1", [0, 1, 2, 3]), ("r0n1", [3, 4, 5, 6]), stopping=True)),
        ),
        ("overlap", "jobs[6].running.placement[1]"),
    ),
    case("replica missing", drop("jobs", SWEEP, *PLACE, 1), ("replica_count", "jobs[1].running.placement")),
    case(
        "10^12 replicas running",
        put("jobs", SWEEP, "replicas", value=10**12),
        ("replica_count", "jobs[1].running.placement"),
    ),
    case(
        "replica too small",
        put("jobs", EVAL, *PLACE, 0, "gpus", value=[0, 1]),
        ("replica_size", "jobs[0].running.placement[0].gpus"),
    ),
    case(
        "a count too large",
        put("jobs", EVAL, *PLACE, 0, "gpus", value=5),
        ("replica_size", "jobs[0].running.placement[0].gpus"),
    ),
    case(
        "a quarter of the GPUs on an absent node",
        put("jobs", VIDEO, *PLACE, 0, "node", value="r9n9"),
        ("snapshot_incomplete", "cluster.nodes"),
    ),
    case(
        "restart cost of ages", put("jobs", EVAL, "restart_cost", value=10**15), ("too_large", "jobs[0].restart_cost")
    ),
    case(
        "resources beyond 10^15 in use",
        put("jobs", SWEEP, "resources_per_replica", "cpu", value=10**15),
        ("too_large", "jobs[1].resources_per_replica.cpu"),
    ),
)

SEVERAL = (
    case(
        "malformed and contradictory in different jobs",
        put("jobs", PRETRAIN, "min_runtime", value="P1Y"),
        put("jobs", SWEEP, "budget", value="speech"),
        put("jobs", EVAL, *PLACE, 0, "gpus", value=[0, 1, 2, 8]),
        ("duration", "jobs[3].min_runtime"),
        ("unknown_budget", "jobs[1].budget"),
        ("unknown_gpu", "jobs[0].running.placement[0].gpus[3]"),
    ),
    case(
        "malformed and contradictory in the same job",
        put("jobs", SWEEP, "min_runtime", value="soon"),
        put("jobs", SWEEP, "budget", value="speech"),
        put("jobs", SWEEP, *PLACE, 1, "gpus", value=[3, 4, 5, 6]),
        ("duration", "jobs[1].min_runtime"),
        ("unknown_budget", "jobs[1].budget"),
        ("overlap", "jobs[1].running.placement[1]"),
    ),
    case(
        "a malformed budget name is still a name",
        put("budgets", 4, "name", value="vision video"),
        put("jobs", SWEEP, "budget", value="language"),
        ("pattern", "budgets[4].name"),
        ("unknown_budget", "jobs[1].budget"),
        ("unknown_budget", "jobs[2].budget"),
    ),
    case(
        "nodes that did not parse are not missed",
        drop(*NODE, 2, "name"),
        put(*NODE, 3, "gpus", value="8"),
        ("missing", "cluster.nodes[2].name"),
        ("type", "cluster.nodes[3].gpus"),
    ),
    case(
        "budgets that did not parse are not missed",
        drop("budgets", 0, "name"),
        put("budgets", 2, "weight", value=-1),
        put("options", "workers", value=0),
        ("missing", "budgets[0].name"),
        ("range", "budgets[2].weight"),
        ("range", "options.workers"),
    ),
    case(
        "nodes, budgets and jobs at once",
        put(*NODE, 1, "name", value="r0n0"),
        put("budgets", 2, "parent", value="speech"),
        add("jobs", value=job("late", running=runs(("r1n1", [0, 4, 5, 6])))),
        ("duplicate_id", "cluster.nodes[1].name"),
        ("unknown_parent", "budgets[2].parent"),
        ("overlap", "jobs[6].running.placement[0]"),
    ),
    case(
        "no now, and a GPU held twice",
        drop("now"),
        add("jobs", value=job("late", running=runs(("r0n0", [0, 4, 5, 6])))),
        ("missing", "now"),
        ("overlap", "jobs[6].running.placement[0]"),
    ),
    case(
        "both forms of a cluster, and a bad node",
        put("cluster", "graph", value={"nodes": [], "edges": []}),
        put(*NODE, 1, "state", value="broken"),
        ("cluster_form", "cluster"),
        ("enum", "cluster.nodes[1].state"),
    ),
    case(
        "a stopping flag that did not parse starts no overlap",
        put("jobs", EVAL, "running", "stopping", value="yes"),
        add("jobs", value=job("late", running=runs(("r0n0", [0, 1, 2, 3]), started_at=None))),
        ("type", "jobs[0].running.stopping"),
    ),
    case(
        "everything is missing",
        dict.clear,
        *(("missing", f) for f in ("schema_version", "now", "cluster", "budgets", "jobs")),
    ),
)

CASES = (*FIELDS, *POLICIES, *CLUSTERS, *BUDGETS, *JOBS, *SEVERAL)
