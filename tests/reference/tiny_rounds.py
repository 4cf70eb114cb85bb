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
    theme: str = ""
    contested: bool = False
    poor: list[str] = field(default_factory=list)
    rich: list[str] = field(default_factory=list)

    def maybe(self, probability: float, theme: str = "") -> bool:
        """True with a probability, a high one where the round has a theme for it."""
        return self.rng.random() < (0.75 if theme and theme == self.theme else probability)


THEMES = (
    *("", "floor", "caps", "terms", "spread", "cpu", "group", "two-types"),
    *("either", "either", "promise", "promise", "promise", "rack", "rack", "rack", "protected", "protected"),
)
"""What a round is mostly about; those that bind rarely by chance come more often."""


def tiny_doc(seed: int, *, reservations: bool = False) -> Doc:
    """A round of 1-4 nodes and 2-6 jobs; without reservations of this round by default, but with some of the last."""
    draw = Draw(Random(seed))
    draw.theme = THEMES[seed % len(THEMES)]
    draw.contested = draw.maybe(0.7) or draw.theme == "protected"
    _cluster(draw)
    budgets = _budgets(draw)
    jobs = _running(draw) + _pending(draw)
    for number, job in enumerate(jobs):
        job["id"] = f"j{number}"
    policy: Doc = {"reservations": 4 if reservations else 0, "charge_horizon": draw.rng.choice([HOUR, 600, 50_000])}
    policy["preempt_under_share"] = draw.maybe(0.15)
    if draw.maybe(0.15):
        policy["max_preempted_gpus"] = draw.rng.choice([0, 1, 2, 3, 4])
    previous = []
    if draw.maybe(0.15, "promise"):
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
    count = rng.choice([1, 2, 3, 3, 4, 4]) + (draw.theme in ("", "rack"))
    draw.racks = count > 1 and draw.maybe(0.4, "rack")
    draw.grouped, draw.with_cpus, draw.unknown = draw.maybe(0.1, "group"), draw.maybe(0.2, "cpu"), draw.maybe(0.1)
    types = ["a100", "h100"] if count > 1 and draw.maybe(0.15, "two-types") else ["h100"]
    usual = rng.choice([2, 3, 4, 4, 4, 6, 8] if count < 3 else [2, 3, 4, 4])
    for i in range(count):
        gpus = usual if draw.maybe(0.75) else rng.choice([1, 2, 3, 4])
        node: Doc = {"name": f"n{i}", "gpu_type": types[i % len(types)], "gpus": gpus}
        if draw.racks:
            node["domains"] = {"rack": f"r{i * 2 // count}"}
        if count > 1 and i and draw.maybe(0.08):
            node["state"] = rng.choice(["draining", "down"])
        if draw.maybe(0.3, "terms"):
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
            ratio = rng.choice([0, 0.2, 0.97, 0.999] if i else [1.002, 1.01, 1.1, 3])
            if draw.maybe(0.1, "floor"):
                ratio = rng.choice([0.99, 0.996, 1.0] if i else [1.001, 1.002, 1.01])
        (draw.rich if ratio > 1 else draw.poor).append(name)
        row: Doc = {"name": name, "weight": rng.choice([1, 1, 2, 3]), "charged_gpu_seconds": int(OWED * ratio)}
        if draw.maybe(0.95):
            row["owed_gpu_seconds"] = OWED
        if tree and (i == 0 or draw.maybe(0.5)):
            row["parent"] = "p"
        if draw.maybe(0.1, "caps"):
            row["max_gpus"] = rng.randrange(0, 9)
        if draw.maybe(0.15, "caps"):
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
    count = draw.rng.choice([3, 4, 4, 5] if draw.contested else [0, 1, 2, 2, 3])
    if draw.theme in ("rack", "protected", "promise"):
        count = draw.rng.choice([1, 2, 2, 3])
    for _ in range(count):
        job = _one_running(draw)
        if job is not None:
            out.append(job)
    return out


def _one_running(draw: Draw) -> Doc | None:
    rng = draw.rng
    job: Doc = {"budget": rng.choice(draw.leaves), "gpus_per_replica": rng.choice([1, 1, 2, 2, 3, 4])}
    if draw.contested and draw.rich and draw.maybe(0.75):
        job["budget"] = rng.choice(draw.rich)
    wanted = rng.choice([1, 1, 2, 2, 3, 4] if draw.contested else [1, 1, 1, 2, 2, 3])
    if draw.theme in ("rack", "protected", "promise") and draw.maybe(0.8):
        job["gpus_per_replica"], wanted = 1, rng.choice([1, 1, 2])
    _terms(draw, job)
    need = job.get("resources_per_replica", {}).get("cpu", 0)
    exclusive = draw.maybe(0.06)
    placement = _take(draw, job["gpus_per_replica"], wanted, need, exclusive)
    if not placement:
        return None
    job["replicas"] = len(placement)
    if exclusive:
        job["exclusive_nodes"] = True
    kinds = ["protected", "past", "past", "past", "borrowed", "borrowed", "promotable", "promotable", "new"]
    kind = rng.choice(kinds)
    if draw.theme in ("protected", "promise") and draw.maybe(0.75):
        kind = "protected"
    if draw.maybe(0, "either"):
        kind = "promotable"
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
    jobs = [_one_pending(draw) for _ in range(draw.rng.choice([2, 2, 3, 3, 4]))]
    if draw.maybe(0, "promise") and draw.poor:
        _one_gang_and_small_ones(draw, jobs)
    return jobs


