from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from tests.sim.traces.files import issues_of, write

from cpalloc.sim.traces import FORMATS, read_trace


def test_philly_with_virtual_clusters(tmp_path: Path) -> None:
    jobs = write(
        tmp_path / "p.csv",
        "timestamp,duration,num_gpus,gpu_time,cluster",
        "2017-10-09 07:01:55,66.0,1,66.0,103959",
        "2017-10-09 06:00:00,10.4,16,160.0,0e4a51",
        "",
    )
    trace = read_trace(jobs, nodes=2)
    assert trace.epoch == datetime(2017, 10, 9, tzinfo=UTC)
    assert [(j.id, j.budget, j.size, j.work_s) for j in trace.jobs] == [
        ("line3", "0e4a51", 16, 10),
        ("line2", "103959", 1, 66),
    ]


def test_philly_with_all_jobs(tmp_path: Path) -> None:
    jobs = write(tmp_path / "p.csv", "job_id,arrival_s,gpu_num,span_s,run_s,vc", "0,0,1,500,,", "1,1980,8,90,60,ee9e8c")
    trace = read_trace(jobs, nodes=2)
    assert [(j.budget, j.submitted_s, j.work_s) for j in trace.jobs] == [
        ("no-vc", 23 * 3_600 + 27 * 60, 500),
        ("ee9e8c", 24 * 3_600, 60),
    ]
    assert any("1 jobs without run_s" in note for note in trace.notes)
    assert any("1 jobs without a virtual cluster" in note for note in trace.notes)


def test_acme_published(tmp_path: Path) -> None:
    jobs = write(
        tmp_path / "trace_kalos.csv",
        "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,duration,queue",
        "d1,u1,8,64,960,Other,FAILED,2023-05-17 11:00:58+00:00,18,10.0",
        "d2,u2,1,0,960,Other,FAILED,2023-05-17 10:00:58+00:00,18,10.0",
        "d3,u2,3,16,9,Pretrain,FAILED,2023-05-18 00:00:00+00:00,20,0",
    )
    trace = read_trace(jobs)
    assert [(j.id, j.user, j.replicas, j.gpus_per_replica) for j in trace.jobs] == [
        ("d1", "u1", 8, 8),
        ("d3", "u2", 3, 6),
    ]
    assert trace.jobs[0].submitted_s == 11 * 3_600 + 58
    assert len(trace.facts.nodes) == 302
    assert "budget" not in trace.known
    assert any("1 jobs without GPUs" in note for note in trace.notes)
    assert any("1 jobs do not divide" in note for note in trace.notes)


def test_acme_extract(tmp_path: Path) -> None:
    jobs = write(
        tmp_path / "k.csv",
        "job_id,arrival_s,gpu_num,node_num,cpu_num,duration_s,is_pretrain",
        "0,0,64,8,960,104.0,0",
        "1,313,1,1,960,78.6,1",
    )
    trace = read_trace(jobs, nodes=40)
    assert [(j.submitted_s, j.replicas, j.gpus_per_replica, j.work_s) for j in trace.jobs] == [
        (0, 8, 8, 104),
        (313, 1, 1, 79),
    ]
    assert len(trace.facts.nodes) == 40
    assert any("assumed" in note for note in trace.notes)


def test_lingjun(tmp_path: Path) -> None:
    jobs = write(tmp_path / "j.csv", "job_id,arrival_s,gpu_num,duration_s", "0,0.0,48,720.0", "1,60.0,12,0.0")
    topo = write(tmp_path / "topo.csv", "host,DSW,PSW,ASW", "h0,G,P,S", "h1,G,P,T")
    trace = read_trace(jobs, nodes=topo)
    assert [(j.replicas, j.gpus_per_replica, j.work_s) for j in trace.jobs] == [(6, 8, 720), (2, 6, 0)]
    assert trace.facts.levels == ("pod", "spine", "leaf")
    assert any("1 jobs have duration 0" in note for note in trace.notes)
    assert any("8 assumed" in note for note in trace.facts.notes)


OPENB = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"


def test_openb_rounds_parts_of_gpus_up(tmp_path: Path) -> None:
    jobs = write(
        tmp_path / "o.csv",
        OPENB,
        "p0,1,1,1,1000,,LS,Running,0,100,0",
        "p1,1,1,1,460,T4|V100,BE,Failed,5,100,40",
        "p2,1,1,8,1000,,BE,Failed,6,100,40",
        "p3,1,1,0,0,,BE,Failed,5,100,40",
        "p4,1,1,1,1000,,BE,Pending,5,100,",
    )
    nodes = write(tmp_path / "n.csv", "sn,cpu_milli,memory_mib,gpu,model", "a,1,1,2,T4", "b,1,1,8,V100")
    trace = read_trace(jobs, nodes=nodes)
    assert [(j.id, j.replicas, j.gpus_per_replica, j.work_s, j.gpu_types) for j in trace.jobs] == [
        ("p0", 1, 1, 100, None),
        ("p1", 1, 1, 60, ("T4", "V100")),
        ("p2", 1, 8, 60, None),
    ]
    assert "1 pods without GPUs left out" in trace.notes
    assert "1 pods that were never scheduled left out" in trace.notes
    assert any(note.startswith("1 pods take part of a GPU") for note in trace.notes)
    # without such models in the cluster no spec could ever be met
    plain = read_trace(jobs, nodes=3)
    assert {j.gpu_types for j in plain.jobs} == {None}
    assert any("gpu_spec of 1 pods is left out" in note for note in plain.notes)


def test_openb_times_must_make_sense(tmp_path: Path) -> None:
    jobs = write(tmp_path / "o.csv", OPENB, "p0,1,1,1,1000,,LS,Running,0,100,101")
    (issue,) = issues_of(read_trace, jobs, nodes=3)
    assert issue.path.endswith(":2")


def test_formats_and_headers_that_nobody_knows(tmp_path: Path) -> None:
    jobs = write(tmp_path / "t.csv", "a,b", "1,2")
    (issue,) = issues_of(read_trace, jobs)
    assert issue.code == "format"
    (issue,) = issues_of(read_trace, jobs, "sge")
    assert "helios" in issue.message
    for known in FORMATS:  # named, but the columns are missing: each says which
        assert issues_of(read_trace, jobs, known.name, nodes=1)[0].code == "columns"


def test_a_trace_without_gpu_jobs_says_what_was_left_out(tmp_path: Path) -> None:
    header = "job_id,user,vc,gpu_num,submit_time,duration"
    jobs = write(tmp_path / "t.csv", header, "1,u,v,0,5,9")
    (issue,) = issues_of(read_trace, jobs, nodes=1)
    assert issue.code == "empty"
    assert "1 jobs without GPUs left out" in issue.message
