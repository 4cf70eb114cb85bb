from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from tests.sim.traces.files import issues_of, write

from cpalloc.schema import Budget
from cpalloc.schema.types import NodeState
from cpalloc.sim.files import read_events, read_saved, read_workload, write_workload
from cpalloc.sim.recipe import Recipe
from cpalloc.sim.traces.own import write_jobs
from cpalloc.sim.workload import BudgetChange, NodeEvent, Provenance, Workload

LAB = Path(__file__).parents[2] / "examples" / "lab.toml"
HELIOS = ("job_id,user,vc,gpu_num,submit_time,duration", "1,u,vcA,1,13219200,60", "2,u,vcB,16,13219260,6000")


@pytest.fixture
def workload(tmp_path: Path) -> Workload:
    path = write(tmp_path / "t.csv", *HELIOS)
    return read_workload(path, nodes=write(tmp_path / "n.csv", "vc,n", "vcA,1", "vcB,2"), seed=5)


def test_a_trace_is_filled_in(workload: Workload) -> None:
    assert workload.provenance is Provenance.TRACE
    assert workload.cluster.levels == ("block", "rack")
    assert any("recipe default, seed 5" in note for note in workload.notes)


def test_a_recipe_may_be_given(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", *HELIOS)
    other = read_workload(path, nodes=4, recipe=Recipe(name="mine", nodes_per_rack=2))
    assert any("recipe mine, seed 0" in note for note in other.notes)


def test_a_lab_is_drawn(tmp_path: Path) -> None:
    short = LAB.read_text(encoding="utf-8").replace("days = 30", "days = 2")
    lab = read_workload(write(tmp_path / "lab.toml", short), seed=2)
    assert lab.provenance is Provenance.CONSTRUCTED
    assert "seed 2" in lab.notes[0]


def test_a_saved_workload_comes_back_exactly(tmp_path: Path, workload: Workload) -> None:
    full = replace(
        workload,
        name="all of it",
        node_events=(NodeEvent(5, "vcA-00", NodeState.DRAINING), NodeEvent(9, "vcA-00", NodeState.DOWN)),
        budget_changes=(BudgetChange(3_600, (Budget(name="vcA", weight=3, max_gpus=8), Budget(name="vcB", weight=1))),),
        notes=(*workload.notes, "ünïcode"),
    )
    path = tmp_path / "w.parquet"
    write_workload(full, path)
    assert read_saved(path) == full
    assert read_workload(path, seed=99) == full


def test_parquet_that_is_only_jobs_is_a_trace(tmp_path: Path, workload: Workload) -> None:
    path = tmp_path / "jobs.parquet"
    write_jobs(workload.jobs, path)
    assert read_workload(path, nodes=4).jobs == workload.jobs


def test_saved_workloads_that_cannot_be_read(tmp_path: Path, workload: Workload) -> None:
    path = tmp_path / "w.parquet"
    write_workload(workload, path)
    rest = json.loads(pl.read_parquet_metadata(path)["cpalloc.workload"])
    jobs = pl.read_parquet(path)
    jobs.write_parquet(path, metadata={"cpalloc.workload": json.dumps({**rest, "version": 2})})
    assert issues_of(read_workload, path)[0].code == "version"
    del rest["epoch"]
    jobs.write_parquet(path, metadata={"cpalloc.workload": json.dumps(rest)})
    assert issues_of(read_workload, path)[0].code == "file"
    assert issues_of(read_workload, tmp_path / "no.parquet")[0].code == "file"


def test_events_from_a_file(tmp_path: Path, workload: Workload) -> None:
    path = write(
        tmp_path / "events.csv",
        "at,node,state",
        "7200,vcA-00,draining",
        "3600,vcB-01,down",
        f"{workload.epoch:%Y-%m-%d} 03:00:00,vcB-01,ready",
    )
    assert read_events(path, workload) == (
        NodeEvent(3_600, "vcB-01", NodeState.DOWN),
        NodeEvent(7_200, "vcA-00", NodeState.DRAINING),
        NodeEvent(10_800, "vcB-01", NodeState.READY),
    )
    with_events = read_workload(tmp_path / "t.csv", nodes=tmp_path / "n.csv", events=path)
    assert len(with_events.node_events) == 3
    assert "events.csv" in with_events.notes[-1]


def test_bad_events(tmp_path: Path, workload: Workload) -> None:
    path = write(
        tmp_path / "e.csv", "at,node,state", "1,x,down", "soon,vcA-00,down", "1,vcA-00,gone", "1999-01-01,vcA-00,down"
    )
    found = issues_of(read_events, path, workload)
    assert sorted(i.path for i in found) == [f"{path}:{line}" for line in (2, 3, 4, 5)]
