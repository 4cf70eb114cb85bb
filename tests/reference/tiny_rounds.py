"""Tiny but nasty rounds, as wire documents: small enough to try every decision, odd enough for every rule to bind."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

Doc = dict[str, Any]

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
OWED = 1_000_000
HOUR = 3600
TIERS = ["starvation", "shortfall", "inversion", "preemption", "idle", "lend", "fragmentation", "locality", "churn"]


def at(seconds_ago: int) -> str:
    """An instant before now."""
    return (NOW - timedelta(seconds=seconds_ago)).isoformat().replace("+00:00", "Z")


@dataclass(slots=True)
class Draw:
    """A round being drawn: its random stream, its nodes and what is still free on them."""

    rng: Random
    nodes: list[Doc] = field(default_factory=list)
    free: dict[str, list[int]] = field(default_factory=dict)
    cpus: dict[str, int] = field(default_factory=dict)
    shut: set[str] = field(default_factory=set)
    leaves: list[str] = field(default_factory=list)
    racks: bool = False
    grouped: bool = False
    with_cpus: bool = False
    unknown: bool = False
    contested: bool = False
    poor: list[str] = field(default_factory=list)
    rich: list[str] = field(default_factory=list)

    def maybe(self, probability: float) -> bool:
        """True with a probability."""
        return self.rng.random() < probability


def tiny_doc(seed: int, *, reservations: bool = False) -> Doc:
    """A round of 1-4 nodes and 2-6 jobs; without reservations of this round by default, but with some of the last."""
    draw = Draw(Random(seed))
    draw.contested = draw.maybe(0.65)
    _cluster(draw)
    budgets = _budgets(draw)
    jobs = _running(draw) + _pending(draw)
    for number, job in enumerate(jobs):
        job["id"] = f"j{number}"
    policy: Doc = {"reservations": 4 if reservations else 0, "charge_horizon": draw.rng.choice([HOUR, 600, 50_000])}
    policy["preempt_under_share"] = draw.maybe(0.15)
    if draw.maybe(0.25):
        policy["max_preempted_gpus"] = draw.rng.choice([0, 1, 2, 3, 4])
    previous = []
    if draw.maybe(0.3):
        previous = _promises(draw, jobs)
    if not reservations:
        policy["tiers"] = list(TIERS)
        if draw.maybe(0.2):
            policy["tiers"][1] = {"name": "shortfall", "slack": draw.rng.choice([0, 0.2, 0.5])}
        if draw.maybe(0.1):
            policy["tiers"] = ["preemption", "starvation", "shortfall", "lend", "inversion", "idle", "locality"]
    draw.rng.shuffle(jobs)
    return {
        "schema_version": 1,
        "now": at(0),
        "cluster": {"name": "tiny", "levels": ["rack"] if draw.racks else [], "nodes": draw.nodes},
        "budgets": budgets,
        "jobs": jobs,
        "previous": {"reservations": previous},
        "policy": policy,
        "options": {"time_limit": 30, "workers": 1, "seed": 0},
    }


# -- the cluster ------------------------------------------------------------------------------------------------------


def _cluster(draw: Draw) -> None:
    rng = draw.rng
    count = rng.choice([1, 2, 2, 3, 3, 4])
    draw.racks = count > 1 and draw.maybe(0.5)
    draw.grouped, draw.with_cpus, draw.unknown = draw.maybe(0.25), draw.maybe(0.3), draw.maybe(0.1)
    types = ["h100"] if draw.maybe(0.75) or count == 1 else ["a100", "h100"]
    usual = rng.choice([2, 3, 4, 4, 4, 6, 8] if count < 3 else [2, 3, 4, 4])
    for i in range(count):
        gpus = usual if draw.maybe(0.75) else rng.choice([1, 2, 3, 4])
        node: Doc = {"name": f"n{i}", "gpu_type": types[i % len(types)], "gpus": gpus}
        if draw.racks:
            node["domains"] = {"rack": f"r{i * 2 // count}"}
        if count > 1 and i and draw.maybe(0.08):
            node["state"] = rng.choice(["draining", "down"])
        if draw.maybe(0.3):
            node["labels"] = {"zone": rng.choice("ew")}
        if draw.maybe(0.1):
            node["unhealthy_gpus"] = [rng.randrange(gpus)]
        if draw.grouped and gpus >= 2:
            cut = gpus // 2 if draw.maybe(0.6) else rng.randrange(1, gpus)
            node["gpu_groups"] = [list(range(cut)), list(range(cut, gpus))]
        if draw.with_cpus:
            draw.cpus[node["name"]] = gpus * rng.choice([2, 4, 8])
            node["resources"] = {"cpu": draw.cpus[node["name"]]}
        draw.nodes.append(node)
        draw.free[node["name"]] = list(range(gpus))


def _budgets(draw: Draw) -> list[Doc]:
    """One to three leaves, some below a programme, ratios on both sides of 1."""
    rng = draw.rng
    names = ["x", "y", "z"][: rng.choice([2, 2, 3] if draw.contested else [1, 2, 2, 2, 3])]
    tree = len(names) > 1 and draw.maybe(0.4)
    out: list[Doc] = []
    if tree:
        out.append({"name": "p", "weight": rng.choice([1, 2])})
        if draw.maybe(0.25):
            out[0]["max_gpus"] = rng.randrange(1, 8)
    for i, name in enumerate(names):
        ratio = rng.choice([0, 0.3, 0.8, 0.99, 1.0, 1.01, 1.2, 2.5])
        if draw.contested and i < 2:
            ratio = rng.choice([0, 0.2, 0.5, 0.97] if i else [1.01, 1.1, 1.5, 3])
        (draw.rich if ratio > 1 else draw.poor).append(name)
        row: Doc = {"name": name, "weight": rng.choice([1, 1, 2, 3]), "charged_gpu_seconds": int(OWED * ratio)}
        if draw.maybe(0.95):
            row["owed_gpu_seconds"] = OWED
        if tree and (i == 0 or draw.maybe(0.5)):
            row["parent"] = "p"
        if draw.maybe(0.2):
            row["max_gpus"] = rng.randrange(0, 7)
        if draw.maybe(0.25):
            row["max_borrowed_gpus"] = rng.randrange(0, 6)
        out.append(row)
    draw.leaves = names
    return out


# -- jobs -------------------------------------------------------------------------------------------------------------


def _terms(draw: Draw, job: Doc) -> None:
    """Terms that pending and running jobs share."""
    rng = draw.rng
    if draw.maybe(0.35):
        job["timeout"] = rng.choice([600, HOUR, 4 * HOUR, 20 * HOUR])
    if draw.maybe(0.4):
        job["restart_cost"] = rng.choice([60, 300, 1800])
    job["resumable"] = draw.maybe(0.7)
    if draw.maybe(0.5):
        job["priority"] = rng.choice(["low", "normal", "high", "urgent"])
    if draw.with_cpus and draw.maybe(0.7):
        job["resources_per_replica"] = {"cpu": job["gpus_per_replica"] * rng.choice([1, 2, 4, 6])}


def _running(draw: Draw) -> list[Doc]:
    out = []
    for _ in range(draw.rng.choice([2, 2, 3, 3, 4] if draw.contested else [0, 1, 2, 2, 3])):
        job = _one_running(draw)
        if job is not None:
            out.append(job)
    return out


def _one_running(draw: Draw) -> Doc | None:
    rng = draw.rng
    job: Doc = {"budget": rng.choice(draw.leaves), "gpus_per_replica": rng.choice([1, 1, 2, 2, 3, 4])}
    if draw.contested and draw.rich and draw.maybe(0.7):
        job["budget"] = rng.choice(draw.rich)
    wanted = rng.choice([1, 1, 1, 2, 2, 3, 4])
    _terms(draw, job)
    need = job.get("resources_per_replica", {}).get("cpu", 0)
    exclusive = draw.maybe(0.06)
    placement = _take(draw, job["gpus_per_replica"], wanted, need, exclusive)
    if not placement:
        return None
    job["replicas"] = len(placement)
    if exclusive:
        job["exclusive_nodes"] = True
    kind = rng.choice(["protected", "past", "past", "past", "borrowed", "borrowed", "promotable", "promotable", "new"])
    age = rng.choice([60, 1200, 2 * HOUR, 5 * HOUR, 30 * HOUR])
    run: Doc = {"mode": "borrowed" if kind in ("borrowed", "promotable") else "allocated", "placement": placement}
    run["started_at"] = at(age)
    job["min_runtime"] = {"borrowed": 0, "protected": min(8 * HOUR, age + HOUR)}.get(kind, min(age, HOUR))
    if kind == "protected" and age >= 8 * HOUR:
        run["allocated_since"] = at(HOUR)
    if kind == "promotable":
        job["funding"] = "any"
    if kind == "new":
        run["placed_at"], run["started_at"] = at(rng.choice([60, 2000])), None
        job["min_runtime"] = HOUR
    elif draw.maybe(0.4):
        run["checkpointed_at"] = at(rng.randrange(age))
    if draw.maybe(0.06):
        run["stopping"] = True
    job["submitted_at"], job["running"] = at(age + rng.choice([0, 600])), run
    return job


def _take(draw: Draw, gpus: int, wanted: int, cpus: int, exclusive: bool) -> list[Doc]:
    """Places for some replicas in one pool; as many as fit."""
    out: list[Doc] = []
    names = [n["name"] for n in draw.nodes if n["name"] not in draw.shut]
    draw.rng.shuffle(names)
    pool = ""
    for name in names:
        node = next(n for n in draw.nodes if n["name"] == name)
        whole = len(draw.free[name]) == node["gpus"]
        if (pool and node["gpu_type"] != pool) or (exclusive and not whole):
            continue
        while len(out) < wanted and len(draw.free[name]) >= gpus and draw.cpus.get(name, 10**6) >= cpus:
            free = draw.free[name]
            if draw.maybe(0.3):
                draw.rng.shuffle(free)
            taken, draw.free[name] = sorted(free[:gpus]), sorted(free[gpus:])
            if name in draw.cpus:
                draw.cpus[name] -= cpus
            out.append({"node": name, "gpus": gpus if draw.unknown and draw.maybe(0.7) else taken})
            pool = node["gpu_type"]
            if exclusive:
                draw.shut.add(name)
    return out


def _pending(draw: Draw) -> list[Doc]:
    return [_one_pending(draw) for _ in range(draw.rng.choice([1, 2, 2, 3, 3, 4]))]


def _one_pending(draw: Draw) -> Doc:
    rng = draw.rng
    big = max(n["gpus"] for n in draw.nodes)
    each = min(rng.choice([1, 1, 2, 2, 3, 4, 6, big]), big)
    room = sum(n["gpus"] for n in draw.nodes) // each
    job: Doc = {
        "budget": rng.choice(draw.poor if draw.contested and draw.poor and draw.maybe(0.7) else draw.leaves),
        "gpus_per_replica": each,
        "replicas": min(rng.choice([1, 1, 1, 2, 2, 3, 4]), max(1, room)),
        "submitted_at": at(rng.choice([60, 60, 300, 900, 7200])),
    }
    _terms(draw, job)
    funding = rng.choice(["allocated", "allocated", "allocated", "borrowed", "any", "any"])
    job["min_runtime"] = 0 if funding == "borrowed" else rng.choice([300, HOUR, 8 * HOUR])
    if funding == "any":
        job["funding"] = "any"
    if draw.racks and draw.maybe(0.5):
        job["topology"] = rng.choice([{"required": "rack"}, {"preferred": "rack"}, {"preferred": "rack"}])
    elif job["replicas"] > 1 and draw.maybe(0.12):
        job["topology"] = {"required": "node"}
    if job["replicas"] > 1 and draw.maybe(0.25):
        job["max_replicas_per_node"] = rng.choice([1, 1, 2])
    if draw.maybe(0.1):
        job["exclusive_nodes"] = True
    if draw.grouped and draw.maybe(0.6):
        job["same_gpu_group"] = True
    if draw.maybe(0.15):
        job["node_selector"] = {"zone": rng.choice("ew")}
    if draw.maybe(0.15):
        job["exclude_nodes"] = [rng.choice(draw.nodes)["name"]]
    if draw.maybe(0.15):
        job["gpu_types"] = [rng.choice(draw.nodes)["gpu_type"]]
    return job


def _promises(draw: Draw, jobs: list[Doc]) -> list[Doc]:
    """A reservation of the last answer for one of the pending allocated jobs."""
    fitting = [j for j in jobs if "running" not in j and j["min_runtime"] and "topology" not in j]
    if not fitting:
        return []
    job = draw.rng.choice(fitting)
    ready = [n for n in draw.nodes if n.get("state", "ready") == "ready"]
    held, slots = [], 0
    draw.rng.shuffle(ready)
    for node in ready:
        if slots < job["replicas"] and node["gpus"] >= job["gpus_per_replica"]:
            held.append(node["name"])
            slots += node["gpus"] // job["gpus_per_replica"]
    if slots < job["replicas"]:
        return []
    ahead = draw.rng.choice([-60, 600, HOUR, 9 * HOUR])
    domain = {"level": "cluster", "name": "tiny"}
    return [{"job": job["id"], "domain": domain, "nodes": sorted(held), "starts_by": at(-ahead)}]
