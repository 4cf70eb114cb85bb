from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.sim.traces.files import issues_of

from cpalloc.schema.types import Funding, JobKind, NodeState
from cpalloc.sim.lab import LabConfig, load_lab, make_lab
from cpalloc.sim.lab.config import Estimate, Spread
from cpalloc.sim.lab.jobs import estimates_s, leaf_shares
from cpalloc.sim.lab.rhythm import hourly_rhythm, team_activity
from cpalloc.sim.lab.streams import draw_spread, stream
from cpalloc.sim.workload import Provenance, WorkJob, Workload
from cpalloc.topology.cluster import Cluster

FILE = Path(__file__).parents[2] / "examples" / "lab.toml"
DAY_S = 86_400


@pytest.fixture(scope="module")
def config() -> LabConfig:
    return load_lab(FILE)


@pytest.fixture(scope="module")
def lab(config: LabConfig) -> Workload:
    return make_lab(config, 1)


@pytest.fixture(scope="module")
def short(config: LabConfig) -> LabConfig:
    """The same lab for three days: quick to draw."""
    return config.model_copy(update={"days": 3})


def of_class(workload: Workload, name: str) -> list[WorkJob]:
    return [job for job in workload.jobs if job.id.startswith(f"{name}-")]


def offered(workload: Workload, config: LabConfig) -> float:
    gpus = config.cluster.nodes * config.cluster.gpus_per_node
    return sum(job.size * job.work_s for job in workload.jobs) / (gpus * config.days * DAY_S)


def test_it_is_labelled_as_constructed(lab: Workload) -> None:
    assert lab.provenance is Provenance.CONSTRUCTED
    assert "seed 1" in lab.notes[0]


def test_the_stated_demand_is_offered(config: LabConfig, lab: Workload) -> None:
    for workload in (lab, make_lab(config, 2)):
        assert offered(workload, config) == pytest.approx(config.demand, rel=0.02)


def test_each_class_has_its_stated_part(config: LabConfig, lab: Workload) -> None:
    assert len(of_class(lab, "debug")) == 150 * 30
    total = sum(job.size * job.work_s for job in lab.jobs)
    people = sum(job.size * job.work_s for name in ("debug", "interactive") for job in of_class(lab, name))
    shares = {name: cls.demand_share for name, cls in config.classes.items() if cls.demand_share}
    for name, share in shares.items():
        got = sum(job.size * job.work_s for job in of_class(lab, name)) / (total - people)
        assert got == pytest.approx(share / sum(shares.values()), abs=0.01), name


def test_the_number_of_jobs_stays_simulable(lab: Workload) -> None:
    assert 12_000 < len(lab.jobs) < 24_000


def test_seeds(short: LabConfig) -> None:
    one, other = make_lab(short, 1), make_lab(short, 2)
    assert make_lab(short, 1) == one
    assert other.jobs != one.jobs
    assert other.node_events != one.node_events
    assert (other.cluster, other.budgets) == (one.cluster, one.budgets)


def test_a_knob_leaves_the_rest_alone(short: LabConfig) -> None:
    whole = make_lab(short, 1)
    calm = make_lab(short.model_copy(update={"failures": short.failures.model_copy(update={"per_node_month": 0.0})}), 1)
    assert calm.jobs == whole.jobs
    assert len(calm.node_events) < len(whole.node_events)


def test_jobs_are_in_order_and_within_the_days(config: LabConfig, lab: Workload) -> None:
    keys = [(job.submitted_s, job.order, job.id) for job in lab.jobs]
    assert keys == sorted(keys)
    assert [job.order for job in lab.jobs] == list(range(len(lab.jobs)))
    assert len({job.id for job in lab.jobs}) == len(lab.jobs)
    assert lab.jobs[0].submitted_s >= 0
    assert lab.jobs[-1].submitted_s < config.days * DAY_S


def test_the_cluster_and_the_tree(lab: Workload) -> None:
    cluster = Cluster.from_wire(lab.cluster)
    assert len(cluster.nodes) == 128
    racks = Counter(node.domains["rack"] for node in cluster.nodes)
    blocks = Counter(node.domains["block"] for node in cluster.nodes)
    assert set(racks.values()) == {8}
    assert set(blocks.values()) == {32}
    leaves = {b.name for b in lab.budgets if b.parent is not None}
    assert len(leaves) == 15
    assert {job.budget for job in lab.jobs} == leaves


def test_what_each_class_asks_for(lab: Workload) -> None:
    for job in of_class(lab, "debug"):
        assert job.size <= 8
        assert 0 < job.min_runtime_s <= 900
        assert job.work_s <= 1_800
    assert all(job.kind is JobKind.INTERACTIVE and job.size <= 8 for job in of_class(lab, "interactive"))
    # by the policy's definition at most 8 GPUs and 15 minutes are debug: nothing else may look like it
    assert all(job.min_runtime_s > 900 for job in of_class(lab, "single"))
    assert all(16 <= job.size < 128 for job in of_class(lab, "multi"))
    large = of_class(lab, "large")
    assert all(job.size >= 128 for job in large)
    assert max(job.size for job in large) >= 768
    assert max(job.min_runtime_s for job in large) == 8 * 3_600
    assert all(job.funding is Funding.BORROWED and job.min_runtime_s == 0 for job in of_class(lab, "sweep"))
    assert all(job.min_runtime_s <= 8 * 3_600 for job in lab.jobs)


