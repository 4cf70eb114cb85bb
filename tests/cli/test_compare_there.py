"""``cpalloc compare --server``: the same comparison from a service on a real socket."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api.what_if.requests import EXAMPLES, timeless
from api.what_if.server import serving
from cpalloc.api.settings import Settings
from cpalloc.cli.inlining import inlined
from cpalloc.client import Client
from cpalloc.errors import InputError
from cpalloc.sim.what_if import load_what_if

from .conftest import FAILING, OTHER, Run

BASE = """
title = "<What> if"
[base]
name = "now"
workload = {}
policy = "priority"
until = "6h"
round_interval = "5m"
seeds = "1-2"
"""
TRACE = "id,budget,submitted_s,replicas,gpus_per_replica,work_s\na,red,0,1,8,600\nb,blue,60,1,8,600\n"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(Settings(what_if_max_days=30)) as (url, _):
        yield url


def file(folder: Path, workload: str, more: str = "") -> Path:
    path = folder / "what-if.toml"
    path.write_text(BASE.replace("{}", workload) + OTHER + more, encoding="utf-8")
    return path


@pytest.fixture
def scenarios(tmp_path: Path) -> Path:
    return file(tmp_path, f'"{EXAMPLES / "small-lab.toml"}"')


def test_the_same_comes_of_it_there(url: str, run: Run, scenarios: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    there = run("compare", scenarios, "--server", url, "--json", "--report", page, "--seeds", "2,3")
    here = run("compare", scenarios, "--workers", 1, "--json", "--seeds", "2,3")
    assert (there.exit_code, here.exit_code) == (0, 0)
    assert timeless(json.loads(there.stdout)) == timeless(json.loads(here.stdout))
    assert [line.split(" after ")[0] for line in there.stderr.splitlines()] == [
        "1 now, seed 2: done",
        "2 own nodes, seed 2: done",
        "3 now, seed 3: done",
        "4 own nodes, seed 3: done",
    ]
    assert "&lt;What&gt; if" in page.read_text(encoding="utf-8")


def test_traces_are_sent_with_all_their_files(url: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / "my trace.csv.gz").write_bytes(gzip.compress(TRACE.encode()))
    (tmp_path / "nodes.csv").write_text("name,gpus\na,8\nb,8\n", encoding="utf-8")
    (tmp_path / "down.csv").write_text("at,node,state\n60,a,down\n", encoding="utf-8")
    other = '[[scenario]]\nname = "one"\nworkload = {nodes = 1, events = "none.csv"}\n'
    (tmp_path / "none.csv").write_text("at,node,state\n", encoding="utf-8")
    path = file(tmp_path, '{path = "my trace.csv.gz", nodes = "nodes.csv", events = "down.csv"}', other)
    body = inlined(path, load_what_if(path), overridden=False)
    assert body["base"]["workload"] == {
        "trace": TRACE,
        "name": "my-trace",
        "nodes": "name,gpus\na,8\nb,8\n",
        "events": "at,node,state\n60,a,down\n",
    }
    assert body["scenario"][1]["workload"] == {"nodes": 1, "events": "at,node,state\n"}
    (tmp_path / "none.csv").write_text("at,node,state\n0,n0000,ready\n", encoding="utf-8")
    assert "my-trace (trace)" in run("compare", path, "--server", url).stdout


def test_what_cannot_be_sent(tmp_path: Path) -> None:
    for name, message in (("trace.parquet", "write it as CSV"), ("no.csv", "cannot be read"), ("no.toml", "cannot be")):
        path = file(tmp_path, f'"{name}"')
        with pytest.raises(InputError, match=message):
            inlined(path, load_what_if(path), overridden=False)


def test_failures_there_are_told_here(url: str, run: Run, scenarios: Path) -> None:
    scenarios.write_text(scenarios.read_text(encoding="utf-8") + FAILING, encoding="utf-8")
    result = run("compare", scenarios, "--server", url)
    assert result.exit_code == 5
    assert "small-lab (constructed)" in result.stdout
    assert (
        "error: 2 simulations failed\nno such team, seed 1; no such team, seed 2\n  weights.nobody: " in result.stderr
    )
    scenarios.write_text((BASE + OTHER).replace("{}", '"lab.toml"').replace("6h", "31d"), encoding="utf-8")
    (scenarios.parent / "lab.toml").write_bytes((EXAMPLES / "small-lab.toml").read_bytes())
    refused = run("compare", scenarios, "--server", url)
    assert refused.exit_code == 5
    assert "base.until: is 31 days, and the service simulates at most 30" in refused.stderr


def test_ctrl_c_cancels_it_there(url: str, run: Run, scenarios: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Client.watch_what_if

    def interrupted(self: Client, id: str) -> Iterator[tuple[str, dict[str, Any]]]:
        for name, data in watch(self, id):
            yield name, data
            if name == "run":
                raise KeyboardInterrupt

    monkeypatch.setattr(Client, "watch_what_if", interrupted)
    scenarios.write_text(scenarios.read_text(encoding="utf-8").replace('"partition"', '"cpalloc"\nuntil = "30d"'))
    result = run("compare", scenarios, "--server", url, "--json")
    assert result.exit_code == 130
    assert json.loads(result.stdout)["scenarios"] == ["now"]
    assert "cancelled; what was done until then is compared" in result.stderr


def test_what_is_for_this_machine_is_refused(run: Run, scenarios: Path, tmp_path: Path) -> None:
    for options in (("--workers", 2), ("--output", tmp_path / "r"), ("--parquet", tmp_path / "p"), ("--engine", "ray")):
        result = run("compare", scenarios, "--server", "http://127.0.0.1:1", *options)
        assert result.exit_code == 2
        assert "not for --server" in " ".join(result.stderr.split())
    assert run("compare", scenarios, "--server", "http://127.0.0.1:1").exit_code == 6
