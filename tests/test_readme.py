"""What the README shows works: its blocks marked ``<!-- run -->`` are run, and its links lead somewhere."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]

BLOCKS = re.findall(r"^<!-- run(: serves)? -->\n```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
SHELL = "".join(text for serves, language, text in BLOCKS if language == "sh" and not serves)
PYTHON = [text for _, language, text in BLOCKS if language == "python"]
SERVES = [text for serves, _, text in BLOCKS if serves]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory in which the examples can be reached as in the README."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def run(command: list[str], place: Path, **env: str) -> str:
    """Run a command with this interpreter's scripts first on the path; whatever it leaves running is stopped."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    clean = {key: value for key, value in os.environ.items() if not key.startswith("CPALLOC_")}
    process = subprocess.Popen(
        command,
        cwd=place,
        env={**clean, "PATH": path, "COLUMNS": "120", **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=120)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, out + err
    return out


def test_there_is_something_to_run() -> None:
    assert "cpalloc solve examples/small.json" in SHELL
    assert "cpalloc generate" in SHELL
    assert len(PYTHON) == len(SERVES) == 1


def test_shell(place: Path) -> None:
    out = run(["bash", "-euo", "pipefail", "-c", SHELL], place)
    assert out.count("no rule is broken") == 2  # one a `check`
    for line in ("Preemptions (1, 2.0 GPU-hours lost)", "8 jobs on 4 nodes: 3 start, 3 kept, 1 preempted, 1 wait"):
        assert line in out
        assert line in README


def test_the_budgets_shown_are_those_solved(place: Path) -> None:
    out = run(["cpalloc", "solve", "examples/small.json"], place)
    shown = re.findall(r"^(?:research|training) .*%.*$", README, re.MULTILINE)
    assert len(shown) == 2
    assert set(shown) <= {line.rstrip() for line in out.splitlines()}


def test_python(place: Path) -> None:
    assert "optimal proved" in run([sys.executable, "-W", "error", "-c", PYTHON[0]], place)


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_http(place: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    out = run(["bash", "-euo", "pipefail", "-c", SERVES[0].replace("8000", port)], place, CPALLOC_PORT=port)
    assert '{"status":"ready"}' in out
    assert "no rule is broken" in out


@pytest.mark.parametrize("path", DOCS, ids=lambda p: p.name)
def test_links_lead_somewhere(path: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8"))
    missing = [t for t in targets if "://" not in t and not (path.parent / t).exists()]
    assert missing == []


@pytest.mark.parametrize("path", DOCS, ids=lambda p: p.name)
def test_modules_named_exist(path: Path) -> None:
    named = set(re.findall(r"`([\w/]+\.py)`", path.read_text(encoding="utf-8")))
    package = ROOT / "src" / "cpalloc"
    below = [ROOT, package, package / "problem", *(package / "models" / part for part in ("constraints", "objectives"))]
    assert {name for name in named if not any((folder / name).exists() for folder in below)} == set()
