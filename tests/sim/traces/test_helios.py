from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from tests.sim.traces.files import issues_of, write

from cpalloc.sim.traces import read_trace

HEADER = "job_id,user,vc,vc_order,gpu_num,cpu_num,state,submit_time,duration"
SEPTEMBER = 153 * 86_400


def test_an_extract(tmp_path: Path) -> None:
    jobs = write(
        tmp_path / "venus.csv.gz",
        HEADER,
        f"7,ann,vcB,1,16,4,COMPLETED,{SEPTEMBER + 50},100",
        f"8,bob,vcB,0,14,4,CANCELLED,{SEPTEMBER + 50},20",
        f"6,cem,vcA,0,3,4,FAILED,{SEPTEMBER + 7},0",
        f"9,cem,vcA,1,0,4,COMPLETED,{SEPTEMBER},5",
    )
    nodes = write(tmp_path / "nodes.csv", ",num", "vcA,1", "vcB,2")
    trace = read_trace(jobs, "helios", nodes=nodes)
    assert trace.epoch == datetime(2020, 9, 1, tzinfo=UTC)
    assert trace.name == "venus"
    rows = [(j.id, j.budget, j.user, j.submitted_s, j.replicas, j.gpus_per_replica, j.work_s) for j in trace.jobs]
    # jobs 7 and 8 are submitted together: vc_order decides
    assert rows == [
        ("6", "vcA", "cem", 7, 1, 3, 0),
        ("8", "vcB", "bob", 50, 2, 7, 20),
        ("7", "vcB", "ann", 50, 2, 8, 100),
    ]
    assert "1 jobs without GPUs left out" in trace.notes
    assert trace.facts.team_nodes["vcB"] == ("vcB-00", "vcB-01")


def test_the_published_log_has_dates_and_no_order(tmp_path: Path) -> None:
    jobs = write(
        tmp_path / "cluster_log.csv",
        "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue",
        "1,u1,vcA,1,1,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-10 04:55:09,36848,0",
        "2,u1,vcA,1,1,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-10 04:55:09,3,0",
    )
    trace = read_trace(jobs, nodes=4)
    assert [(j.submitted_s, j.order) for j in trace.jobs] == [
        (18 * 3_600 + 41 * 60 + 1, 0),
        (18 * 3_600 + 41 * 60 + 1, 1),
    ]
    assert "guessed" in trace.notes[0]


def test_bad_rows_come_with_their_lines(tmp_path: Path) -> None:
    jobs = write(tmp_path / "t.csv", HEADER, "1,u,,0,1,1,C,5,9", "2,u,vcA,0,x,1,C,5,9", "2,u,vcA,0,1,1,C,soon,-9")
    found = issues_of(read_trace, jobs, "helios", nodes=2)
    assert sorted(i.path.rsplit(":", 1)[1] for i in found) == ["2", "3", "4", "4", "4"]


def test_the_size_of_the_cluster_is_needed(tmp_path: Path) -> None:
    jobs = write(tmp_path / "t.csv", HEADER, "1,u,vcA,0,1,1,C,5,9")
    assert issues_of(read_trace, jobs)[0].code == "nodes"


def test_as_it_stands_teams_weigh_their_nodes(tmp_path: Path) -> None:
    rows = ["1,u,vcA,0,1,1,C,5,9", "2,u,vcB,0,1,1,C,5,9", "3,u,vcX,0,1,1,C,5,9"]
    jobs = write(tmp_path / "t.csv", HEADER, *rows)
    workload = read_trace(jobs, nodes=write(tmp_path / "n.csv", "vc,n", "vcB,3", "vcA,1")).as_workload()
    assert {b.name: b.weight for b in workload.budgets} == {"vcA": 1_000, "vcB": 3_000, "vcX": 1}
    assert any("1 teams have no nodes" in note for note in workload.notes)
    assert workload.provenance == "trace"
    by_work = read_trace(jobs, nodes=4).as_workload()
    assert {b.weight for b in by_work.budgets} == {333_333}
