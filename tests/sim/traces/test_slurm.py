from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.sim.traces.files import issues_of, write

from cpalloc.schema.types import JobKind
from cpalloc.sim.traces import read_trace
from cpalloc.sim.traces.slurm_cells import parse_gpus, parse_limit, parse_seconds

HEADER = (
    "State|JobIDRaw|JobID|JobName|User|Account|Partition|Submit|Start|End|ElapsedRaw|AllocTRES|ReqTRES|NNodes|Timelimit"
    "|Priority"
)
ROWS = (
    "COMPLETED|101|101|train|ann|vision|gpu|2026-05-04T08:00:00|2026-05-04T08:10:00|2026-05-04T09:10:00|3600"
    "|billing=64,cpu=64,gres/gpu:h100=16,gres/gpu=16,node=2|cpu=64,gres/gpu=16|2|1-00:00:00|4294901759",
    "COMPLETED|101.batch|101.batch|batch|||||2026-05-04T08:10:00|2026-05-04T09:10:00|3600|cpu=32,gres/gpu=8|||UNLIMITED|",
    "CANCELLED by 1001|102|102|eval|bob|nlp|gpu|2026-05-04T08:01:00|None|2026-05-04T08:30:00|0||gres/gpu=8|1"
    "|UNLIMITED|1",
    "TIMEOUT|104|103_1|sweep|bob|nlp|gpu|2026-05-04T08:02:00|2026-05-04T08:02:30|2026-05-04T08:12:30|600"
    "|gres/gpu:h100=4|gres/gpu=4|1|00:10:00|1",
    "RUNNING|105|103_2|sweep|bob|nlp|gpu|2026-05-04T08:02:00|2026-05-04T08:05:00|Unknown|60|gres/gpu:h100=5|gres/gpu=5|2"
    "|Partition_Limit|1",
    "COMPLETED|106|106|bash|eve||cpu|2026-05-04T09:00:00|2026-05-04T09:00:00|2026-05-04T09:00:30|30|cpu=4|cpu=4|1|UNLIMITED|1",
    "PENDING|107|107_[1-9]|sweep|bob|nlp|gpu|2026-05-04T09:00:00|Unknown|Unknown|0||gres/gpu=1|1|UNLIMITED|1",
    "COMPLETED|108|108|bash|eve||gpu|2026-05-04T09:00:00|2026-05-04T09:00:00|2026-05-04T09:00:30|30|gres/gpu:h100=1||1|90|1",
)


def test_what_sacct_prints(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path / "sacct.txt", HEADER, *ROWS))
    assert trace.epoch == datetime(2026, 5, 4, tzinfo=UTC)
    assert [
        (j.id, j.budget, j.user, j.submitted_s, j.replicas, j.gpus_per_replica, j.work_s, j.timeout_s)
        for j in trace.jobs
    ] == [
        ("101", "vision", "ann", 28_800, 2, 8, 3_600, 86_400),
        ("104", "nlp", "bob", 28_920, 1, 4, 600, 600),
        ("105", "nlp", "bob", 28_920, 2, 3, 60, -1),
        ("108", "no-account", "eve", 32_400, 1, 1, 30, 5_400),
    ]
    assert [j.kind for j in trace.jobs] == [JobKind.BATCH] * 3 + [JobKind.INTERACTIVE]
    assert {j.gpu_types for j in trace.jobs} == {("h100",)}
    assert trace.known >= {"timeout_s", "kind", "user", "gpu_types"}
    notes = " / ".join(trace.notes)
    assert "1 jobs without GPUs left out" in notes
    assert "2 jobs that never started left out" in notes
    assert "1 jobs were still running" in notes
    assert "1 jobs do not divide" in notes


def test_the_cluster_is_what_the_busiest_instant_takes(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path / "sacct.txt", HEADER, *ROWS))
    # 08:10:00: job 101 takes 16 GPUs and 104 still has its 4; 105 ended at 08:06. 20 GPUs on nodes of 8: 3 nodes
    assert [(n.gpus, n.gpu_type) for n in trace.facts.nodes] == [(8, "h100")] * 3
    assert "busiest" in trace.facts.notes[0]
    assert len(read_trace(tmp_path / "sacct.txt", nodes=5).facts.nodes) == 5


def test_other_fields_in_another_order_do_as_well(tmp_path: Path) -> None:
    path = write(
        tmp_path / "s.csv",
        "Elapsed|Submit|JobID|ReqTRES|State|TimelimitRaw|",
        "1-00:00:05|1777881600|7|gres/gpu=12|COMPLETED|30|",
    )
    (job,) = read_trace(path, nodes=4).jobs
    assert (job.work_s, job.replicas, job.gpus_per_replica, job.timeout_s, job.budget) == (
        86_405,
        2,
        6,
        1_800,
        "no-account",
    )


def test_runs_of_a_requeued_job_are_one_job(tmp_path: Path) -> None:
    header = "JobIDRaw|Submit|Start|ElapsedRaw|State|AllocTRES|NNodes"
    rows = [
        "9|2026-05-04T10:00:00|2026-05-04T11:00:00|50|COMPLETED|gres/gpu=8|1",
        "9|2026-05-04T08:00:00|2026-05-04T08:00:10|100|NODE_FAIL|gres/gpu=8|1",
    ]
    trace = read_trace(write(tmp_path / "s.txt", header, *rows))
    (job,) = trace.jobs
    assert (job.submitted_s, job.work_s) == (28_800, 150)
    assert any("1 further runs" in note for note in trace.notes)


def test_missing_fields_and_bad_cells(tmp_path: Path) -> None:
    found = issues_of(read_trace, write(tmp_path / "a.txt", "JobIDRaw|Submit|State", "1|x|y"))
    assert [i.code for i in found] == ["columns", "columns"]
    assert "ElapsedRaw" in found[0].message
    rows = [
        "1|2026-05-04T10:00:00|1 hour|C|gres/gpu=8",
        "2|Unknown|60|C|gres/gpu=8",
        "3|2026-05-04T10:00:00|60|C|gres/gpu=many",
    ]
    path = write(tmp_path / "b.txt", "JobIDRaw|Submit|ElapsedRaw|State|AllocTRES", *rows)
    assert sorted(i.path for i in issues_of(read_trace, path, nodes=1)) == [f"{path}:{n}" for n in (2, 3, 4)]


@pytest.mark.parametrize(
    ("tres", "gpus"),
    [
        ("cpu=1,gres/gpu=2", (2, None)),
        ("gres/gpu:a100=2,gres/gpu:h100=1", (3, None)),
        ("gres/gpu:a100=2,gres/gpu=4", (4, None)),
        ("gres/gpumem=80G,gres/gpuutil=50,gres/shard=3", (0, None)),
    ],
)
def test_resources(tres: str, gpus: tuple[int, str | None]) -> None:
    assert parse_gpus(tres) == gpus


def test_clocks() -> None:
    assert parse_seconds("2-03:04:05") == 2 * 86_400 + 3 * 3_600 + 4 * 60 + 5
    assert parse_seconds("00:00:07.123") == 7
    assert parse_limit("60") == 3_600
    assert parse_limit("UNLIMITED") == -1
