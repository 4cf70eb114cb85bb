"""What-ifs from the queue to their result, and what is left of those that fail, are cancelled or are forgotten."""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import signal
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from cpalloc.api.what_if.request import read_what_if
from cpalloc.cli import create_cli
from cpalloc.schema.examples import load

from ..conftest import MakeClient
from ..test_errors import problem_of
from .requests import EXAMPLES, PATH, endless, lab, moving, over, posted, quick, timeless, until


@pytest.fixture
def client(make_client: MakeClient) -> TestClient:
    return make_client()


def labels(runs: list[dict[str, Any]]) -> list[tuple[str, int, str]]:
    return [(run["scenario"], run["seed"], run["state"]) for run in runs]


def test_it_comes_to_the_same_as_compare(make_client: MakeClient, tmp_path: Path) -> None:
    base = (
        'name = "now"\nworkload = "lab.toml"\npolicy = "priority"\nuntil = "12h"\nround_interval = "5m"\nseeds = "1-2"'
    )
    changes = (
        '[[scenario]]\nname = "own nodes"\npolicy = "partition"\n[[scenario]]\nname = "few"\nnodes = 0.5\nseeds = [2]'
    )
    (tmp_path / "lab.toml").write_bytes((EXAMPLES / "small-lab.toml").read_bytes())
    (tmp_path / "what-if.toml").write_text(f'title = "Mine"\n[base]\n{base}\n{changes}\n', encoding="utf-8")
    arguments = ["compare", str(tmp_path / "what-if.toml"), "--workers", "1", "--json"]
    compared = CliRunner().invoke(create_cli(), arguments)

    document = {
        "title": "Mine",
        "base": {
            "name": "now",
            "workload": {"lab": lab()},
            "policy": "priority",
            "until": "12h",
            "round_interval": "5m",
            "seeds": "1-2",
        },
        "scenario": [{"name": "own nodes", "policy": "partition"}, {"name": "few", "nodes": 0.5, "seeds": [2]}],
    }
    client = make_client(what_if_processes=2)
    path = posted(client, document)
    status = over(client, path)
    assert (status["state"], status["title"], status["fraction"]) == ("done", "Mine", 1)
    assert (status["total"], status["done"], status["failed"]) == (5, 5, 0)
    assert {run["simulated_s"] for run in status["runs"]} == {12 * 3_600}
    result = client.get(f"{path}/result").json()
    assert (result["complete"], result["missing"], result["state"]) == (True, [], "done")
    assert timeless(result["comparison"]) == timeless(json.loads(compared.stdout))


def test_cancelling_keeps_what_is_there(make_client: MakeClient) -> None:
    client = make_client(what_if_memory_bytes=2**30, what_if_niceness=7)
    path = posted(client, endless())
    status = until(client, path, moving)
    assert (status["state"], status["done"]) == ("running", 1)
    assert 0 < status["runs"][1]["simulated_s"] < 366 * 86_400
    assert 0.5 <= status["fraction"] < 1
    (worker,) = multiprocessing.active_children()
    assert os.getpriority(os.PRIO_PROCESS, worker.pid or 0) == min(19, os.getpriority(os.PRIO_PROCESS, 0) + 7)
    if hasattr(resource, "prlimit"):
        assert resource.prlimit(worker.pid or 0, resource.RLIMIT_DATA)[0] == 2**30

    cancelled = client.delete(path)
    assert (cancelled.status_code, cancelled.json()["state"]) == (200, "cancelled")
    assert multiprocessing.active_children() == []
    assert labels(cancelled.json()["runs"]) == [("base", 0, "done"), ("endless", 0, "cancelled")]
    again = client.delete(path)
    assert (again.status_code, again.json()) == (200, cancelled.json())
    result = client.get(f"{path}/result").json()
    assert (result["state"], result["complete"]) == ("cancelled", False)
    assert result["missing"] == [{"scenario": "endless", "seed": 0, "state": "cancelled"}]
    assert result["comparison"]["scenarios"] == ["base"]


def test_rounds_are_solved_meanwhile(client: TestClient) -> None:
    path = posted(client, endless())
    until(client, path, moving)
    solved = client.post("/v1/solve", json=load("small"))
    assert (solved.status_code, solved.json()["status"]) == (200, "optimal")
    assert client.get("/readyz").status_code == 200
    assert client.get(path).json()["state"] == "running"
    assert client.get(f"{path}/result").json()["missing"] == [{"scenario": "endless", "seed": 0, "state": "running"}]


