"""``cpalloc solve``: what comes out where, and what it exits with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cpalloc.api.openapi import example
from cpalloc.cli.interrupt import interruptible
from cpalloc.schema import parse_allocation
from cpalloc.schema.examples import load

from .conftest import FakeEngine, Run, environment, put, shell


def test_the_packaged_round_is_solved_for_real(small: Path) -> None:
    done = shell("solve", small)
    assert (done.returncode, done.stderr) == (0, "")
    assert "pretrain-9" in done.stdout
    assert "Proofs" in done.stdout


def test_json_of_the_real_engine_checks(small: Path, tmp_path: Path) -> None:
    done = shell("solve", "-", "--json", input=small.read_text())
    assert (done.returncode, done.stderr) == (0, "")
    assert parse_allocation(done.stdout).decisions
    again = tmp_path / "again.json"
    again.write_text(done.stdout)
    assert shell("check", small, again).returncode == 0


def test_tables_or_json_and_a_file(engine: FakeEngine, run: Run, small: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    tables = run("solve", small, "--output", target)
    assert (tables.exit_code, tables.stderr) == (0, "")
    assert "Starts (2)" in tables.stdout
    assert parse_allocation(target.read_text()) == parse_allocation(example("allocation"))
    assert json.loads(run("solve", small, "--json").stdout) == json.loads(target.read_text())
    target.unlink()
    assert run("solve", small, "--json", "-o", target).stdout == ""
    assert target.exists()


def test_options_override_those_of_the_round(engine: FakeEngine, run: Run, small: Path) -> None:
    run("solve", small, "--time-limit", 1.5, "--workers", 3, "--seed", 7, "--deterministic", "--gap", 0.01)
    run("solve", small)
    overridden, plain = (r.options.model_dump(mode="json") for r in engine.rounds)
    assert overridden == {
        **plain, "time_limit": 1.5, "workers": 3, "seed": 7, "deterministic": True, "gap": 0.01
    }  # fmt: skip
    assert plain["time_limit"] == 5


def test_a_failed_guard_exits_with_3_and_still_answers(engine: FakeEngine, run: Run, small: Path) -> None:
    engine.changes = {"stop_reason": "guard_failed"}
    result = run("solve", small, "--json")
    assert result.exit_code == 3
    assert json.loads(result.stdout)["stop_reason"] == "guard_failed"
    assert "broke a rule" in result.stderr


def test_running_out_of_time_is_no_error(engine: FakeEngine, run: Run, small: Path) -> None:
    engine.changes = {"status": "feasible", "stop_reason": "time_limit"}
    assert run("solve", small).exit_code == 0


def test_bad_input_lists_every_issue(run: Run, tmp_path: Path) -> None:
    path = put(tmp_path / "bad.json", {**load("small"), "now": "yesterday", "surprise": 1})
    plain = run("solve", path, "--time-limit", 1)
    assert (plain.exit_code, plain.stdout) == (5, "")
    for part in ("2 things are wrong", "now: must be RFC 3339", "[instant]", "surprise: ", "[unknown_field]"):
        assert part in plain.stderr
    machine = run("solve", path, "--json")
    assert (machine.exit_code, machine.stdout) == (5, "")
    issues = json.loads(machine.stderr)["issues"]
    assert {(i["code"], i["path"]) for i in issues} == {("instant", "now"), ("unknown_field", "surprise")}


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "[]", "\udcff"])
def test_what_is_no_document_is_bad_input(run: Run, text: str) -> None:
    result = run("solve", "-", stdin=text.encode(errors="surrogateescape"))
    assert result.exit_code == 5
    assert "document: " in result.stderr


def test_options_that_are_no_object_are_told_by_the_parser(run: Run, tmp_path: Path) -> None:
    path = put(tmp_path / "bad.json", {**load("small"), "options": []})
    result = run("solve", path, "--seed", 1)
    assert result.exit_code == 5
    assert "options: " in result.stderr


@pytest.mark.parametrize(
    "args",
    [
        ["solve"],
        ["solve", "nowhere.json"],
        ["solve", "-", "--time-limit", "0"],
        ["solve", "-", "--gap", "2"],
        ["solve", "-", "--server", "file:///etc/passwd"],
        ["solve", "-", "--nonsense"],
        ["nonsense"],
        ["check", "-", "-"],
        ["generate", "--family", "none"],
    ],
)
def test_wrong_usage_exits_with_2(run: Run, args: list[str]) -> None:
    result = run(*args, stdin="{}")
    assert (result.exit_code, result.stdout) == (2, "")


def test_an_answer_that_cannot_be_written_exits_with_2(engine: FakeEngine, run: Run, small: Path) -> None:
    result = run("solve", small, "-o", "/nowhere/at/all.json")
    assert result.exit_code == 2
    assert "cannot write" in result.stderr


def worked_for(process: subprocess.Popen[bytes], cpu_s: float) -> None:
    """Wait until a process has had so much of a processor, however busy the machine is: it is solving by then."""
    stat = Path(f"/proc/{process.pid}/stat")
    if not stat.exists():  # no Linux
        time.sleep(cpu_s)
        return
    while process.poll() is None:
        user, system = stat.read_text().rpartition(")")[2].split()[11:13]
        if (int(user) + int(system)) / os.sysconf("SC_CLK_TCK") >= cpu_s:
            return
        time.sleep(0.05)


def test_ctrl_c_takes_the_best_answer_so_far(tmp_path: Path) -> None:
    """With the real engine, on a round it cannot finish; CP-SAT must leave SIGINT to us."""
    round_ = tmp_path / "round.json"
    assert shell("generate", "--nodes", 256, "-o", round_).returncode == 0
    command = [sys.executable, "-m", "cpalloc.cli", "solve", str(round_), "--time-limit", "100", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
    worked_for(process, 4)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=50)
    assert process.returncode == 130, err
    assert parse_allocation(out).stop_reason == "cancelled"
    assert b"interrupted" in err


def test_a_second_ctrl_c_gives_up() -> None:
    script = (
        "import os, signal, time\n"
        "from cpalloc.cli.interrupt import interruptible\n"
        "def stubborn(cancel):\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    cancel.wait(10)\n"
        "    time.sleep(0.2)\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    time.sleep(30)\n"
        "interruptible(stubborn)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, env=environment(), timeout=20)
    assert done.returncode == 130


def test_work_comes_back_with_its_result_or_its_error() -> None:
    assert interruptible(lambda cancel: cancel.is_set()) == (False, False)
    with pytest.raises(ZeroDivisionError):
        interruptible(lambda _: 1 // 0)
