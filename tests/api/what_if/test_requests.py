"""What is refused, and how it is told."""

from __future__ import annotations

import json
import multiprocessing
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from cpalloc.api.settings import Settings
from cpalloc.api.what_if.request import read_what_if
from cpalloc.errors import InputError

from ..conftest import MakeClient
from ..test_errors import codes, problem_of
from .requests import PATH, lab, quick


@pytest.fixture
def client(make_client: MakeClient) -> TestClient:
    return make_client(what_if_max_runs=8, what_if_max_days=30)


def workload(**changes: Any) -> dict[str, Any]:
    given = {**quick()["base"]["workload"], **changes}
    return {key: value for key, value in given.items() if value is not None}


BAD: dict[str, tuple[dict[str, Any], list[tuple[str, str]]]] = {
    "nothing": ({}, [("missing", "base")]),
    "a field nobody knows": ({**quick(), "more": 1}, [("unknown_field", "more")]),
    "a long title": ({**quick(), "title": "x" * 201}, [("pattern", "title")]),
    "a title of another type": ({**quick(), "title": 5}, [("type", "title")]),
    "no workload": ({"base": {"policy": "fifo", "until": "1d"}}, [("missing", "base.workload")]),
    "a path": (quick(workload={"path": "/etc/passwd"}), [("unknown_field", "base.workload.path")]),
    "a short path": (quick(workload="lab.toml"), [("type", "base.workload")]),
    "a path in a scenario": (
        quick({"name": "x", "workload": {"path": "x.csv"}}),
        [("unknown_field", "scenario[0].workload.path")],
    ),
    "a name that is a path": (quick(workload=workload(name="../x")), [("pattern", "base.workload.name")]),
    "the name of a file of nodes": (quick(workload=workload(nodes="nodes.csv")), [("workload", "base.workload.nodes")]),
    "the name of a trace": (quick(workload=workload(trace="/etc/passwd")), [("workload", "base.workload.trace")]),
    "neither lab nor trace": (quick(workload={"nodes": 2}), [("workload", "base.workload")]),
    "lab and trace": (quick(workload={"lab": lab(), "trace": "a\nb"}), [("workload", "base.workload")]),
    "a lab with nodes": (quick(workload={"lab": lab(), "nodes": 2}), [("workload", "base.workload.nodes")]),
    "a lab with a recipe": (
        quick(workload={"lab": lab(), "recipe": {"teams": 2}}),
        [("recipe", "base.workload.recipe"), ("workload", "base.workload.recipe")],
    ),
    "another trace in a scenario": (
        quick({"name": "x", "workload": {"trace": "a\nb", "gpus_per_node": 4}}),
        [("workload", "scenario[0].workload.trace")],
    ),
    "a bad lab": (
        quick(workload={"lab": lab(demand=-1, cluster={**lab()["cluster"], "nodes": 0})}),
        [("range", "base.workload.lab.cluster.nodes"), ("range", "base.workload.lab.demand")],
    ),
    "a lab that contradicts itself": (
        quick(workload={"lab": lab(profiles={"trainer": {"debug": 1.0}})}),
        [
            ("no_team", "base.workload.lab.classes.gang"),
            ("no_team", "base.workload.lab.classes.single"),
            ("unknown_profile", "base.workload.lab.teams[2].profile"),
            ("unknown_profile", "base.workload.lab.teams[3].profile"),
        ],
    ),
    "a bad cell": (
        quick(workload=workload(trace="id,budget,submitted_s,replicas,gpus_per_replica,work_s\na,b,0,1,x,5\n")),
        [("value", "base.workload.trace")],
    ),
    "no trace at all": (quick(workload=workload(trace="a,b\n1,2\n")), [("format", "base.workload.trace")]),
    "a bad list of nodes": (quick(workload=workload(nodes="a,b,c\n1,2,3\n")), [("columns", "base.workload.nodes")]),
    "a bad event": (
        quick(workload=workload(events="at,node,state\n5,nowhere,down\n")),
        [("value", "base.workload.events")],
    ),
    "no end": (quick({"name": "x", "policy": "sjf"}, until=None), [("missing", "base.until")]),
    "no end in a scenario": (quick({"name": "x", "until": None}), [("missing", "scenario[0].until")]),
    "too long": (
        quick({"name": "x", "until": "32d"}, {"name": "y", "policy": "sjf"}, until="31d"),
        [("range", "base.until"), ("range", "scenario[0].until")],
    ),
    "too long a lab": (quick(workload={"lab": lab(days=31)}), [("range", "base.workload.lab.days")]),
    "too many seeds": (quick({"name": "x", "policy": "sjf"}, seeds="1-5"), [("too_many", "scenario")]),
    "too many scenarios": (quick(*({"name": f"{i}"} for i in range(8))), [("too_many", "scenario")]),
    "too many lists of seeds": (quick(seeds=["0-9999"] * 1_000), [("type", "base.seeds")]),
    "no policy": (quick({"name": "x", "policy": "best"}), [("unknown_policy", "scenario[0].policy.name")]),
    "text that is none": (quick(workload=workload(trace="a\n\ud800")), [("type", "base.workload.trace")]),
    "a name that is no text": (quick(name="\ud800"), [("type", "base.name")]),
    "all at once": (
        {"base": {"workload": "x", "policy": "no"}, "scenario": [{"policy": "fifo"}], "title": "\n"},
        [
            ("missing", "scenario[0].name"),
            ("pattern", "title"),
            ("type", "base.workload"),
            ("unknown_policy", "base.policy.name"),
        ],
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_run_is_422(client: TestClient, name: str) -> None:
    document, expected = BAD[name]
    response = client.post(PATH, content=json.dumps(document))
    assert sorted(codes(problem_of(response, 422))) == expected
    assert "/tmp" not in response.text
    assert client.get(PATH).json() == {"what_ifs": []}
    assert multiprocessing.active_children() == []


def test_a_path_is_told_what_to_send_instead(client: TestClient) -> None:
    (issue,) = client.post(PATH, json=BAD["a path"][0]).json()["issues"]
    assert issue["message"] == "names a file, and the service reads none; send its content as `lab` or `trace`"


def test_a_bad_cell_is_told_with_its_line(client: TestClient) -> None:
    (issue,) = client.post(PATH, json=BAD["a bad cell"][0]).json()["issues"]
    assert issue["message"] == "line 2: gpus_per_replica `x` must be a whole number of at least 1"


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 100_000])
def test_what_is_not_json_is_400(client: TestClient, body: bytes) -> None:
    assert codes(problem_of(client.post(PATH, content=body), 400)) == [("json", "")]


