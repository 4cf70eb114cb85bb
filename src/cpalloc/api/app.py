"""The FastAPI application."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from cpalloc.api import errors
from cpalloc.api.openapi import document
from cpalloc.api.pool import Pool
from cpalloc.api.routes import check, meta, solve
from cpalloc.api.settings import Settings
from cpalloc.api.state import State
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
        An application with a pool of threads of its own; the pool ends with the application's lifespan.
    """
    settings = settings or Settings()
    pool = Pool(threads=settings.max_concurrent_solves, queue=settings.max_queue)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        import cpalloc.engine  # noqa: F401 - loads the solver before the first round arrives

        pool.reopen()  # a lifespan may follow another
        yield
        await pool.close()

    app = FastAPI(
        title="cpalloc",
        version=__version__,
        summary="Optimization-based GPU allocation",
        redirect_slashes=False,
        lifespan=lifespan,
    )
    app.state.cpalloc = State(settings, pool)
    errors.install(app)
    for module in (solve, check, meta):
        app.include_router(module.router)
    app.openapi = lambda: document(app)  # type: ignore[method-assign]
    return app
