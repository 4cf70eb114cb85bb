"""The examples run, and their rounds are solved to proof."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cpalloc import check, parse_round, solve

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(name: str, tmp_path: Path) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.json")), ids=lambda p: p.stem)
def test_rounds_are_proved_and_break_no_rule(path: Path) -> None:
    round_ = parse_round(path.read_bytes())
    answer = solve(round_)
    assert (answer.status, answer.stop_reason) == ("optimal", "proved")
    assert answer.warnings == ()
    assert check(round_, answer).violations == ()


def test_every_script_is_tested() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == {"quickstart.py", "fabric.py"}


def test_quickstart(tmp_path: Path) -> None:
    out = run("quickstart.py", tmp_path)
    # 8 GPUs x 15 min since the last checkpoint = 2 GPU-hours; the other borrowed job would lose 8 x 20 h.
    assert "sweep-a   preempt             2.0 GPU-hours lost, for pretrain" in out
    assert "as answered: 0 rules broken" in out
    assert "tampered: capacity:" in out
    assert "pretrain waits" in out.partition("without preemptions")[2]


def test_small_promises_the_gang_what_the_timeout_frees() -> None:
    answer = solve(parse_round((EXAMPLES / "small.json").read_bytes()))
    (promise,) = answer.reservations
    assert (promise.job, promise.domain.name, promise.nodes) == ("finetune", "r1", ("r1n0", "r1n1"))
    # `sft` started at 08:30 and is stopped after 4 h.
    assert promise.starts_by.strftime("%H:%M") == "12:30"


def test_fabric(tmp_path: Path) -> None:
    out = run("fabric.py", tmp_path)
    assert "fabric: levels block, 8 nodes" in out
    pods = [line for line in out.partition("fabric:")[2].splitlines() if "pretrain starts" in line]
    assert len(pods) == 1
    assert len({part.partition("-")[0] for part in pods[0].partition(" on ")[2].split(", ")}) == 1
    assert "there is no topology level 'rack'" in out
