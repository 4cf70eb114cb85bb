"""What the routes share: the settings and the pool of an application."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from cpalloc.api.pool import Pool
from cpalloc.api.settings import Settings


@dataclass(frozen=True, slots=True)
class State:
    """Settings and pool of one application."""

    settings: Settings
    pool: Pool


def state_of(request: Request) -> State:
    """Look up the state of the application that serves a request."""
    state: State = request.app.state.cpalloc
    return state


AppState = Annotated[State, Depends(state_of)]
