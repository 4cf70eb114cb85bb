"""How the service is, and what it is."""

from __future__ import annotations

import platform
from http import HTTPStatus
from importlib.metadata import version as installed

from fastapi import APIRouter, Response
from pydantic import BaseModel

from cpalloc.api.documents import problems
from cpalloc.api.errors import problem
from cpalloc.api.state import AppState
from cpalloc.version import __version__

router = APIRouter(tags=["service"])


class Health(BaseModel):
    """State of the service in a word."""

    status: str


class Version(BaseModel):
    """Versions of the service and what it computes with, and the versions of the wire format it speaks."""

    cpalloc: str
    ortools: str
    python: str
    schema_versions: tuple[int, ...]


@router.get("/healthz", operation_id="healthz", summary="Whether the service runs")
async def healthz() -> Health:
    """Answer as long as the service runs."""
    return Health(status="ok")


@router.get(
    "/readyz",
    operation_id="readyz",
    summary="Whether the service takes rounds",
    response_model=Health,
    responses=problems(503),
)
async def readyz(state: AppState) -> Health | Response:
    """Answer 503 while the queue is full."""
    if state.pool.full:
        return problem(HTTPStatus.SERVICE_UNAVAILABLE, "the queue is full", headers={"Retry-After": "1"})
    return Health(status="ready")


@router.get("/version", operation_id="version", summary="What the service is")
async def version() -> Version:
    """Name the versions of everything that matters to an answer."""
    return Version(
        cpalloc=__version__,
        ortools=installed("ortools"),
        python=platform.python_version(),
        schema_versions=(1,),
    )
