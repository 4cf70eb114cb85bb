"""Settings of the service, read from ``CPALLOC_*``."""

from __future__ import annotations

import os
from decimal import Decimal
from typing import Annotated

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from cpalloc.schema import Decimal6

MEBIBYTE = 2**20


def usable_cores() -> int:
    """Cores this process may run on."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not every platform knows affinities
        return os.cpu_count() or 1


class Settings(BaseSettings):
    """How the service listens and how much it takes on.

    Attributes
    ----------
    host, port
        Where to listen.
    max_workers
        Most solver workers of one round; more are cut to it, except in deterministic rounds, whose answer may depend
        on their number.
    max_concurrent_solves
        Rounds solved (or checked) at once; by default as many as the cores carry at ``max_workers`` each.
    max_queue
        Rounds that may wait; beyond it the answer is 503.
    keep_clusters
        Clusters of which the last round is kept, to read the next one faster: 12 MB for one of 1,000 nodes, 200 MB
        at 20,000.
    max_body_bytes
        Largest request body.
    max_time_limit
        Longest time limit of a round in seconds; longer ones are cut to it.
    drain_s
        Seconds that rounds in hand have to finish after a SIGTERM; then they are cancelled.
    what_if_processes
        Simulations at once, each in a process that runs when nobody else wants to.
    what_if_queue
        What-ifs that may wait while one runs; beyond it the answer is 429.
    what_if_keep
        What-ifs that are over and kept; beyond it the oldest is forgotten.
    what_if_max_body_bytes
        Largest body of a what-if, its workload included.
    what_if_max_runs
        Most simulations of one what-if: scenarios times seeds.
    what_if_max_days
        Longest time a what-if may simulate, and most days of a lab.
    what_if_memory_bytes
        Most memory of one simulation.
    what_if_niceness
        How far simulations stand back for everything else on the machine: 19 furthest, 0 not at all.
    """

    model_config = SettingsConfigDict(env_prefix="CPALLOC_", frozen=True)

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8000
    max_workers: Annotated[int, Field(ge=1)] = 2
    max_concurrent_solves: Annotated[
        int, Field(ge=1, default_factory=lambda data: max(1, usable_cores() // data.get("max_workers", 1)))
    ]
    max_queue: Annotated[int, Field(ge=0)] = 16
    keep_clusters: Annotated[int, Field(ge=0)] = 4
    max_body_bytes: Annotated[int, Field(ge=1)] = 256 * MEBIBYTE
    max_time_limit: Annotated[Decimal6, Field(ge=Decimal("0.05"), le=3600)] = Decimal(3600)
    drain_s: Annotated[int, Field(ge=0)] = 60
    what_if_processes: Annotated[int, Field(ge=1)] = 1
    what_if_queue: Annotated[int, Field(ge=0)] = 8
    what_if_keep: Annotated[int, Field(ge=1)] = 20
    what_if_max_body_bytes: Annotated[int, Field(ge=1)] = 8 * MEBIBYTE
    what_if_max_runs: Annotated[int, Field(ge=1)] = 200
    what_if_max_days: Annotated[int, Field(ge=1)] = 366
    what_if_memory_bytes: Annotated[int, Field(ge=512 * MEBIBYTE)] = 4096 * MEBIBYTE
    what_if_niceness: Annotated[int, Field(ge=0, le=19)] = 19
