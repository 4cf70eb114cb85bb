"""``cpalloc compare``: scenarios over seeds, kept and gone on with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import polars as pl
import pytest

from cpalloc.sim.measures.registry import HEADLINE, MEASURES

from .conftest import FAILING, OTHER, Run, environment

LAB = Path(__file__).parents[2] / "examples" / "small-lab.toml"
BASE = f"""
title = "<What> if"
[base]
name = "now"
workload = "{LAB}"
policy = "priority"
until = "12h"
round_interval = "5m"
seeds = "1-2"
"""


@pytest.fixture
def scenarios(tmp_path: Path) -> Path:
    path = tmp_path / "what-if.toml"
    path.write_text(BASE + OTHER, encoding="utf-8")
    return path


def test_everything_that_comes_out(run: Run, scenarios: Path, tmp_path: Path) -> None:
    page, table, results = tmp_path / "page.html", tmp_path / "m.parquet", tmp_path / "results"
    options = ("--workers", 2, "--output", results, "--report", page, "--parquet", table)
    result = run("compare", scenarios, *options)
    assert result.exit_code == 0, result.stderr
    assert "small-lab (constructed), median of 2 seeds" in result.stdout
    assert "differences to now" in result.stdout
    assert len(result.stderr.splitlines()) == 4
    assert "4/4 " in result.stderr
    assert len(list(results.glob("*.json"))) == len(list(results.glob("*.cph"))) == 4

    text = page.read_text(encoding="utf-8")
    assert "&lt;What&gt; if" in text
    assert "<svg" in text
    assert "constructed" in text
    frame = pl.read_parquet(table)
    assert set(frame["scenario"]) == {"now", "own nodes"}
    assert set(frame["provenance"]) == {"constructed"}
    assert len(frame) == 4 * len(MEASURES)

    again = run("compare", scenarios, *options, "--json", "--seeds", "2")
    assert again.stderr == "2 of 2 were done already\n"
    comparison = json.loads(again.stdout)
    assert (comparison["base"], comparison["seeds"]) == ("now", [[2], [2]])
    assert {row["name"] for row in comparison["rows"]} == {m.name for m in MEASURES}
    everything = run("compare", scenarios, *options, "--all").stdout
    assert all(m.title in everything for m in MEASURES if m.name in HEADLINE)
    assert "models/vision" in everything
    assert "models/vision" not in result.stdout


def test_files_are_there_although_the_reader_of_the_table_hangs_up(
    run: Run, scenarios: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hangs_up(*_: object, **__: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(import_module("cpalloc.cli.compare"), "_show", hangs_up)
    page, table = tmp_path / "r.html", tmp_path / "r.parquet"
    with pytest.raises(BrokenPipeError):
        run("compare", scenarios, "--workers", 1, "--report", page, "--parquet", table)
    assert page.exists()
    assert table.exists()


def test_failures_are_told_and_the_rest_is_compared(run: Run, scenarios: Path) -> None:
    scenarios.write_text(BASE + FAILING, encoding="utf-8")
    result = run("compare", scenarios, "--workers", 1)
    assert result.exit_code == 5
    assert "small-lab (constructed)" in result.stdout
    assert (
        "error: 2 simulations failed\nno such team, seed 1; no such team, seed 2\n  weights.nobody: " in result.stderr
    )


def test_bad_input_and_wrong_usage(run: Run, scenarios: Path) -> None:
    scenarios.write_text(BASE.replace("12h", "soon"), encoding="utf-8")
    result = run("compare", scenarios)
    assert result.exit_code == 5
    assert "what-if.toml: base.until: must be a length of time" in result.stderr
    scenarios.write_text(BASE, encoding="utf-8")
    for options in (("--seeds", "3-1"), ("--address", "here"), ("--report", "/no/such/folder/r.html")):
        wrong = run("compare", scenarios, *options)
        assert wrong.exit_code == 2
        assert options[0] in wrong.stderr


def test_without_ray(run: Run, scenarios: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    result = run("compare", scenarios, "--engine", "ray")
    assert result.exit_code == 5
    assert "pip install 'cpalloc[ray]'" in result.stderr


def test_interrupted_it_goes_on_later_and_no_solver_is_loaded(scenarios: Path, tmp_path: Path) -> None:
    arguments = ["compare", str(scenarios), "-o", str(tmp_path / "r"), "--workers", "1", "--json", "--seeds", "1-4"]
    script = (
        f"import sys\nfrom cpalloc.cli import main\nsys.argv = ['cpalloc', *{arguments!r}]\n"
        "try:\n    main()\nfinally:\n    print('ortools' in sys.modules, file=sys.stderr)"
    )
    begun = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        start_new_session=True,
    )
    assert begun.stderr is not None
    assert "1/8 " in begun.stderr.readline()
    os.killpg(begun.pid, signal.SIGINT)  # as a terminal does: workers hear it, too
    out, err = begun.communicate(timeout=60)
    assert begun.returncode == 130, err
    assert "the same command goes on" in err
    assert "Traceback" not in err
    assert err.splitlines()[-1] == "False"
    done = sum(len(seeds) for seeds in json.loads(out)["seeds"])
    assert 1 <= done < 8

    finished = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment(), timeout=60
    )
    assert finished.returncode == 0, finished.stderr
    assert f"{done} of 8 were done already" in finished.stderr
    assert json.loads(finished.stdout)["seeds"] == [[1, 2, 3, 4], [1, 2, 3, 4]]
