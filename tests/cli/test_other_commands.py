"""``cpalloc check``, ``generate``, ``version`` and ``serve``."""

from __future__ import annotations

import json
import platform
from pathlib import Path

import pytest

from cpalloc.api.openapi import example
from cpalloc.generate import GeneratorConfig, generate_doc
from cpalloc.schema import parse_round
from cpalloc.version import __version__

from .conftest import FakeEngine, Run, put, shell

BROKEN = {
    "violations": [
        {"constraint": "capacity", "message": "GPU 0 of n1 is not free", "jobs": ["j-1", "j-2"], "nodes": ["n1"]},
        {"constraint": "gang", "message": "j-3 has 1 of 2 replicas", "jobs": ["j-3"], "nodes": []},
    ],
    "tiers": [],
}


def test_an_answer_without_fault(engine: FakeEngine, run: Run, small: Path, answer: Path) -> None:
    result = run("check", small, answer)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "no rule is broken" in result.stdout
    assert json.loads(run("check", small, answer, "--json").stdout) == example("report")


def test_broken_rules_exit_with_7(engine: FakeEngine, run: Run, small: Path, answer: Path) -> None:
    engine.report = BROKEN
    result = run("check", small, answer)
    assert result.exit_code == 7
    for part in ("Rules broken (2)", "capacity", "GPU 0 of n1 is not free", "j-[1-2]", "j-3 has 1 of 2 replicas"):
        assert part in result.stdout
    machine = run("check", small, answer, "--json")
    assert machine.exit_code == 7
    assert json.loads(machine.stdout)["violations"] == BROKEN["violations"]


def test_the_real_engine_finds_what_is_broken(small: Path, tmp_path: Path) -> None:
    allocation = example("allocation")
    started = next(d for d in allocation["decisions"] if d["job"] == "notebook-2")
    started["placement"] = [{"node": "r1n1", "gpus": [0]}]
    done = shell("check", small, "-", input=json.dumps(allocation))
    assert done.returncode == 7
    assert "capacity" in done.stdout


def test_an_allocation_that_is_none(engine: FakeEngine, run: Run, small: Path, tmp_path: Path) -> None:
    result = run("check", small, put(tmp_path / "a.json", {**example("allocation"), "status": "good"}))
    assert result.exit_code == 5
    assert "status: " in result.stderr
    result = run("check", small, "-", stdin="{")
    assert "allocation: is not JSON" in result.stderr


def test_a_generated_round_is_the_generators(run: Run, tmp_path: Path) -> None:
    result = run("generate", "--nodes", 16, "--seed", 3, "--family", "gang-heavy", "--odd-sizes", 0.5)
    assert (result.exit_code, result.stderr) == (0, "")
    config = GeneratorConfig(nodes=16, seed=3, family="gang-heavy", odd_sizes=0.5)
    assert json.loads(result.stdout) == generate_doc(config)
    parse_round(result.stdout)
    path = tmp_path / "round.json"
    written = run("generate", "--nodes", 16, "--gpu-type", "x", "--gpu-type", "y", "--indent", 1, "-o", path)
    assert written.stdout == ""
    assert {n["gpu_type"] for n in json.loads(path.read_text())["cluster"]["nodes"]} == {"x", "y"}


def test_knobs_that_do_not_fit_together_are_bad_input(run: Run) -> None:
    result = run("generate", "--nodes", 10**6, "--gpu-type", "x", "--gpu-type", "x")
    assert result.exit_code == 5
    assert "nodes: " in result.stderr
    assert "gpu_types: " in result.stderr


def test_version(run: Run) -> None:
    assert run("version").stdout.startswith(f"cpalloc {__version__}\nortools 9.15")
    versions = json.loads(run("version", "--json").stdout)
    assert versions["python"] == platform.python_version()
    assert versions["schema_versions"] == [1]


def test_settings_that_are_wrong_are_wrong_usage(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CPALLOC_MAX_QUEUE", "many")
    result = run("serve")
    assert result.exit_code == 2
    assert "CPALLOC_MAX_QUEUE" in result.stderr