def test_shares_of_traits_are_as_stated(config: LabConfig, lab: Workload) -> None:
    multi = of_class(lab, "multi")
    assert np.mean([job.resumable for job in multi]) == pytest.approx(config.classes["multi"].resumable, abs=0.03)
    assert np.mean([job.funding is Funding.ANY for job in multi]) == pytest.approx(0.30, abs=0.03)
    assert np.mean([job.preferred_level == "rack" for job in multi]) == pytest.approx(0.7, abs=0.03)
    assert np.mean([job.required_level == "block" for job in multi]) == pytest.approx(0.1, abs=0.03)
    assert all((job.restart_cost_s > 0) == job.resumable for job in multi)
    inflating = np.mean([job.inflates for job in lab.jobs if job.budget == "agents/reasoning"])
    assert inflating == pytest.approx(0.7, abs=0.05)


def test_sweeps_come_in_groups(lab: Workload) -> None:
    groups = Counter((job.user, job.submitted_s) for job in of_class(lab, "sweep"))
    assert np.median(list(groups.values())) >= 4


def test_nights_and_weekends_are_quieter(lab: Workload) -> None:
    debug = of_class(lab, "debug")
    hours = Counter(job.submitted_s // 3_600 % 24 for job in debug)
    assert sum(hours[h] for h in range(4, 8)) < 0.35 * sum(hours[h] for h in range(14, 18))
    days = Counter(job.submitted_s // DAY_S % 7 for job in lab.jobs)  # the lab begins on a Monday
    assert days[5] + days[6] < 0.75 * (days[1] + days[2])


def test_rhythm_follows_the_start(config: LabConfig) -> None:
    rate = hourly_rhythm(config)
    assert rate.mean() == pytest.approx(1)
    later = config.model_copy(update={"start": config.start.replace(hour=6)})
    assert hourly_rhythm(later)[0] == pytest.approx(rate[6], rel=0.02)


def test_idle_weeks_and_bursts(config: LabConfig) -> None:
    idle = config.activity.model_copy(update={"idle_week": 0.5, "bursts_per_week": 0.0})
    rate = team_activity(stream(3, "t"), idle, 100 * 168).reshape(100, 168)
    assert set(np.unique(rate)) == {0.0, 1.0}
    assert 30 < (rate[:, 0] == 0).sum() < 70
    assert (rate == rate[:, :1]).all()
    never = config.activity.model_copy(update={"idle_week": 1.0})
    assert (team_activity(stream(3, "t"), never, 168) == 1).all()
    bursty = config.activity.model_copy(update={"idle_week": 0.0, "bursts_per_week": 3.0})
    assert team_activity(stream(3, "t"), bursty, 5_000).max() >= 2


def test_spreads_have_their_median_and_ends() -> None:
    drawn = draw_spread(stream(1, "x"), Spread(median=1_000, sigma=1.0, most=20_000, least=100), 20_000)
    assert np.median(drawn) == pytest.approx(1_000, rel=0.05)
    assert drawn.min() == 100
    assert drawn.max() == 20_000


def test_estimates_are_never_below_the_work_and_are_round() -> None:
    estimate = Estimate(timeout_share=1, over_median=2, over_sigma=1, least=1_800)
    intended = np.array([1, 1_000, 5_000, 90_000] * 100)
    estimates = estimates_s(stream(1, "e"), estimate, intended)
    assert (estimates >= intended).all()
    assert (estimates >= 1_800).all()
    assert (estimates[estimates > 3_600] % 3_600 == 0).all()
    assert (estimates % 300 == 0).all()


def test_nodes_leave_and_come_back(config: LabConfig, lab: Workload) -> None:
    states: dict[str, NodeState] = {}
    for event in lab.node_events:
        before = states.get(event.node, NodeState.READY)
        if event.state is NodeState.READY:
            assert before is NodeState.DOWN, event
        elif event.state is NodeState.DRAINING:
            assert before is NodeState.READY, event
        states[event.node] = event.state
    assert set(states.values()) == {NodeState.READY}
    times = [event.at_s for event in lab.node_events]
    assert times == sorted(times)


def test_racks_are_drained_whole_and_failures_come_at_their_rate(config: LabConfig) -> None:
    singles = 0
    for seed in range(1, 6):
        one_class = {"debug": config.classes["debug"].model_copy(update={"jobs_per_day": 1.0})}
        workload = make_lab(config.model_copy(update={"classes": one_class}), seed)
        rack = {node.name: node.domains["rack"] for node in workload.cluster.nodes}
        draining = Counter((e.at_s, rack[e.node]) for e in workload.node_events if e.state is NodeState.DRAINING)
        whole = {key for key, count in draining.items() if count == 8}
        assert len(whole) == 6
        assert {at % DAY_S for at, _ in whole} == {9 * 3_600}
        singles += sum(e.state is NodeState.DOWN for e in workload.node_events) - 6 * 8
    # 0.195 a node and month, 128 nodes, five months: 124.8 on average, a few of them hidden by drains
    assert 95 < singles < 155


def test_shares_multiply_down_the_tree(config: LabConfig) -> None:
    shares = leaf_shares(config)
    assert sum(shares.values()) == pytest.approx(1)
    assert shares["language/pretraining"] == pytest.approx(0.40 * 0.55)


def test_appetite_is_demand_per_share(config: LabConfig, lab: Workload) -> None:
    work: Counter[str] = Counter()
    for job in lab.jobs:
        work[job.budget] += job.size * job.work_s
    shares = leaf_shares(config)
    hungry = work["language/post-training"] / shares["language/post-training"]
    modest = work["science/literature"] / shares["science/literature"]
    assert hungry > 2 * modest


def test_more_people_than_demand_are_refused(config: LabConfig) -> None:
    small = config.model_copy(update={"demand": 0.001})
    assert issues_of(make_lab, small, 1)[0].path == "demand"


EDITS: tuple[tuple[str, Callable[[str], str], str], ...] = (
    ("unknown key", lambda t: t.replace("demand = 2.5", "demand = 2.5\nspeed = 1"), "speed"),
    ("missing key", lambda t: t.replace("demand = 2.5", ""), "demand"),
    ("not a number", lambda t: t.replace("demand = 2.5", 'demand = "much"'), "demand"),
    (
        "duration",
        lambda t: t.replace('work = {median = "PT4M"', 'work = {median = "4 min"', 1),
        "classes.debug.work.median",
    ),
    ("size", lambda t: t.replace("1x1 = 50", "one = 50"), "classes.debug.sizes"),
    ("size of a node", lambda t: t.replace("1x1 = 50", "1x9 = 50"), "classes.debug.sizes.1x9"),
    (
        "both amounts",
        lambda t: t.replace("jobs_per_day = 150", "jobs_per_day = 150\ndemand_share = 0.1"),
        "classes.debug",
    ),
    ("profile", lambda t: t.replace('profile = "trainer"', 'profile = "coach"', 1), "teams[0].profile"),
    ("programme", lambda t: t.replace('programme = "language"', 'programme = "lunch"', 1), "teams[0].programme"),
    ("level", lambda t: t.replace('preferred_level = "rack"', 'preferred_level = "row"'), "classes.multi"),
    ("class in profile", lambda t: t.replace("large = 2.0", "huge = 2.0"), "profiles.trainer.huge"),
    ("hours", lambda t: re.sub(r"hourly = \[34, ", "hourly = [", t), "rhythm.hourly"),
    ("twice", lambda t: t.replace('name = "data"', 'name = "pretraining"'), "teams"),
)


@pytest.mark.parametrize(("edit", "path"), [e[1:] for e in EDITS], ids=[e[0] for e in EDITS])
def test_errors_name_the_key(tmp_path: Path, edit: Callable[[str], str], path: str) -> None:
    text = FILE.read_text(encoding="utf-8")
    broken = tmp_path / "lab.toml"
    broken.write_text(edit(text), encoding="utf-8")
    assert edit(text) != text
    found = issues_of(load_lab, broken)
    assert any(issue.path.startswith(f"lab.toml: {path}") for issue in found), found


def test_a_lab_may_be_json(tmp_path: Path) -> None:
    document = tomllib.loads(FILE.read_text(encoding="utf-8"))
    path = tmp_path / "lab.json"
    path.write_text(json.dumps({**document, "start": document["start"].isoformat()}), encoding="utf-8")
    assert load_lab(path) == load_lab(FILE)
    path.write_text(json.dumps({**document, "start": 5}), encoding="utf-8")
    assert issues_of(load_lab, path)[0].path == "lab.json: start"
    path.write_text("{", encoding="utf-8")
    assert [(issue.code, issue.path) for issue in issues_of(load_lab, path)] == [("json", str(path))]


def test_files_that_are_no_toml(tmp_path: Path) -> None:
    assert issues_of(load_lab, tmp_path / "no.toml")[0].code == "file"
    (tmp_path / "x.toml").write_text("name = ")
    assert issues_of(load_lab, tmp_path / "x.toml")[0].code == "toml"


def test_jobs_do_not_share_what_makes_them_differ(lab: Workload) -> None:
    """Same ask, other work: the trials of a sweep are not one job counted twice."""
    trials = [
        replace(job, id="", order=0, timeout_s=0, inflates=False, wants_opt_out=False) for job in of_class(lab, "sweep")
    ]
    assert len(set(trials)) > 0.95 * len(trials)
