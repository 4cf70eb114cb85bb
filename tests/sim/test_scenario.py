"""Scenarios: how they are read, what is wrong with them, and what they make of a workload."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from pydantic_core import PydanticCustomError

from cpalloc.schema import Budget
from cpalloc.schema import Policy as SitePolicy
from cpalloc.sim.policies.registry import PLACEMENTS, POLICIES, PolicySpec, make_policy
from cpalloc.sim.recipe import Recipe
from cpalloc.sim.run import reweigh, run_scenario, workload_of
from cpalloc.sim.scenario import Scenario, parse_scenario, parse_seeds, parse_span
from cpalloc.sim.simulate import simulate
from cpalloc.sim.what_if import changed, load_what_if, parse_what_if
from cpalloc.sim.workload import BudgetChange, Workload
from sim.traces.files import issues_of, write
from sim.worlds import job, world

EXAMPLES = Path(__file__).parents[2] / "examples"
TRACE = ("id,submitted_s,work_s,replicas,gpus_per_replica,budget", "a,0,60,1,8,x", "b,30,60,2,8,y", "c,90,600,1,1,x")


def told(found: Any) -> list[tuple[str, str]]:
    return [(issue.code, issue.path) for issue in found]


def scenario(**more: Any) -> Scenario:
    return parse_scenario({"name": "s", "workload": "w.csv", "policy": "fifo", **more})


# Lengths of time, and seeds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("8h", 28_800), ("1d12h", 129_600), ("90m", 5_400), ("90min", 5_400), ("1w", 604_800), ("0s", 0), (" 45s ", 45)],
)
def test_lengths_of_time_as_people_write_them(text: str, seconds: int) -> None:
    assert parse_span(text) == seconds


def test_lengths_of_time_as_on_the_wire() -> None:
    assert (parse_span("PT8H"), parse_span(60)) == (28_800, 60)


@pytest.mark.parametrize("value", ["", "8", "8 hours", "h", "12h1d", "1.5h", 1.5, True, None, []])
def test_what_is_no_length_of_time(value: object) -> None:
    with pytest.raises(PydanticCustomError, match="such as 8h, 30d, 1d12h, PT8H"):
        parse_span(value)


def test_seeds() -> None:
    assert parse_seeds("1-3, 8") == (1, 2, 3, 8)
    assert parse_seeds([5, "7-8"]) == (5, 7, 8)
    assert parse_seeds(0) == (0,)


@pytest.mark.parametrize(
    "value", ["", "3-1", "1,1", "a", [], [1.0], True, -1, "1-99999", 2**31, ["1-9999", "10000-10001"]]
)
def test_what_are_no_seeds(value: object) -> None:
    with pytest.raises(PydanticCustomError):
        parse_seeds(value)


# One scenario


def test_all_of_a_scenario_is_read(tmp_path: Path) -> None:
    found = parse_scenario(
        {
            "name": "a quarter fewer nodes",
            "workload": {"path": "t.csv", "nodes": "n.csv", "events": "/e.csv", "recipe": {"surprised": 0.5}},
            "policy": {"name": "priority", "placement": "fgd", "limit_factor": 1.5},
            "seeds": "1-2",
            "until": "30d",
            "submissions": "6d",
            "round_interval": "60s",
            "heartbeat": "10m",
            "warm_up": "2d",
            "prior": "1h",
            "nodes": 0.75,
            "demand": 2,
            "weights": {"x": 3},
            "window": "3d",
            "max_min_runtime": "PT2H",
            "preempt_under_share": True,
            "reservations": 0,
            "tiers": ["shortfall", "preemption", {"name": "idle", "slack": 0.1}],
        },
        folder=tmp_path,
    )
    source = found.workload
    assert (source.path, source.nodes, source.events) == (tmp_path / "t.csv", tmp_path / "n.csv", Path("/e.csv"))
    config = found.config(7)
    assert (config.until_s, config.round_interval_s, config.heartbeat_s) == (2_592_000, 60, 600)
    assert (config.warm_up_s, config.prior_s, config.sample_interval_s, config.seed) == (172_800, 3_600, 3_600, 7)
    assert found.submissions == 518_400
    given = {"window": 259_200, "max_min_runtime": 7_200, "preempt_under_share": True, "reservations": 0}
    tiers = ["shortfall", "preemption", {"name": "idle", "slack": 0.1}]
    assert config.site == SitePolicy.model_validate({**given, "tiers": tiers})
    assert found.policy == PolicySpec(name="priority", placement="fgd", limit_factor=Decimal("1.5"))


def test_what_is_not_said_is_as_simulate_has_it() -> None:
    config = scenario().config(0)
    assert (config.site, config.until_s, config.round_interval_s, config.warm_up_s) == (SitePolicy(), None, 0, 0)


def test_everything_wrong_is_told_at_once() -> None:
    document = {
        "workload": {"path": "t.csv", "recipe": {"surprised": 2.0}, "color": 1},
        "policy": {"name": "fifo", "depth": 3, "placement": "tight"},
        "until": "soon",
        "window": 0,
        "nodes": -1,
        "tiers": ["idle"],
        "weights": {"a": -1},
        "surprise": 1,
    }
    assert set(told(issues_of(parse_scenario, document))) == {
        ("missing", "name"),
        ("range", "workload.recipe.surprised"),
        ("unknown_field", "workload.color"),
        ("unknown_field", "policy.depth"),
        ("unknown_placement", "policy.placement"),
        ("duration", "until"),
        ("range", "window"),
        ("range", "nodes"),
        ("tier_order", "tiers"),
        ("range", "weights.a"),
        ("unknown_field", "surprise"),
    }


def test_a_lab_takes_no_recipe() -> None:
    document = {"name": "s", "policy": "fifo", "workload": {"path": "lab.toml", "recipe": {"teams": 3}}}
    assert told(issues_of(parse_scenario, document)) == [("recipe", "workload.recipe")]


def test_a_policy_that_is_none_names_those_there_are() -> None:
    (issue,) = issues_of(scenario, policy="fifoo")
    assert (issue.code, issue.path) == ("unknown_policy", "policy.name")
    assert all(name in issue.message for name in POLICIES)


# Policies by name


@pytest.mark.parametrize("name", [n for n in POLICIES if n not in ("cpalloc", "fair-share")])
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_policies_are_made_as_told(name: str, placement: str) -> None:
    policy = make_policy(PolicySpec(name=name, placement=placement))
    assert policy.name == name
    assert policy._placement.name == placement  # type: ignore[attr-defined]
    assert policy is not make_policy(PolicySpec(name=name, placement=placement))


def test_policies_that_solve_are_made_as_told() -> None:
    fair = make_policy(PolicySpec(name="fair-share", depth=9))
    assert (fair.name, fair._window._depth) == ("fair-share", 9)  # type: ignore[attr-defined]
    best = make_policy(PolicySpec(name="cpalloc", deterministic_limit=Decimal("0.25")), seed=3)
    options = best._maker._options  # type: ignore[attr-defined]
    assert (options.seed, options.deterministic_limit) == (3, Decimal("0.25"))


def test_limits_of_teams() -> None:
    def factor(**told: Any) -> Fraction | None:
        found: Fraction | None = make_policy(PolicySpec(name="priority", **told))._limit_factor  # type: ignore[attr-defined]
        return found

    assert (factor(), factor(limit_factor=1.5), factor(limit_factor=0)) == (2, Fraction(3, 2), None)


# A base and changes


def what_if(base: Mapping[str, Any], *changes: Mapping[str, Any]) -> dict[str, Any]:
    return {"base": {"workload": "w.csv", "policy": "fifo", **base}, "scenario": list(changes)}


def test_changes_are_on_top_of_the_base() -> None:
    found = parse_what_if(
        what_if(
            {"weights": {"a": 1, "b": 2}, "window": "3d", "policy": {"name": "fifo", "placement": "fgd"}},
            {"name": "weights", "weights": {"b": 5}},
            {"name": "other policy", "policy": "priority"},
            {"name": "same policy", "policy": {"partitioned": True}, "workload": {"nodes": 3}, "seeds": 4},
        )
    )
    base, weights, other, same = found.scenarios
    assert base.name == "base"
    assert (weights.weights, weights.window, weights.policy) == ({"a": 1, "b": 5}, 259_200, base.policy)
    assert other.policy == PolicySpec(name="priority")
    assert same.policy == PolicySpec(name="fifo", placement="fgd", partitioned=True)
    assert (same.workload.path, same.workload.nodes, same.seeds) == (base.workload.path, 3, (4,))
    assert {s.seeds for s in found.with_seeds((1, 2)).scenarios} == {(1, 2)}


def test_the_base_itself_is_not_changed() -> None:
    base = {"weights": {"a": 1}}
    assert changed(base, {"weights": {"a": 2}}) == {"weights": {"a": 2}}
    assert base == {"weights": {"a": 1}}


def test_everything_wrong_with_a_file_is_told_once(tmp_path: Path) -> None:
    lines = (
        'extra = 1\n[base]\nworkload = "w.csv"\npolicy = "fifo"\nuntil = "soon"',
        '[[scenario]]\nname = "base"\nheartbeat = "x"',
        '[[scenario]]\nnodes = 0.5\npolicy = "best"',
        '[[scenario]]\nname = "elsewhere"\nuntil = "1d"\nworkload = "v.csv"',
    )
    found = issues_of(load_what_if, write(tmp_path / "what-if.toml", *lines))
    assert set(told(found)) == {
        ("unknown_field", "what-if.toml: extra"),
        ("duration", "what-if.toml: base.until"),
        ("duration", "what-if.toml: scenario[0].heartbeat"),
        ("missing", "what-if.toml: scenario[1].name"),
        ("unknown_policy", "what-if.toml: scenario[1].policy.name"),
    }


def test_names_are_told_apart_and_the_workload_is_one() -> None:
    document = what_if({}, {"name": "a"}, {"name": "a", "workload": "other.csv"})
    assert told(issues_of(parse_what_if, document)) == [
        ("duplicate_id", "scenario[1].name"),
        ("workload", "scenario[1].workload.path"),
    ]


@pytest.mark.parametrize(
    ("document", "path"), [({}, "base"), (what_if({}) | {"scenario": {"name": "x"}}, "scenario"), ({"base": 3}, "base")]
)
def test_files_that_hold_no_scenarios(document: dict[str, Any], path: str) -> None:
    assert [issue.path for issue in issues_of(parse_what_if, document)] == [path]


def test_files_that_are_none(tmp_path: Path) -> None:
    assert told(issues_of(load_what_if, tmp_path / "no.toml"))[0][0] == "file"
    assert told(issues_of(load_what_if, write(tmp_path / "bad.toml", "a = ")))[0][0] == "toml"


def test_the_example_is_read() -> None:
    found = load_what_if(EXAMPLES / "what-if.toml")
    assert found.title == "A small lab, and what if"
    assert [s.policy.name for s in found.scenarios] == ["priority", "partition", "fair-share", "fair-share"]
    assert {s.workload.path for s in found.scenarios} == {EXAMPLES / "small-lab.toml"}


# What becomes of the workload


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return write(tmp_path / "jobs.csv", *TRACE)


def made(trace: Path, seed: int = 0, **more: Any) -> Workload:
    source = {"path": str(trace), "nodes": 4, **more.pop("workload", {})}
    return workload_of(parse_scenario({"name": "s", "policy": "fifo", "workload": source, **more}), seed)


def test_a_trace_with_a_recipe_and_a_seed(trace: Path) -> None:
    found = made(trace, 5, workload={"recipe": {"name": "mine", "nodes_per_rack": 2}})
    assert any("recipe mine, seed 5" in note for note in found.notes)
    assert len({node.domains["rack"] for node in found.cluster.nodes}) == 2
    assert Recipe().name == "default"
    assert any("recipe default, seed 0" in note for note in made(trace).notes)


def test_more_work_fewer_nodes_other_weights(trace: Path, tmp_path: Path) -> None:
    events = write(tmp_path / "events.csv", "at,node,state", f"60,{made(trace).cluster.nodes[0].name},down")
    found = made(trace, nodes=0.5, demand=2, weights={"x": 77}, workload={"events": str(events)})
    assert (len(found.cluster.nodes), len(found.jobs), len(found.node_events)) == (2, 6, 1)
    assert {b.name: b.weight for b in found.budgets}["x"] == 77
    assert any(note.startswith("weights changed: x ") for note in found.notes)


def test_only_the_first_jobs(trace: Path) -> None:
    whole = made(trace)
    last = max(job.submitted_s for job in whole.jobs)
    found = made(trace, submissions=last, demand=2)  # both the original and its copies
    assert {job.id.split("+")[0] for job in found.jobs} == {job.id for job in whole.jobs if job.submitted_s < last}
    assert len(found.jobs) == 2 * sum(job.submitted_s < last for job in whole.jobs) > 0


def test_weights_change_in_all_trees() -> None:
    later = (Budget(name="a", weight=9), Budget(name="c", weight=1))
    before = world([job("j", 0, 1, 1, "a")], teams={"a": 1, "b": 2}, budget_changes=(BudgetChange(60, later),))
    found = reweigh(before, {"a": 5, "c": 6})
    assert [(b.name, b.weight) for b in found.budgets] == [("a", 5), ("b", 2)]
    assert [(b.name, b.weight) for b in found.budget_changes[0].budgets] == [("a", 5), ("c", 6)]
    assert found.notes[-1] == "weights changed: a 1 to 5, c 1 to 6"
    (issue,) = issues_of(reweigh, before, {"d": 1})
    assert (issue.code, issue.path) == ("unknown_budget", "weights.d")
    assert "a, b, c" in issue.message or "a, c, b" in issue.message


def test_a_scenario_is_simulated_as_by_hand(trace: Path) -> None:
    document = {"name": "s", "policy": {"name": "fifo", "placement": "best-fit"}, "until": "1h", "nodes": 0.5}
    asked = parse_scenario({**document, "workload": {"path": str(trace), "nodes": 4}})
    found = run_scenario(asked, 3)
    by_hand = simulate(workload_of(asked, 3), make_policy(asked.policy), config=asked.config(3))
    assert (found.policy, found.seed, found.end_s, len(found.node_names)) == ("fifo", 3, 3_600, 2)
    assert found.runs.start_s.tolist() == by_hand.runs.start_s.tolist()