def test_they_take_turns_and_the_queue_is_bounded(make_client: MakeClient) -> None:
    client = make_client(what_if_queue=1)
    first = posted(client, endless())
    second = posted(client, quick())
    refused = client.post(PATH, json=quick())
    assert "2 what-ifs run or wait already" in problem_of(refused, 429)["detail"]
    assert 1 <= int(refused.headers["retry-after"]) <= 3_600
    listed = client.get(PATH).json()["what_ifs"]
    assert [w["links"]["self"] for w in listed] == [second, first]

    until(client, first, moving)
    assert client.get(second).json()["state"] == "queued"
    nothing = client.get(f"{second}/result").json()
    assert (nothing["comparison"], nothing["complete"], nothing["missing"][0]["state"]) == (None, False, "queued")
    assert client.delete(second).json()["state"] == "cancelled"
    assert client.get(first).json()["state"] == "running"

    third = posted(client, quick())
    assert client.delete(first).json()["state"] == "cancelled"
    assert over(client, third)["state"] == "done"


def test_a_service_that_ends_takes_no_more(client: TestClient) -> None:
    path = posted(client, endless())
    until(client, path, moving)
    client.app.state.cpalloc.what_ifs.drain()  # type: ignore[attr-defined]
    refused = client.post(PATH, json=quick())
    assert "shutting down" in problem_of(refused, 503)["detail"]
    assert int(refused.headers["retry-after"]) >= 1
    assert over(client, path)["state"] == "cancelled"
    assert multiprocessing.active_children() == []


