from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.sim.traces.files import issues_of, write

from cpalloc.schema.types import Funding, JobKind, Priority
from cpalloc.sim.traces import read_trace
from cpalloc.sim.traces.base import JOB_FIELDS
from cpalloc.sim.traces.own import write_jobs
from cpalloc.sim.workload import WorkJob

PLAIN = WorkJob(id="a", budget="x/y", submitted_s=0, replicas=1, gpus_per_replica=1, work_s=0)
FULL = WorkJob(
    id="b-1",
    budget="z",
    submitted_s=2**40,
    replicas=3,
    gpus_per_replica=8,
    work_s=10**12,
    order=7,
    user='Å "quoted", user',
    priority=Priority.URGENT,
    kind=JobKind.INTERACTIVE,
    min_runtime_s=60,
    timeout_s=0,
    resumable=True,
    restart_cost_s=1,
    checkpoint_interval_s=2,
    funding=Funding.ANY,
    gpu_types=("h100", "a100"),
    required_level="block",
    preferred_level="rack",
    wants_opt_out=True,
    inflates=True,
)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_jobs_come_back_exactly(tmp_path: Path, suffix: str) -> None:
    jobs = (PLAIN, replace(PLAIN, id="c", submitted_s=5, gpu_types=()), FULL)
    path = tmp_path / f"jobs.{suffix}"
    write_jobs(jobs, path)
    trace = read_trace(path, nodes=4)
    assert trace.jobs == jobs
    assert trace.known == frozenset(JOB_FIELDS)
    assert "guessed" in trace.notes[0]


def test_a_file_written_by_hand_has_defaults(tmp_path: Path) -> None:
    path = write(
        tmp_path / "j.csv", "id,budget,submitted_s,replicas,gpus_per_replica,work_s", "b,x,5,1,8,60", "a,x,5,1,8,60"
    )
    trace = read_trace(path, nodes=1)
    assert [(j.id, j.order, j.min_runtime_s) for j in trace.jobs] == [("b", 0, 0), ("a", 1, 0)]
    assert "min_runtime_s" not in trace.known


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    header = "id,budget,submitted_s,replicas,gpus_per_replica,work_s,priority,resumable"
    rows = ["a b,x,5,1,8,60,normal,true", "b,x,5,0,8,60,top,true", "b,x,5,1,8,60,,perhaps"]
    path = write(tmp_path / "j.csv", header, *rows)
    found = issues_of(read_trace, path, nodes=1)
    assert sorted(i.path.rsplit(":", 1)[1] for i in found) == ["2", "3", "3", "4", "4"]
    unknown = write(tmp_path / "u.csv", header + ",colour", "a,x,5,1,8,60,normal,true,red")
    assert "colour" in issues_of(read_trace, unknown, nodes=1)[0].message
