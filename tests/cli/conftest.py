"""The command line as a shell runs it, and with an engine that the test holds in its hands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cpalloc.api.openapi import example
from cpalloc.cli import create_cli
from cpalloc.schema import Allocation, CheckReport, Round, parse_allocation, parse_round
from cpalloc.schema.examples import load

SRC = Path(__file__).parents[2] / "src"

# Scenarios to compare with a base: one that differs, and one that cannot be run.
OTHER = """
[[scenario]]
name = "own nodes"
policy = "partition"
"""
FAILING = """
[[scenario]]
name = "no such team"
weights = {nobody = 1}
"""


@dataclass
class FakeEngine:
    """Answers at once with the packaged answer, changed as told."""

    changes: dict[str, Any] = field(default_factory=dict)
    report: dict[str, Any] = field(default_factory=lambda: example("report"))
    rounds: list[Round] = field(default_factory=list)

    def read(self, document: Any) -> Round:
        return parse_round(document)

    def solve(self, round_: Round, *, cancel: Any = None, **_: Any) -> Allocation:
        self.rounds.append(round_)
        return parse_allocation({**example("allocation"), **self.changes})

    def check(self, round_: Round, allocation: Allocation) -> CheckReport:
        return CheckReport.model_validate(self.report)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    fake = FakeEngine()
    module: Any = ModuleType("cpalloc.engine")
    module.solve, module.check, module.Solver = fake.solve, fake.check, lambda: fake
    monkeypatch.setitem(sys.modules, "cpalloc.engine", module)
    return fake


Run = Callable[..., Result]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in this process; exceptions other than exits come through."""
    monkeypatch.delenv("CPALLOC_SERVER", raising=False)
    monkeypatch.setenv("COLUMNS", "120")

    def run_(*args: object, stdin: str | bytes | None = None) -> Result:
        result = CliRunner().invoke(create_cli(), list(map(str, args)), input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run_


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return put(tmp_path / "small.json", load("small"))


@pytest.fixture
def answer(tmp_path: Path) -> Path:
    return put(tmp_path / "answer.json", example("allocation"))


def put(path: Path, document: object) -> Path:
    path.write_text(json.dumps(document))
    return path


def shell(*args: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own."""
    command = [sys.executable, "-m", "cpalloc.cli", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=60, **options)


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(SRC), "COLUMNS": "120"}
