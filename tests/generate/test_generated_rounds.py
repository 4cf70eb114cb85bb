"""A generated round is repeatable, possible, and has the statistics it promises."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from hashlib import sha256

import pytest

from cpalloc.generate import Family, GeneratorConfig, generate, generate_doc
from cpalloc.schema.validate import parse_round

from .rounds import (
    Doc,
    allocated,
    demand,
    gangs,
    healthy,
    held,
    in_service,
    leaves,
    pending,
    placements,
    protection_age,
    running,
    seconds_ago,
    size,
)

CASES = [
    GeneratorConfig(nodes=nodes, family=family, seed=seed)
    for family in Family
    for nodes in (8, 64, 256)
    for seed in (0, 1, 2)
] + [
    GeneratorConfig(nodes=256, family=Family.MIXED, odd_sizes=0.3, cpu_bound=0.4, seed=7),
    GeneratorConfig(nodes=60, gpus_per_node=4, nodes_per_rack=7, racks_per_block=3, family=Family.GANG_HEAVY),
    GeneratorConfig(nodes=1, gpus_per_node=1, budgets=1),
    GeneratorConfig(nodes=64, down=0.2, draining=0.2, unhealthy=0.1),
]


@pytest.fixture(params=CASES, ids=lambda c: f"{c.family}-{c.nodes}-{c.seed}")
def case(request: pytest.FixtureRequest) -> tuple[GeneratorConfig, Doc]:
    return request.param, generate_doc(request.param)


def text(config: GeneratorConfig) -> str:
    return json.dumps(generate_doc(config), sort_keys=True)


@pytest.mark.parametrize("family", list(Family))
def test_same_seed_same_bytes_another_seed_another_round(family: Family) -> None:
    assert text(GeneratorConfig(family=family)) == text(GeneratorConfig(family=family))
    assert text(GeneratorConfig(family=family)) != text(GeneratorConfig(family=family, seed=1))


def test_bytes_are_the_same_everywhere() -> None:
    """Fails when the generator changes on purpose too: benchmarks before and after are then different instances."""
    digests = {str(f): sha256(text(GeneratorConfig(family=f)).encode()).hexdigest()[:16] for f in Family}
    assert digests == {"mixed": "62801857290272ae", "gang-heavy": "efdc1e3b8e5e3d38"}


def test_is_a_valid_request(case: tuple[GeneratorConfig, Doc]) -> None:
    config, doc = case
    assert len(parse_round(doc).jobs) == len(doc["jobs"])
    assert generate(config).options.time_limit == 5


def test_no_gpu_is_used_twice_or_out_of_service(case: tuple[GeneratorConfig, Doc]) -> None:
    _, doc = case
    nodes = {n["name"]: n for n in doc["cluster"]["nodes"]}
    used: set[tuple[str, int]] = set()
    for job, replica in placements(doc):
        node = nodes[replica["node"]]
        assert node.get("state") != "down"
        assert len(replica["gpus"]) == job["gpus_per_replica"]
        assert node["gpu_type"] in job.get("gpu_types", [node["gpu_type"]])
        for device in replica["gpus"]:
            assert 0 <= device < node["gpus"]
            assert device not in node.get("unhealthy_gpus", ())
            assert (replica["node"], device) not in used
            used.add((replica["node"], device))
    assert len(used) == held(doc)


def test_no_node_gives_more_cpus_than_it_has(case: tuple[GeneratorConfig, Doc]) -> None:
    _, doc = case
    asked: Counter[str] = Counter()
    for job, replica in placements(doc):
        asked[replica["node"]] += job.get("resources_per_replica", {}).get("cpu", 0)
    assert all(asked[n["name"]] <= n.get("resources", {}).get("cpu", 0) for n in doc["cluster"]["nodes"])


def test_a_gang_has_one_pool_and_lies_where_it_must(case: tuple[GeneratorConfig, Doc]) -> None:
    _, doc = case
    nodes = {n["name"]: n for n in doc["cluster"]["nodes"]}
    for job in running(doc):
        on = [nodes[r["node"]] for r in job["running"]["placement"]]
        assert len(on) == job["replicas"]
        assert len({n["gpu_type"] for n in on}) == 1
        level = job.get("topology", {}).get("required")
        assert level is None or len({n["domains"][level] for n in on}) == 1


def test_domains_are_a_tree_and_racks_have_one_type(case: tuple[GeneratorConfig, Doc]) -> None:
    config, doc = case
    racks: dict[str, list[Doc]] = defaultdict(list)
    for node in doc["cluster"]["nodes"]:
        racks[node["domains"]["rack"]].append(node)
        assert node["name"].startswith(node["domains"]["rack"] + "/")
    for members in racks.values():
        assert len(members) <= config.nodes_per_rack
        assert len({(n["domains"]["block"], n["gpu_type"]) for n in members}) == 1


def test_demand_and_fill(case: tuple[GeneratorConfig, Doc]) -> None:
    config, doc = case
    tolerance = 8 / in_service(doc) + 0.001
    assert demand(doc) == pytest.approx(config.demand, abs=tolerance)
    up = sum(healthy(n) for n in doc["cluster"]["nodes"] if n.get("state") != "down")
    if config.nodes >= 8:
        assert 2 - tolerance <= demand(doc) <= 3 + tolerance
        assert held(doc) / up == pytest.approx(config.fill, abs=0.025)


def test_instants_fit_together(case: tuple[GeneratorConfig, Doc]) -> None:
    _, doc = case
    for job in doc["jobs"]:
        run = job.get("running", {})
        chain = [job["submitted_at"], run.get("placed_at"), run.get("started_at")]
        ages = [seconds_ago(doc, i) for i in chain if i]
        assert ages == sorted(ages, reverse=True)
        assert ages[-1] >= 0
        assert ages[0] <= 3 * 86_400
        started = run.get("started_at") and seconds_ago(doc, run["started_at"])
        if started:
            assert 120 <= started <= 30 * 3_600
            assert started < job.get("timeout", 10**9)
            assert 0 <= seconds_ago(doc, run.get("checkpointed_at", doc["now"])) <= started
            assert 0 < seconds_ago(doc, run.get("allocated_since", run["started_at"])) <= started
        assert job["min_runtime"] if run.get("mode") == "allocated" else True
        assert "min_runtime" not in job or job["min_runtime"] <= job.get("timeout", 10**9)


def test_budgets_have_been_charged_what_they_run(case: tuple[GeneratorConfig, Doc]) -> None:
    _, doc = case
    accrued: Counter[str] = Counter()
    holds: dict[str, Counter[str]] = {"allocated": Counter(), "borrowed": Counter()}
    for job in running(doc):
        holds[job["running"]["mode"]][job["budget"]] += size(job)
    for job in allocated(doc):
        accrued[job["budget"]] += size(job) * int(protection_age(doc, job))
    for leaf, _ in leaves(doc):
        assert leaf["charged_gpu_seconds"] >= accrued[leaf["name"]]
        assert leaf.get("max_gpus", 10**9) >= holds["allocated"][leaf["name"]]
        assert leaf.get("max_borrowed_gpus", 10**9) >= holds["borrowed"][leaf["name"]]
    assert {j["budget"] for j in doc["jobs"]} <= {leaf["name"] for leaf, _ in leaves(doc)}


@pytest.mark.parametrize("family", list(Family))
def test_ratios_spread_on_both_sides_of_one(family: Family) -> None:
    rows = leaves(generate_doc(GeneratorConfig(nodes=256, family=family)))
    ratios = sorted(leaf["charged_gpu_seconds"] / owed for leaf, owed in rows)
    assert len(ratios) == 15
    assert 0.25 <= ratios[0] <= 0.4
    assert 1.6 <= ratios[-1] <= 2.2
    assert sum(r > 1 for r in ratios) in range(3, 9)
    assert sum(leaf["charged_gpu_seconds"] for leaf, _ in rows) <= 1.3 * sum(owed for _, owed in rows)


@pytest.mark.parametrize("seed", range(3))
def test_about_150_jobs_on_64_nodes(seed: int) -> None:
    for family in Family:
        assert 110 <= len(generate_doc(GeneratorConfig(family=family, seed=seed))["jobs"]) <= 200


@pytest.mark.parametrize("family", list(Family))
def test_a_thousand_nodes(family: Family) -> None:
    doc = generate_doc(GeneratorConfig(nodes=1_000, family=family))
    assert 1_400 <= len(doc["jobs"]) <= 2_500
    kept = allocated(doc)
    protected = sum(protection_age(doc, j) < j["min_runtime"] for j in kept)
    assert protected / len(kept) == pytest.approx(0.5, abs=0.08)
    borrowed = sum(size(j) for j in running(doc) if j["running"]["mode"] == "borrowed")
    assert borrowed / held(doc) == pytest.approx(0.25, abs=0.02)
    queue = Counter(j["priority"] for j in pending(doc))
    assert set(queue) == {"low", "normal", "high", "urgent", "immediate"}
    assert queue["high"] + queue["urgent"] + queue["immediate"] > len(pending(doc)) / 2


def test_sizes_are_heavy_tailed() -> None:
    """Few gangs hold most of the GPUs, and the mean lies far above the median."""
    for family, least in ((Family.MIXED, 0.55), (Family.GANG_HEAVY, 0.7)):
        jobs = generate_doc(GeneratorConfig(nodes=1_000, family=family))["jobs"]
        sizes = sorted(map(size, jobs))
        total = sum(sizes)
        assert sum(sizes[-len(sizes) // 5 :]) > 0.7 * total
        assert total / len(sizes) > 2 * sizes[len(sizes) // 2]
        assert sum(map(size, gangs(jobs))) > least * total
        assert sizes[0] == 1
        assert {1, 2, 4, 8, 16, 32, 64, 128, 256} <= set(sizes)


@pytest.mark.parametrize("seed", range(3))
def test_gangs_reach_a_quarter_of_a_gang_heavy_cluster(seed: int) -> None:
    sizes = [size(j) for j in generate_doc(GeneratorConfig(family=Family.GANG_HEAVY, seed=seed))["jobs"]]
    assert max(sizes) == 128


def test_gangs_are_contiguous_where_they_fit() -> None:
    doc = generate_doc(GeneratorConfig(nodes=1_000))
    rack = {n["name"]: n["domains"]["rack"] for n in doc["cluster"]["nodes"]}
    small = [j for j in gangs(running(doc)) if j["replicas"] <= 8]
    together = [j for j in small if len({rack[r["node"]] for r in j["running"]["placement"]}) == 1]
    assert len(together) > 0.85 * len(small)


def test_required_domains_could_hold_the_gang() -> None:
    doc = generate_doc(GeneratorConfig(nodes=256, required_topology=1, misfits=0))
    whole: Counter[tuple[str, str, str]] = Counter()
    for node in doc["cluster"]["nodes"]:
        if node.get("state", "ready") == "ready" and healthy(node) == 8:
            whole.update((level, node["domains"][level], node["gpu_type"]) for level in ("rack", "block"))
    required = [j for j in gangs(pending(doc)) if "required" in j.get("topology", {})]
    assert {j["topology"]["required"] for j in required} == {"rack", "block"}
    for job in required:
        level, types = job["topology"]["required"], job.get("gpu_types")
        assert any(
            count >= job["replicas"]
            for (lv, _, gpu), count in whole.items()
            if lv == level and (types is None or gpu in types)
        )


def test_ten_thousand_nodes() -> None:
    doc = generate_doc(GeneratorConfig(nodes=10_000))
    assert len(doc["jobs"]) > 10_000
