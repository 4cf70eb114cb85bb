"""What the routes share: the settings and the pools of an application."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from cpalloc.api.pool import Pool
from cpalloc.api.settings import Settings
from cpalloc.api.solvers import Solvers
from cpalloc.api.what_if.pool import WhatIfs


@dataclass(frozen=True, slots=True)
class State:
    """Settings, the pool of rounds with the solvers of its clusters, and that of what-ifs of one application."""

    settings: Settings
    pool: Pool
    solvers: Solvers
    what_ifs: WhatIfs


def state_of(request: Request) -> State:
    """Look up the state of the application that serves a request."""
    state: State = request.app.state.cpalloc
    return state


AppState = Annotated[State, Depends(state_of)]
