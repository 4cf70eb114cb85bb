"""Sweeps over processes of this machine: the same results, nothing twice, and one failure is no other's."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cpalloc.sim.sweep import Limits, LocalEngine, Task, result_of, sweep
from sim.sweep.labs import Seen, Serial, longer, same_histories, tasks_in, timeless
from sim.traces.files import issues_of

OTHERS = ({"name": "own nodes", "policy": "partition"}, {"name": "few", "nodes": 0.75, "demand": 1.5})


def test_the_pool_comes_to_the_same_as_one_after_the_other(tmp_path: Path) -> None:
    serial, pool = (tasks_in(tmp_path / name, *OTHERS) for name in ("serial", "pool"))
    seen = Seen()
    one, other = sweep(serial, Serial()), sweep(pool, LocalEngine(2), watch=seen)
    assert (one.failed, one.interrupted) == (other.failed, other.interrupted) == ((), False)
    assert timeless(one) == timeless(other)
    assert {name: [s.seed for s in runs] for name, runs in other.summaries.items()} == {
        "base": [1, 2],
        "own nodes": [1, 2],
        "few": [1, 2],
    }
    assert same_histories(serial, pool)
    assert seen.counts == (6, 0)
    assert set(seen.endings.values()) == {"finished"}
    assert all(fractions[0] == 0 for fractions in seen.fractions.values())
    assert multiprocessing.active_children() == []
    assert sorted(p.suffix for p in (tmp_path / "pool").iterdir()) == [".cph"] * 6 + [".json"] * 6

    again = Seen()
    assert sweep(pool, LocalEngine(2), watch=again).summaries == other.summaries
    assert (again.counts, again.endings) == ((6, 6), {})


def test_what_is_done_is_not_done_again(tmp_path: Path) -> None:
    tasks = tasks_in(tmp_path)
    sweep(tasks[:1], Serial())
    seen = Seen()
    swept = sweep(tasks, Serial(), watch=seen)
    assert (seen.counts, list(seen.endings)) == ((2, 1), ["base, seed 2"])
    assert [s.seed for s in swept.summaries["base"]] == [1, 2]


def test_results_that_cannot_be_used_are_made_again(tmp_path: Path) -> None:
    (task,) = tasks_in(tmp_path, seeds=1)
    sweep([task], Serial())
    good = task.result_path.read_text(encoding="utf-8")
    document = json.loads(good)
    del document["summary"]["waits"]
    for bad in ("", "{}", "[]", json.dumps(document), json.dumps({**json.loads(good), "fingerprint": "x"})):
        task.result_path.write_text(bad, encoding="utf-8")
        assert result_of(task) is None
    task.result_path.write_text(good, encoding="utf-8")
    assert result_of(task) is not None
    task.history_path.unlink()
    assert result_of(task) is None


def test_failures_are_told_and_the_others_go_on(tmp_path: Path) -> None:
    tasks = tasks_in(
        tmp_path, {"name": "no such team", "weights": {"nobody": 1}}, {"name": "own nodes", "policy": "partition"}
    )
    swept = sweep(tasks, Serial())
    assert [(t.label, o.issues[0].code) for t, o in swept.failed] == [
        ("no such team, seed 1", "unknown_budget"),
        ("no such team, seed 2", "unknown_budget"),
    ]
    assert not swept.interrupted
    assert {name: len(runs) for name, runs in swept.summaries.items()} == {
        "base": 2,
        "no such team": 0,
        "own nodes": 2,
    }


def test_what_is_unexpected_is_a_failure_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cpalloc.sim.sweep.work.write_result", lambda *_: 1 / 0)
    ((_, outcome),) = sweep(tasks_in(tmp_path, seeds=1), Serial()).failed
    assert outcome.message == "ZeroDivisionError: division by zero"
    assert (outcome.issues, "Traceback" in outcome.details) == ((), True)


def test_a_process_that_dies_takes_no_other_along(tmp_path: Path) -> None:
    tasks = tasks_in(tmp_path, seeds="1-2", lab=longer(tmp_path, 8), until="8d")

    def kill(task: Task, _: float) -> None:
        if task.seed == 1:
            (child,) = multiprocessing.active_children()
            os.kill(child.pid or 0, signal.SIGKILL)

    swept = sweep(tasks, LocalEngine(1), watch=Seen(kill))
    ((task, outcome),) = swept.failed
    assert task.seed == 1
    assert "try fewer workers" in outcome.message
    assert [s.seed for s in swept.summaries["base"]] == [2]


def test_stopped_and_taken_up_again(tmp_path: Path) -> None:
    lab = longer(tmp_path, 16)
    tasks, straight = (tasks_in(tmp_path / name, lab=lab, until="16d") for name in ("stopped", "straight"))
    stop = threading.Event()
    seen = Seen(lambda _, fraction: stop.set() if fraction > 0 else None)
    swept = sweep(tasks, LocalEngine(1), watch=seen, cancel=stop)
    assert swept.interrupted
    assert seen.endings == {"base, seed 1": "interrupted"}
    assert [path.suffix for path in (tmp_path / "stopped").iterdir()] == [".checkpoint"]

    assert not sweep(tasks[:1], Serial()).interrupted
    sweep(straight[:1], Serial())
    assert same_histories(tasks[:1], straight[:1])
    assert not tasks[0].checkpoint_path.exists()


def test_what_does_not_stop_in_time_is_ended(tmp_path: Path) -> None:
    tasks = tasks_in(tmp_path, lab=longer(tmp_path, 16), until="16d")
    stop = threading.Event()
    seen = Seen(lambda _, fraction: stop.set() if fraction > 0 else None)
    swept = sweep(tasks, LocalEngine(1, patience_s=0), watch=seen, cancel=stop)
    assert (swept.interrupted, seen.endings) == (True, {"base, seed 1": "interrupted"})
    assert multiprocessing.active_children() == []
    assert list(tmp_path.glob("*.checkpoint")) == []


def test_processes_are_held_to_limits(tmp_path: Path) -> None:
    niceness: list[int] = []

    def look(_task: Task, _fraction: float) -> None:
        (child,) = multiprocessing.active_children()
        niceness.append(os.getpriority(os.PRIO_PROCESS, child.pid or 0))

    sweep(tasks_in(tmp_path, seeds=1), LocalEngine(1, limits=Limits(niceness=3)), watch=Seen(look))
    assert set(niceness) == {min(19, os.getpriority(os.PRIO_PROCESS, 0) + 3)}


@pytest.mark.skipif(sys.platform != "linux", reason="others pass over a limit on data")
def test_a_process_gets_no_more_memory_than_is_granted() -> None:
    script = (
        "from cpalloc.sim.sweep.limits import Limits\n"
        "Limits(memory_bytes=2**29).apply()\nkept = bytearray(2**27)\nbytearray(2**30)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert "line 4" in done.stderr
    assert done.stderr.endswith("MemoryError\n")


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert issues_of(sweep, tasks_in(tmp_path / "file"), Serial())[0].code == "file"
