"""What the service says of a what-if."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, Field

from cpalloc.errors import Issue


class State(StrEnum):
    """State of a what-if, or of one of its runs."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    """Of a what-if: every run was tried, and one at least is done."""
    FAILED = "failed"
    """Of a what-if: no run came to a result."""
    CANCELLED = "cancelled"

    @property
    def over(self) -> bool:
        """Whether nothing more will happen."""
        return self not in (State.QUEUED, State.RUNNING)


class Links(BaseModel):
    """Where there is more; the page is HTML, made of what is done when it is asked for."""

    self: str
    result: str
    page: str
    events: str


class WhatIfProgress(BaseModel):
    """How far a what-if is.

    ``fraction``: 0 … 1 of the simulated time of all runs. ``seconds``: since it began to run, or how long it ran.
    """

    id: str
    title: str
    state: State
    total: int = Field(description="Runs: scenarios times seeds.")
    done: int
    failed: int
    fraction: float
    seconds: float
    created_at: str
    links: Links


class WhatIfRun(BaseModel):
    """One scenario with one seed.

    ``simulated_s``: how far it is, in seconds of the workload. ``message`` and ``issues``: why it failed.
    """

    scenario: str
    seed: int
    state: State
    simulated_s: int
    seconds: float | None = None
    message: str | None = None
    issues: tuple[Issue, ...] = ()


class WhatIfStatus(WhatIfProgress):
    """How far a what-if is, run by run."""

    runs: tuple[WhatIfRun, ...]


class WhatIfList(BaseModel):
    """The what-ifs there are, the latest first."""

    what_ifs: tuple[WhatIfProgress, ...]


class MissingRun(BaseModel):
    """A run that is not in the comparison."""

    scenario: str
    seed: int
    state: State
