"""The service on a real socket, in a thread of the test."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from cpalloc.api.app import create_app
from cpalloc.api.server import Server
from cpalloc.api.settings import Settings


@contextmanager
def serving(settings: Settings) -> Iterator[tuple[str, Server]]:
    """Serve until the end of the block: the address, and the server to be told to end."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        server = Server(uvicorn.Config(create_app(settings), log_level="error", ws="none"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        while not server.started:
            time.sleep(0.005)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", server
        server.should_exit = True
        thread.join(60)
        assert not thread.is_alive()