def _one_gang_and_small_ones(draw: Draw, jobs: list[Doc]) -> None:
    """The first is a gang with the best claim that wants whole nodes, the others are small and stay long."""
    for number, job in enumerate(jobs):
        for key in ("topology", "funding", "max_replicas_per_node", "exclusive_nodes", "exclude_nodes"):
            job.pop(key, None)
        for key in ("gpu_types", "node_selector", "resources_per_replica", "same_gpu_group"):
            job.pop(key, None)
        job["min_runtime"] = HOUR
        if number:
            job["gpus_per_replica"], job["replicas"] = 1, draw.rng.choice([1, 1, 2])
            job["budget"] = draw.rng.choice(draw.leaves)
            if draw.maybe(0.7):
                job.pop("timeout", None)
            continue
        job["budget"], job["priority"] = draw.rng.choice(draw.poor), "urgent"
        job["gpus_per_replica"] = min(n["gpus"] for n in draw.nodes)
        pools = [n["gpu_type"] for n in draw.nodes if n.get("state", "ready") == "ready"]
        job["replicas"] = min(3, max(map(pools.count, pools)))


def _one_pending(draw: Draw) -> Doc:
    rng = draw.rng
    big = max(n["gpus"] for n in draw.nodes)
    each = min(rng.choice([1, 1, 2, 2, 3, 4, 6, big]), big)
    if draw.maybe(0, "protected"):
        each = big
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
    if draw.contested and draw.maybe(0.6):
        job["replicas"] = max(1, min(room, rng.choice([1, 2, 2, 3])))
        funding = rng.choice(["allocated", "allocated", "any"])
        job["min_runtime"] = rng.choice([300, HOUR])
    if funding == "any":
        job["funding"] = "any"
    if draw.maybe(0, "either"):
        job["funding"], job["min_runtime"] = "any", 300
    if draw.racks and draw.maybe(0.5):
        job["topology"] = rng.choice([{"required": "rack"}, {"preferred": "rack"}])
        job["gpus_per_replica"] = each = min(each, rng.choice([1, 2, 2, 4]))
        rack = max(sum(n["gpus"] // each for n in draw.nodes if n["domains"]["rack"] == r) for r in ("r0", "r1"))
        job["replicas"] = min(rng.choice([2, 3, rack - 1, rack, rack]), max(1, rack)) or 1
    elif job["replicas"] > 1 and draw.maybe(0.12):
        job["topology"] = {"required": "node"}
    if job["replicas"] > 1 and draw.maybe(0.2, "spread"):
        job["max_replicas_per_node"] = rng.choice([1, 1, 2])
    if draw.maybe(0.06, "spread"):
        job["exclusive_nodes"] = True
    if draw.grouped and draw.maybe(0.6):
        job["same_gpu_group"] = True
    if draw.maybe(0.1, "terms"):
        job["node_selector"] = {"zone": rng.choice("ew")}
    if draw.maybe(0.1, "terms"):
        job["exclude_nodes"] = [rng.choice(draw.nodes)["name"]]
    if draw.maybe(0.15):
        job["gpu_types"] = [rng.choice(draw.nodes)["gpu_type"]]
    return job


def _promises(draw: Draw, jobs: list[Doc]) -> list[Doc]:
    """A reservation of the last answer for one of the pending allocated jobs."""
    fitting = [j for j in jobs if "running" not in j and j["min_runtime"] and "topology" not in j]
    if not fitting:
        return []
    job = max(fitting, key=lambda j: j["replicas"] * j["gpus_per_replica"])
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
    if ahead > 0 and draw.maybe(0.7):
        # What runs there leaves in time: a promise that can be kept.
        for other in jobs:
            running = other.get("running")
            if running and running["mode"] == "allocated" and any(e["node"] in held for e in running["placement"]):
                began = datetime.fromisoformat(running["started_at"] or running["placed_at"])
                other["timeout"] = int((datetime.fromisoformat(at(0)) - began).total_seconds()) + ahead
    domain = {"level": "cluster", "name": "tiny"}
    return [{"job": job["id"], "domain": domain, "nodes": sorted(held), "starts_by": at(-ahead)}]
