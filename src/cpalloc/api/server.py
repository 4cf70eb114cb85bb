"""The server: uvicorn's, which tells the service that it is to end before it waits for open connections."""

from __future__ import annotations

import socket

import uvicorn

from cpalloc.api.state import State


class Server(uvicorn.Server):
    """Ends what would keep it from ending.

    The end of an application's lifespan comes after all answers were sent, and a stream of events is an answer that
    takes as long as its what-if.
    """

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Cancel what-ifs, then let rounds finish."""
        state: State = self.config.app.state.cpalloc  # type: ignore[union-attr]
        state.what_ifs.drain()
        await super().shutdown(sockets)
