"""Help is quick, and loads nothing it does not need."""

from __future__ import annotations

import inspect
import resource
import subprocess
import sys
from dataclasses import fields

import pytest

from cpalloc.cli.generate import FamilyName, generate
from cpalloc.generate import Family, GeneratorConfig

from .conftest import Run, environment, shell

# typer loads pydantic by itself where a command has options
HEAVY = ("ortools", "pandas", "numpy", "networkx", "fastapi", "uvicorn", "cpalloc.engine", "cpalloc.schema")


@pytest.mark.parametrize("command", [[], ["solve"], ["check"], ["generate"], ["serve"], ["version"]])
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


def test_help_is_quick() -> None:
    def seconds() -> float:
        """Processor time, which is about the time it takes on a machine that does nothing else."""
        began = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert shell("--help").returncode == 0
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        return ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime

    assert min(seconds() for _ in range(5)) < 0.3


def test_every_command_is_listed(run: Run) -> None:
    text = run("--help").stdout
    assert all(command in text for command in ("solve", "check", "generate", "serve", "version"))


def test_the_options_of_generate_are_those_of_the_generator() -> None:
    assert [str(f) for f in FamilyName] == [str(f) for f in Family]
    knobs = {f.name: f.default for f in fields(GeneratorConfig)}
    options = {name: p.default for name, p in inspect.signature(generate).parameters.items()}
    shared = set(knobs) & set(options)
    assert len(shared) >= 20
    assert {name: options[name] for name in shared} == {name: knobs[name] for name in shared}
