"""``cpalloc simulate``: options become a scenario, and results come out where they should."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from cpalloc.sim.history import History
from cpalloc.sim.keep import read_history
from cpalloc.sim.measures import Summary, summary
from cpalloc.sim.policies.registry import POLICIES
from cpalloc.sim.run import run_scenario
from cpalloc.sim.scenario import Scenario, parse_scenario

from .conftest import Run, environment

LAB = Path(__file__).parents[2] / "examples" / "small-lab.toml"
QUICK = ("--policy", "priority", "--until", "12h", "--round-interval", "5m")
TRACE = "id,submitted_s,work_s,replicas,gpus_per_replica,budget\na,0,60,1,8,x\nb,30,60,2,8,y\nc,90,600,1,1,x\n"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Scenario, int]]:
    """What is asked of the simulator, which answers with a short history."""
    seen: list[tuple[Scenario, int]] = []
    short = parse_scenario({"name": "s", "workload": str(LAB), "policy": "fifo", "until": "1h"})

    def run_(scenario: Scenario, seed: int, **_: Any) -> History:
        seen.append((scenario, seed))
        return run_scenario(short, 0)

    monkeypatch.setattr("cpalloc.sim.run.run_scenario", run_)
    return seen


def test_tables_history_and_page(run: Run, tmp_path: Path) -> None:
    result = run("simulate", LAB, *QUICK, "--history", tmp_path / "h.cph", "--report", tmp_path / "r.html")
    assert (result.exit_code, result.stderr) == (0, "")
    for part in (
        "priority on small-lab (constructed), seed 0",
        "occupancy",
        "models/vision",
        "nothing of it is measured",
    ):
        assert part in result.stdout
    history = read_history(tmp_path / "h.cph")
    assert (history.policy, history.end_s) == ("priority", 43_200)
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "constructed" in page
    assert "<svg" in page


def test_files_are_there_although_the_reader_of_the_table_hangs_up(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hangs_up(*_: Any, **__: Any) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(import_module("cpalloc.cli.simulate"), "_show", hangs_up)
    with pytest.raises(BrokenPipeError):
        run("simulate", LAB, *QUICK, "--history", tmp_path / "h.cph", "--report", tmp_path / "r.html")
    assert (tmp_path / "h.cph").exists()
    assert (tmp_path / "r.html").exists()


def test_json_is_the_summary(run: Run) -> None:
    result = run("simulate", LAB, *QUICK, "--seed", 3, "--json")
    scenario = parse_scenario(
        {"name": "s", "workload": str(LAB), "policy": "priority", "until": "12h", "round_interval": "5m"}
    )
    found = Summary.from_dict(json.loads(result.stdout))
    assert found.seed == 3
    assert found.delivery == summary(run_scenario(scenario, 3)).delivery


def test_options_become_a_scenario(run: Run, asked: list[tuple[Scenario, int]], tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(TRACE)
    (tmp_path / "recipe.toml").write_text("name = 'mine'\nteams = 3\n")
    result = run(
        *("simulate", tmp_path / "t.csv", "--policy", "fifo", "--seed", 7, "--placement", "fgd"),
        *("--until", "30d", "--round-interval", "60s", "--heartbeat", "PT10M", "--warm-up", "2d"),
        *("--nodes", 0.75, "--demand", 1.5, "--format", "cpalloc", "--nodes-file", 12),
        *("--recipe", tmp_path / "recipe.toml", "--events", tmp_path / "e.csv"),
        *("--set", "window=3d", "--set", "policy.partitioned=true", "--set", "weights.x=50", "--set", "prior=1h"),
    )
    assert result.exit_code == 0, result.stderr
    ((scenario, seed),) = asked
    assert seed == 7
    assert scenario == parse_scenario(
        {
            "name": "t",
            "workload": {
                "path": str(tmp_path / "t.csv"),
                "format": "cpalloc",
                "nodes": 12,
                "events": str(tmp_path / "e.csv"),
                "recipe": {"name": "mine", "teams": 3},
            },
            "policy": {"name": "fifo", "placement": "fgd", "partitioned": True},
            "until": 2_592_000,
            "round_interval": 60,
            "heartbeat": 600,
            "warm_up": 172_800,
            "prior": 3_600,
            "nodes": 0.75,
            "demand": 1.5,
            "window": 259_200,
            "weights": {"x": 50},
        }
    )


def test_a_trace_is_labelled_so(run: Run, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(TRACE)
    result = run("simulate", tmp_path / "t.csv", "--policy", "fifo", "--nodes-file", 4)
    assert result.exit_code == 0, result.stderr
    assert "fifo on t (trace), seed 0" in result.stdout
    assert "by recipe default, seed 0" in result.stdout


def test_policies_are_listed(run: Run) -> None:
    result = run("simulate", "--policy", "list")
    assert result.exit_code == 0
    assert all(name in result.stdout and kind.line in result.stdout for name, kind in POLICIES.items())
    assert all(name in run("simulate", "--help").stdout for name in POLICIES)


def test_bad_input_is_told_at_once(run: Run, tmp_path: Path) -> None:
    result = run("simulate", LAB, "--policy", "fifoo", "--until", "soon", "--nodes", 0, "--set", "colour=red")
    assert (result.exit_code, result.stdout) == (5, "")
    for part in ("4 things are wrong", "policy.name: `fifoo`", "until: must be", "nodes: ", "colour: is not a field"):
        assert part in result.stderr
    missing = run("simulate", tmp_path / "no.toml", "--policy", "fifo", "--json")
    assert missing.exit_code == 5
    assert json.loads(missing.stderr)["issues"][0]["code"] == "file"


@pytest.mark.parametrize(
    "options",
    [
        ("--resume",),
        ("--set", "window"),
        ("--history", "/no/such/folder/h.cph"),
        ("--report", "/"),
        ("--checkpoint", "/no/c"),
    ],
)
def test_wrong_usage(run: Run, asked: list[tuple[Scenario, int]], options: tuple[str, ...]) -> None:
    result = run("simulate", LAB, "--policy", "fifo", *options)
    assert (result.exit_code, asked) == (2, [])
    assert options[0] in result.stderr


def test_interrupted_and_resumed(run: Run, tmp_path: Path) -> None:
    lab, checkpoint = tmp_path / "lab.toml", tmp_path / "c"
    lab.write_text(LAB.read_text(encoding="utf-8").replace("days = 2", "days = 8"), encoding="utf-8")
    plain = ["simulate", str(lab), "--policy", "priority", "--until", "8d", "--json"]
    kept = [*plain, "--checkpoint", str(checkpoint), "--resume"]
    # Ctrl-C is pressed on the second day, which only the simulation itself knows
    script = (
        "import os, signal, sys\n"
        "from cpalloc.cli import main\n"
        "from cpalloc.sim.simulation import Simulation\n"
        "step, pressed = Simulation.step, []\n"
        "def press(self):\n"
        "    if self._state.now_s > 86_400 and not pressed:\n"
        "        pressed.append(os.kill(os.getpid(), signal.SIGINT))\n"
        "    return step(self)\n"
        "Simulation.step = press\n"
        f"sys.argv = ['cpalloc', *{kept!r}]\n"
        "main()"
    )
    stopped = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment(), timeout=60
    )
    assert stopped.returncode == 130, stopped.stderr
    assert "interrupted at day 1.0" in stopped.stderr
    assert "--resume goes on" in stopped.stderr
    assert Summary.from_dict(json.loads(stopped.stdout)).interrupted
    assert checkpoint.exists()

    resumed, straight = (Summary.from_dict(json.loads(run(*command).stdout)) for command in (kept, plain))
    assert (resumed.delivery, resumed.waits, resumed.jobs) == (straight.delivery, straight.waits, straight.jobs)
    assert (resumed.interrupted, resumed.end_s, checkpoint.exists()) == (False, 691_200, False)