def test_what_is_no_object_is_422(client: TestClient) -> None:
    assert codes(problem_of(client.post(PATH, json=[1]), 422)) == [("type", "")]


@pytest.mark.parametrize("depth", [200, 900])
def test_deep_nesting_is_no_bug(client: TestClient, depth: int) -> None:
    deep: Any = 1
    for _ in range(depth):
        deep = {"a": deep}
    response = client.post(PATH, json=quick({"name": "x", "weights": deep}, weights=deep))
    assert response.status_code in (400, 422), response.text


def test_large_bodies_are_413_announced_or_not(make_client: MakeClient) -> None:
    client = make_client(what_if_max_body_bytes=100)

    def chunks() -> Iterator[bytes]:
        yield b" " * 60
        yield b" " * 60

    problem_of(client.post(PATH, content=b" " * 101), 413)
    problem_of(client.post(PATH, content=chunks()), 413)
    problem_of(client.post(PATH, content=b" " * 100), 400)


def test_contents_go_to_files_of_the_services_naming(tmp_path: Path) -> None:
    nodes, events = "name,gpus\na,8\nb,8\n", "at,node,state\n60,a,down\n"
    document = quick({"name": "fewer", "workload": {"nodes": 1}}, workload=workload(nodes=nodes, events=events))
    title, tasks, origins = read_what_if(json.dumps(document).encode(), tmp_path, Settings())
    written = {p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file()}
    assert title == "What if"
    assert written == {"inputs/trace/two-teams.csv", "inputs/base/nodes.csv", "inputs/base/events.csv"}
    assert {Path(path).relative_to(tmp_path).as_posix() for path in origins.places} == written
    base, fewer = (task.scenario.workload for task in tasks)
    assert (base.nodes, fewer.nodes, fewer.path) == (tmp_path / "inputs/base/nodes.csv", 1, base.path)
    assert base.path.read_text(encoding="utf-8") == document["base"]["workload"]["trace"]
    assert {task.folder for task in tasks} == {tmp_path / "results"}


def test_nothing_is_left_of_what_was_refused(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    problem_of(client.post(PATH, json=BAD["a bad cell"][0]), 422)
    assert list(tmp_path.iterdir()) == []


def test_a_request_is_read_without_starting_anything(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        read_what_if(b"{}", tmp_path, Settings())


def test_the_service_loads_no_simulator() -> None:
    heavy = ("pandas", "polars", "numpy", "ray", "altair", "ortools", "cpalloc.sim", "cpalloc.report")
    script = f"import sys, cpalloc.api.app\nprint([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


def test_simulations_stand_back_for_everything_else_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CPALLOC_WHAT_IF_NICENESS")
    assert Settings().what_if_niceness == 19