def test_the_end_of_the_service_is_the_end_of_all(
    make_client: MakeClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    client = make_client()
    until(client, posted(client, endless()), moving)
    waiting = posted(client, quick())
    assert len(list(tmp_path.iterdir())) == 2
    client.__exit__(None, None, None)
    assert multiprocessing.active_children() == []
    assert list(tmp_path.iterdir()) == []
    client.__enter__()  # a lifespan may follow another
    assert client.get(waiting).status_code == 404
    assert over(client, posted(client, quick()))["state"] == "done"


def test_the_oldest_is_forgotten(make_client: MakeClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    client = make_client(what_if_keep=1)
    first, second = (posted(client, quick()) for _ in range(2))
    over(client, second)
    for response in (
        client.get(first),
        client.delete(first),
        client.get(f"{first}/result"),
        client.get(f"{first}/events"),
    ):
        assert "the last 1 are kept" in problem_of(response, 410)["detail"]
    assert client.get(f"{second}/result").json()["complete"]
    assert len(list(tmp_path.iterdir())) == 1
    for response in (client.get(f"{PATH}/nothing"), client.get(f"{PATH}/nothing/events"), client.delete(f"{PATH}/..x")):
        assert "there is no what-if" in problem_of(response, 404)["detail"]


def test_the_oldest_is_the_one_that_ended_first(make_client: MakeClient) -> None:
    client = make_client(what_if_keep=1)
    long, waiting = posted(client, endless()), posted(client, quick())
    assert client.delete(waiting).json()["state"] == "cancelled"
    assert client.delete(long).json()["state"] == "cancelled"
    assert client.get(long).status_code == 200
    assert client.get(waiting).status_code == 410


def test_what_arrives_while_the_service_ends_is_refused(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def read(*arguments: Any) -> Any:
        client.app.state.cpalloc.what_ifs.drain()  # type: ignore[attr-defined]
        return read_what_if(*arguments)

    monkeypatch.setattr("cpalloc.api.what_if.pool.read_what_if", read)
    problem_of(client.post(PATH, json=quick()), 503)
    assert client.get(PATH).json() == {"what_ifs": []}
    assert list(tmp_path.iterdir()) == []


def test_a_failing_run_loses_no_other(client: TestClient) -> None:
    document = quick(
        {"name": "no such team", "weights": {"nobody": 1}}, {"name": "other", "policy": "sjf"}, seeds="1-2"
    )
    path = posted(client, document)
    status = over(client, path)
    assert (status["state"], status["done"], status["failed"], status["fraction"]) == ("done", 4, 2, 1)
    failed = [run for run in status["runs"] if run["state"] == "failed"]
    assert {(run["scenario"], run["issues"][0]["code"], run["issues"][0]["path"]) for run in failed} == {
        ("no such team", "unknown_budget", "weights.nobody")
    }
    result = client.get(f"{path}/result").json()
    assert result["comparison"]["scenarios"] == ["as it is", "other"]
    assert labels(result["missing"]) == [("no such team", 1, "failed"), ("no such team", 2, "failed")]


def test_names_that_are_nearly_the_same_are_two_scenarios(client: TestClient) -> None:
    path = posted(client, quick({"name": "Now!"}, {"name": "now?"}))
    status = over(client, path)
    assert (status["state"], status["done"]) == ("done", 3)
    assert client.get(f"{path}/result").json()["comparison"]["scenarios"] == ["as it is", "Now!", "now?"]


def test_what_has_no_result_at_all_has_failed(client: TestClient) -> None:
    path = posted(client, quick(weights={"nobody": 1}))
    assert over(client, path)["state"] == "failed"
    assert client.get(f"{path}/result").json()["comparison"] is None


def test_what_a_scenario_brings_is_told_in_the_words_of_the_request(client: TestClient) -> None:
    status = over(client, posted(client, quick({"name": "x", "workload": {"nodes": "name,gpus\na,none\n"}})))
    run = status["runs"][1]
    (issue,) = run["issues"]
    assert (issue["path"], issue["code"]) == ("scenario[0].workload.nodes", "value")
    assert issue["message"].startswith("line 2: gpus `none` must be a whole number")
    assert run["message"].startswith("scenario[0].workload.nodes:2: ")
    assert "cpalloc-what-if" not in json.dumps(status)


def test_a_process_that_dies_takes_no_other_run_along(client: TestClient) -> None:
    document = endless()
    document["scenario"].append({"name": "after", "policy": "sjf", "until": "1h"})
    path = posted(client, document)
    until(client, path, lambda status: bool(status["runs"][1]["simulated_s"]))
    (worker,) = multiprocessing.active_children()
    os.kill(worker.pid or 0, signal.SIGKILL)
    status = over(client, path)
    assert (status["state"], status["done"], status["failed"]) == ("done", 2, 1)
    assert "killed, perhaps for want of memory" in status["runs"][1]["message"]


def test_a_bug_in_a_sweep_is_a_failure(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cpalloc.sim.sweep.sweep", lambda *_, **__: 1 / 0)
    path = posted(client, quick())
    assert over(client, path)["state"] == "failed"
    monkeypatch.undo()
    assert over(client, posted(client, quick()))["state"] == "done"


def test_the_page(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    path = posted(client, {**quick({"name": "budgets", "policy": "fair-share"}), "title": "<What> if"})
    blocked = posted(client, endless())
    assert over(client, path)["state"] == "done"
    until(client, blocked, lambda status: status["state"] == "running")
    client.delete(blocked)
    page = client.get(f"{path}/result?format=html")
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "&lt;What&gt; if" in page.text
    assert "<svg" in page.text
    monkeypatch.setattr("cpalloc.api.what_if.page.Painter._draw", None)  # the second time it is there
    assert client.get(f"{path}/result?format=html").content == page.content
    problem_of(client.get(f"{path}/result?format=pdf"), 422)


def test_there_is_no_page_of_nothing(client: TestClient) -> None:
    path = posted(client, quick(weights={"nobody": 1}))
    over(client, path)
    assert "nothing to draw" in problem_of(client.get(f"{path}/result?format=html"), 409)["detail"]


def test_no_page_is_drawn_while_the_service_ends(client: TestClient) -> None:
    path = posted(client, quick())
    over(client, path)
    client.app.state.cpalloc.what_ifs.drain()  # type: ignore[attr-defined]
    problem_of(client.get(f"{path}/result?format=html"), 503)
    assert client.get(f"{path}/result").json()["complete"]


def test_a_page_that_is_drawn_when_the_service_ends_is_given_up(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = posted(client, quick())
    over(client, path)
    painter = client.app.state.cpalloc.what_ifs._painter  # type: ignore[attr-defined]
    start = multiprocessing.context.SpawnProcess.start

    def stopped(process: Any) -> None:
        start(process)
        painter.stop()

    monkeypatch.setattr("multiprocessing.context.SpawnProcess.start", stopped)
    problem_of(client.get(f"{path}/result?format=html"), 503)
    assert multiprocessing.active_children() == []


def test_a_page_that_cannot_be_drawn_is_told(client: TestClient, tmp_path: Path) -> None:
    path = posted(client, quick())
    over(client, path)
    job = client.app.state.cpalloc.what_ifs.job(path.rsplit("/", 1)[1])  # type: ignore[attr-defined]
    for history in job.folder.rglob("*.cph"):
        history.write_bytes(b"broken")
    assert "could not be drawn" in problem_of(client.get(f"{path}/result?format=html"), 500)["detail"]
