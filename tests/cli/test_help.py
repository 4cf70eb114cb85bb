"""Help is quick, and loads nothing it does not need."""

from __future__ import annotations

import inspect
import subprocess
import sys
from dataclasses import fields

import pytest

from cpalloc.cli.generate import FamilyName, generate
from cpalloc.generate import Family, GeneratorConfig

from .conftest import Run, environment

# typer loads pydantic by itself where a command has options
HEAVY = (
    *("ortools", "pandas", "numpy", "networkx", "fastapi", "uvicorn", "polars", "altair", "ray"),
    *("cpalloc.engine", "cpalloc.schema", "cpalloc.sim", "cpalloc.report"),
)
COMMANDS = ("solve", "check", "generate", "simulate", "compare", "serve", "version")


@pytest.mark.parametrize("command", [[], *([command] for command in COMMANDS)])
def test_help_loads_nothing_heavy(command: list[str]) -> None:
    script = (
        "import sys\nfrom cpalloc.cli import main\n"
        f"sys.argv = ['cpalloc', *{command!r}, '--help']\n"
        "try:\n    main()\nexcept SystemExit as stop:\n    assert not stop.code\n"
        f"print('LOADED', [m for m in {HEAVY!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment(), timeout=60)
    assert done.returncode == 0, done.stderr
    assert "Usage" in done.stdout
    assert "LOADED []" in done.stdout


def test_every_command_is_listed(run: Run) -> None:
    text = run("--help").stdout
    assert all(command in text for command in COMMANDS)


def test_the_options_of_generate_are_those_of_the_generator() -> None:
    assert [str(f) for f in FamilyName] == [str(f) for f in Family]
    knobs = {f.name: f.default for f in fields(GeneratorConfig)}
    options = {name: p.default for name, p in inspect.signature(generate).parameters.items()}
    shared = set(knobs) & set(options)
    assert len(shared) >= 20
    assert {name: options[name] for name in shared} == {name: knobs[name] for name in shared}


def test_the_package_runs_as_a_module() -> None:
    command = [sys.executable, "-m", "cpalloc", "--help"]
    told = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=60, check=True).stdout
    assert all(name in told for name in COMMANDS)
