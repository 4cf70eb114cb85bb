"""Short ways to ask a generated document."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

Doc = dict[str, Any]


def size(job: Doc) -> int:
    gpus: int = job["replicas"] * job["gpus_per_replica"]
    return gpus


def running(doc: Doc) -> list[Doc]:
    return [j for j in doc["jobs"] if "running" in j]


def pending(doc: Doc) -> list[Doc]:
    return [j for j in doc["jobs"] if "running" not in j]


def allocated(doc: Doc) -> list[Doc]:
    return [j for j in running(doc) if j["running"]["mode"] == "allocated"]


def gangs(jobs: list[Doc]) -> list[Doc]:
    return [j for j in jobs if j["replicas"] > 1]


def healthy(node: Doc) -> int:
    gpus: int = node["gpus"] - len(node.get("unhealthy_gpus", ()))
    return gpus


def in_service(doc: Doc) -> int:
    return sum(healthy(n) for n in doc["cluster"]["nodes"] if n.get("state", "ready") == "ready")


def held(doc: Doc) -> int:
    return sum(map(size, running(doc)))


def demand(doc: Doc) -> float:
    return sum(map(size, doc["jobs"])) / in_service(doc)


def seconds_ago(doc: Doc, instant: str) -> float:
    return (datetime.fromisoformat(doc["now"]) - datetime.fromisoformat(instant)).total_seconds()


def protection_age(doc: Doc, job: Doc) -> float:
    run = job["running"]
    return seconds_ago(doc, run.get("allocated_since") or run["started_at"] or run["placed_at"])


def leaves(doc: Doc) -> list[tuple[Doc, float]]:
    """Leaf budgets with their owed GPU-seconds over seven days."""
    parents = {b["name"]: b for b in doc["budgets"] if "parent" not in b}
    rows = [b for b in doc["budgets"] if "parent" in b]
    top = sum(b["weight"] for b in parents.values())
    window = in_service(doc) * 604_800
    return [
        (
            b,
            window
            * (parents[b["parent"]]["weight"] / top)
            * (b["weight"] / sum(s["weight"] for s in rows if s["parent"] == b["parent"])),
        )
        for b in rows
    ]


def placements(doc: Doc) -> Iterator[tuple[Doc, Doc]]:
    for job in running(doc):
        for replica in job["running"]["placement"]:
            yield job, replica
