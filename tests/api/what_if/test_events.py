"""A what-if watched while it runs, over a real socket."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cpalloc.api.settings import Settings
from cpalloc.client import Client, ServerError

from .requests import PATH, endless, events, moving, quick
from .server import serving


@pytest.fixture
def url() -> Iterator[str]:
    with serving(Settings(host="127.0.0.1")) as (url, _):
        yield url
    assert multiprocessing.active_children() == []


def stream(url: str, id: str) -> Iterator[tuple[str, dict[str, Any]]]:
    with urllib.request.urlopen(f"{url}{PATH}/{id}/events", timeout=60) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        yield from events(line.decode().rstrip("\n") for line in response)


def test_everything_is_told_in_order(url: str) -> None:
    client = Client(url=url)
    before = client.post_what_if(endless())["id"]  # what is watched has not begun
    id = client.post_what_if(quick({"name": "other", "policy": "sjf"}, seeds="1-2"))["id"]
    watched = stream(url, id)
    name, status = next(watched)
    assert (name, status["state"], status["done"]) == ("status", "queued", 0)
    client.cancel_what_if(before)
    told = list(watched)
    names = [name for name, _ in told]
    assert names[-1] == "done"
    assert set(names[:-1]) == {"run", "progress"}
    runs = [(data["scenario"], data["seed"], data["state"]) for name, data in told if name == "run"]
    assert runs == [(scenario, seed, "done") for seed in (1, 2) for scenario in ("as it is", "other")]
    fractions = [data["fraction"] for name, data in told if name != "run"]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1
    done = [data["done"] for name, data in told if name != "run"]
    assert done == sorted(done)

    late = list(stream(url, id))
    assert [name for name, _ in late] == ["status", "done"]
    assert [run["state"] for run in late[0][1]["runs"]] == ["done"] * 4


def test_two_may_watch_and_one_may_leave(url: str) -> None:
    client = Client(url=url)
    id = client.post_what_if(endless())["id"]
    one, other = client.watch_what_if(id), client.watch_what_if(id)
    assert next(one)[0] == next(other)[0] == "status"
    while next(one)[0] != "run":
        pass
    one.close()  # type: ignore[attr-defined]
    late = client.watch_what_if(id)
    name, status = next(late)
    assert (name, status["state"], status["done"]) == ("status", "running", 1)
    while not moving(client.what_if(id)):  # who has not begun does not end
        time.sleep(0.02)
    client.cancel_what_if(id)
    for watched in (other, late):
        told = list(watched)
        assert told[-1][0] == "cancelled"
        assert [data["state"] for name, data in told if name == "run"][-1] == "cancelled"


def test_silence_is_broken(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setattr("cpalloc.api.what_if.events.KEEP_ALIVE_S", 0.001)
    client = Client(url=url)
    id = client.post_what_if(endless())["id"]
    for name, _ in stream(url, id):
        if name == ":":
            client.cancel_what_if(id)
    assert name == "cancelled"


def test_the_end_of_the_service_ends_a_stream() -> None:
    with serving(Settings()) as (url, server):
        client = Client(url=url)
        watched = client.watch_what_if(client.post_what_if(endless())["id"])
        while next(watched)[0] != "run":
            pass
        server.should_exit = True
        assert [name for name, _ in watched][-1] == "cancelled"
    assert multiprocessing.active_children() == []


def test_a_stream_that_breaks_off_is_told(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(url=url)
    monkeypatch.setattr("cpalloc.api.routes.what_if.events_of", lambda _: iter(()))
    id = client.post_what_if(quick())["id"]
    with pytest.raises(ServerError, match=f"may go on there: see {url}{PATH}/{id}"):
        list(client.watch_what_if(id))


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_leaves_no_process_and_no_file(number: signal.Signals, tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "cpalloc.cli", "serve", "--port", str(port)]
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    service = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert service.stderr is not None
        while "running on" not in service.stderr.readline():
            assert service.poll() is None
        client = Client(url=f"http://127.0.0.1:{port}")
        running, waiting = (client.watch_what_if(client.post_what_if(endless())["id"]) for _ in range(2))
        assert next(waiting)[1]["state"] == "queued"
        while next(running)[0] != "run":
            pass
        assert len(workers_of(service.pid)) == 1
        assert len(list(tmp_path.iterdir())) == 2
        service.send_signal(number)
        assert [name for name, _ in running][-1] == [name for name, _ in waiting][-1] == "cancelled"
        said = service.communicate(timeout=60)[1]
        assert "Traceback" not in said
    finally:
        service.kill()
        service.communicate()
    assert workers_of(service.pid) == []
    assert list(tmp_path.iterdir()) == []


def workers_of(session: int) -> list[int]:
    """Processes other than its leader of a session, which outlives its leader."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, rest = int(stat.parent.name), stat.read_text().rpartition(")")[2].split()
            command = (stat.parent / "cmdline").read_text()
        except OSError:
            continue  # it has just ended
        if int(rest[3]) == session and pid != session and rest[0] != "Z" and "spawn_main" in command:
            found.append(pid)
    return found
