"""``--server``: the same commands against a real service on a real socket."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn

from cpalloc.api.app import create_app
from cpalloc.api.openapi import example
from cpalloc.api.settings import Settings
from cpalloc.client import Client, ServerError
from cpalloc.errors import InputError
from cpalloc.schema import parse_allocation
from cpalloc.schema.examples import load

from .conftest import FakeEngine, Run, put, shell


@pytest.fixture
def url(engine: FakeEngine) -> Iterator[str]:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        config = uvicorn.Config(create_app(Settings(max_body_bytes=100_000)), log_level="error", ws="none")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        while not server.started:
            time.sleep(0.005)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        thread.join(10)


def test_solve_and_check_run_there(url: str, run: Run, small: Path, answer: Path, engine: FakeEngine) -> None:
    solved = run("solve", small, "--server", url, "--json", "--time-limit", 2)
    assert (solved.exit_code, solved.stderr) == (0, "")
    assert parse_allocation(solved.stdout) == parse_allocation(example("allocation"))
    assert engine.rounds[0].options.time_limit == 2
    assert "Starts (2)" in run("solve", small, "--server", url).stdout
    assert run("check", small, answer, "--server", url).exit_code == 0


def test_issues_come_back_whole(url: str, run: Run, tmp_path: Path, answer: Path) -> None:
    bad = put(tmp_path / "bad.json", {**load("small"), "now": "yesterday", "surprise": 1})
    for command in (["solve", bad], ["check", bad, answer]):
        result = run(*command, "--server", url)
        assert (result.exit_code, result.stdout) == (5, "")
        assert "now: must be RFC 3339" in result.stderr
        assert "surprise: " in result.stderr


def test_what_the_server_cannot_do_exits_with_6(url: str, run: Run, small: Path, tmp_path: Path) -> None:
    large = put(tmp_path / "large.json", {**load("small"), "x": "x" * 200_000})
    result = run("solve", large, "--server", url)
    assert result.exit_code == 6
    assert "HTTP 413" in result.stderr
    machine = run("solve", small, "--server", f"{url}/elsewhere", "--json")
    assert machine.exit_code == 6
    assert "HTTP 404" in json.loads(machine.stderr)["error"]


def test_no_server_exits_with_6(run: Run, small: Path) -> None:
    result = run("solve", small, "--server", "http://127.0.0.1:1")
    assert result.exit_code == 6
    assert "cannot reach" in result.stderr


def test_the_client_says_when_to_come_back(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cpalloc.api.pool.Pool.full", True)
    with pytest.raises(ServerError) as caught:
        Client(url=url).solve(load("small"))
    assert (caught.value.status, caught.value.retry_after_s) == (503, 1)


def test_the_client_passes_bytes_and_deadlines_on(url: str, engine: FakeEngine) -> None:
    Client(url=url).solve(json.dumps(load("small")).encode(), deadline_s=1.0)
    assert engine.rounds[0].options.time_limit <= 1
    with pytest.raises(InputError):
        Client(url=url).solve(b"{")


def test_a_server_that_is_not_ours(url: str) -> None:
    with pytest.raises(ServerError, match="is not cpalloc's"):
        Client(url=url)._answer(parse_allocation, b"<html>")


@pytest.mark.parametrize("url", ["", "localhost:8000", "ftp://x", "http://"])
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(ValueError, match="not an http or https address"):
        Client(url=url)


def test_a_port_that_is_taken_exits_with_6() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = shell("serve", "--port", taken.getsockname()[1])
    assert done.returncode == 6
    assert "address already in use" in done.stderr
