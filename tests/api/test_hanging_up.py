"""A client that hangs up cancels its solve, running or waiting."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest

from cpalloc.api.app import create_app
from cpalloc.api.errors import BusyError, GoneError
from cpalloc.api.pool import Pool
from cpalloc.api.settings import Settings
from cpalloc.schema.examples import load

from .conftest import FakeEngine


async def never() -> None:
    await asyncio.Event().wait()


async def until(condition: Any) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.002)


class Connection:
    """An HTTP request as uvicorn hands it over, with a client that may hang up."""

    def __init__(self, body: bytes) -> None:
        self.incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.incoming.put_nowait({"type": "http.request", "body": body, "more_body": False})
        self.sent: list[dict[str, Any]] = []

    def hang_up(self) -> None:
        self.incoming.put_nowait({"type": "http.disconnect"})

    async def serve(self, app: Any) -> None:
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
            "path": "/v1/solve", "raw_path": b"/v1/solve", "query_string": b"", "root_path": "", "headers": [],
            "client": ("test", 1), "server": ("test", 80),
        }  # fmt: skip

        async def send(message: dict[str, Any]) -> None:
            self.sent.append(message)

        await app(scope, self.incoming.get, send)


def test_hanging_up_cancels_running_and_waiting_solves(engine: FakeEngine) -> None:
    engine.blocking = True

    async def scenario() -> None:
        app = create_app(Settings(max_concurrent_solves=1, max_queue=4))
        pool = app.state.cpalloc.pool
        running, waiting = (Connection(json.dumps(load("small")).encode()) for _ in range(2))
        tasks = [asyncio.create_task(running.serve(app))]
        await until(lambda: engine.rounds)
        tasks.append(asyncio.create_task(waiting.serve(app)))
        await until(lambda: pool.in_hand == 2)
        waiting.hang_up()
        await tasks[1]
        await until(lambda: pool.in_hand == 1)
        assert not engine.cancelled.is_set()
        running.hang_up()
        await tasks[0]
        await until(lambda: pool.in_hand == 0)
        assert engine.cancelled.is_set()
        assert len(engine.rounds) == 1
        await pool.close()

    asyncio.run(scenario())


def test_hanging_up_before_the_body_is_there_solves_nothing(engine: FakeEngine) -> None:
    async def scenario() -> None:
        app = create_app(Settings(max_concurrent_solves=1))
        connection = Connection(b"")
        connection.incoming.get_nowait()
        connection.hang_up()
        await connection.serve(app)
        assert connection.sent[0]["status"] == 499
        await app.state.cpalloc.pool.close()

    asyncio.run(scenario())
    assert not engine.rounds


def test_a_place_is_taken_until_its_thread_is_done() -> None:
    async def scenario() -> None:
        pool, stubborn, gone = Pool(threads=1, queue=0), threading.Event(), asyncio.Event()
        task = asyncio.create_task(pool.run(lambda _: stubborn.wait(10), hung_up=gone.wait))
        await until(lambda: pool.in_hand == 1)
        gone.set()
        with pytest.raises(GoneError):
            await task
        assert pool.full
        with pytest.raises(BusyError):
            await pool.run(lambda _: None, hung_up=never)
        stubborn.set()
        await until(lambda: not pool.full)
        await pool.close()
        assert pool.full
        pool.reopen()
        assert await pool.run(lambda _: 7, hung_up=never) == 7
        await pool.close()

    asyncio.run(scenario())


def test_closing_cancels_what_runs_and_what_waits() -> None:
    async def scenario() -> None:
        pool = Pool(threads=1, queue=1)
        tasks = [asyncio.create_task(pool.run(lambda cancel: cancel.wait(10), hung_up=never)) for _ in range(2)]
        await until(lambda: pool.in_hand == 2)
        await pool.close()
        assert await tasks[0] is True
        with pytest.raises(asyncio.CancelledError):
            await tasks[1]

    asyncio.run(scenario())


def test_errors_of_the_work_come_through() -> None:
    def broken(_: threading.Event) -> None:
        raise KeyError("x")

    async def scenario() -> None:
        pool = Pool(threads=1, queue=0)
        with pytest.raises(KeyError):
            await pool.run(broken, hung_up=never)
        assert await pool.run(lambda _: 7, hung_up=never) == 7
        await pool.close()

    asyncio.run(scenario())
