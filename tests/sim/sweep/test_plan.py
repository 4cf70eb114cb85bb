"""Tasks and their fingerprints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cpalloc.sim.sweep import plan
from sim.sweep.labs import LAB, longer, scenarios, tasks_in
from sim.traces.files import issues_of


def test_tasks_come_seed_by_seed(tmp_path: Path) -> None:
    tasks = tasks_in(tmp_path, {"name": "other", "policy": "fifo"}, {"name": "few", "nodes": 0.5, "seeds": 2})
    assert [t.label for t in tasks] == [
        "base, seed 1",
        "other, seed 1",
        "base, seed 2",
        "other, seed 2",
        "few, seed 2",
    ]
    assert len({t.fingerprint for t in tasks}) == 3
    assert len({t.stem for t in tasks}) == 5
    assert all(t.folder == tmp_path for t in tasks)


@pytest.mark.parametrize(
    "change",
    [
        {"until": "13h"},
        {"policy": "fifo"},
        {"policy": {"limit_factor": 3}},
        {"weights": {"models": 1}},
        {"window": "2d"},
        {"workload": {"nodes": 8}},
    ],
)
def test_another_setting_is_another_fingerprint(tmp_path: Path, change: dict[str, object]) -> None:
    base, other = tasks_in(tmp_path, {"name": "other", **change}, seeds=1)
    assert base.fingerprint != other.fingerprint


def test_names_seeds_and_places_do_not_matter_but_content_does(tmp_path: Path) -> None:
    copy = longer(tmp_path, 2, name=LAB.name)
    (first,) = tasks_in(tmp_path, name="one", seeds=1)
    (second,) = tasks_in(tmp_path, name="two", seeds=5, lab=copy)
    assert first.fingerprint == second.fingerprint
    longer(tmp_path, 3, name=LAB.name)
    (third,) = tasks_in(tmp_path, seeds=1, lab=copy)
    assert third.fingerprint != first.fingerprint


def test_files_that_are_missing_are_told_before_anything_runs(tmp_path: Path) -> None:
    wanted = scenarios({"name": "events", "workload": {"events": "/no/events.csv"}}, lab=tmp_path / "no.toml")
    found = issues_of(plan, wanted, tmp_path)
    assert {(i.code, i.path) for i in found} == {("file", str(tmp_path / "no.toml")), ("file", "/no/events.csv")}


def test_names_of_files_are_plain(tmp_path: Path) -> None:
    (task,) = tasks_in(tmp_path, name="¿A/../quarter: fewer?", seeds=3)
    assert re.fullmatch(rf"a-quarter-fewer-[0-9a-f]{{4}}-{task.fingerprint[:10]}-seed3", task.stem)
    (odd,) = tasks_in(tmp_path, name="¿?", seeds=3)
    assert odd.stem.startswith("scenario-")


def test_scenarios_of_which_only_the_names_differ_keep_apart(tmp_path: Path) -> None:
    tasks = plan(scenarios({"name": "Now!"}, {"name": "now?"}), tmp_path)
    assert len({task.stem for task in tasks}) == len(tasks)
