"""What docs/what-if.md shows works: its blocks marked ``<!-- run -->`` are run, with fewer seeds and hours."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cpalloc.sim.policies.registry import POLICIES
from cpalloc.sim.scenario import Scenario

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "what-if.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^<!-- (run|shown) -->\n```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
SHELL = "".join(text for what, language, text in BLOCKS if (what, language) == ("run", "sh"))
PYTHON = [text for what, language, text in BLOCKS if (what, language) == ("run", "python")]
SHOWN = [line for what, _, text in BLOCKS if what == "shown" for line in text.splitlines()]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory in which the examples are as in the page, but for one seed and half a day."""
    folder = tmp_path_factory.mktemp("what-if")
    shutil.copytree(ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    path = folder / "examples" / "what-if.toml"
    text = path.read_text(encoding="utf-8")
    for long, short in (('seeds = "1-3"', 'seeds = "1"'), ('until = "2d"', 'until = "12h"')):
        assert long in text
        text = text.replace(long, short)
    path.write_text(text, encoding="utf-8")
    return folder


def run(command: list[str], place: Path) -> str:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    env = {**os.environ, "PATH": path, "COLUMNS": "120"}
    done = subprocess.run(command, cwd=place, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_shell(place: Path) -> None:
    assert SHELL.count("cpalloc simulate ") == 3
    assert SHELL.count("cpalloc compare ") == 2
    out = run(["bash", "-euo", "pipefail", "-c", SHELL.replace("--seeds 1-3", "--seeds 1")], place)
    lines = {" ".join(line.split()) for line in out.splitlines()}
    assert [line for line in SHOWN if " ".join(line.split()) not in lines] == []
    assert len(SHOWN) > 3
    comparison = json.loads((place / "comparison.json").read_text(encoding="utf-8"))
    assert comparison["scenarios"] == ["as it is", "own nodes", "budgets", "two nodes fewer"]
    assert comparison["provenance"] == "constructed"
    assert "<svg" in (place / "what-if.html").read_text(encoding="utf-8")


def test_python(place: Path) -> None:
    out = run([sys.executable, "-W", "error", "-c", PYTHON[0]], place)
    assert out.startswith("constructed Difference(")


def test_every_key_is_named() -> None:
    keys = set(re.findall(r"`(\w+)`", PAGE))
    assert set(Scenario.model_fields) - {"start_timeout"} <= keys


def test_every_policy_is_named_with_what_it_takes() -> None:
    rows = re.findall(r"^\| (`.*?) \| .*? \| (.*?) \|$", PAGE, re.MULTILINE)
    said = {
        name: set(re.findall(r"`([\w-]+)`", takes)) for names, takes in rows for name in re.findall(r"`(.*?)`", names)
    }
    assert {name: said[name] for name in POLICIES} == {name: set(kind.takes) for name, kind in POLICIES.items()}
