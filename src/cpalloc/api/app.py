"""The FastAPI application."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from cpalloc.api import errors
from cpalloc.api.openapi import document
from cpalloc.api.pool import Pool
from cpalloc.api.routes import check, meta, solve, what_if
from cpalloc.api.settings import Settings
from cpalloc.api.solvers import Solvers
from cpalloc.api.state import State
from cpalloc.api.what_if.pool import WhatIfs
from cpalloc.version import __version__


def create_app(settings: Settings | None = None) -> FastAPI:
    """Build the service.

    Parameters
    ----------
    settings : Settings, optional
        By default those of the environment.

    Returns
    -------
    FastAPI
        An application with pools of its own, of threads for rounds and of processes for what-ifs; they end with the
        application's lifespan.
    """
    settings = settings or Settings()
    pool = Pool(threads=settings.max_concurrent_solves, queue=settings.max_queue)
    what_ifs = WhatIfs(settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        import cpalloc.engine  # noqa: F401 - loads the solver before the first round arrives

        pool.reopen()  # a lifespan may follow another
        what_ifs.reopen()
        yield
        what_ifs.drain()  # at once: rounds that are finishing need the cores
        await pool.close()
        await what_ifs.close()

    app = FastAPI(
        title="cpalloc",
        version=__version__,
        summary="Optimization-based GPU allocation",
        redirect_slashes=False,
        lifespan=lifespan,
    )
    app.state.cpalloc = State(settings, pool, Solvers(settings.keep_clusters), what_ifs)
    errors.install(app)
    for module in (solve, check, what_if, meta):
        app.include_router(module.router)
    app.openapi = lambda: document(app)  # type: ignore[method-assign]
    return app
