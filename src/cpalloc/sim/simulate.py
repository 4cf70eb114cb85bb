"""Replay a workload under a policy, from event to event."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from cpalloc.sim.checkpoint import Checkpoint
from cpalloc.sim.config import Progress, SimConfig
from cpalloc.sim.history import History
from cpalloc.sim.interrupt import heard
from cpalloc.sim.policies.base import Policy
from cpalloc.sim.simulation import Simulation
from cpalloc.sim.workload import Workload

REPORT_EVERY_S = 0.1
"""Wall clock between two calls of ``progress``."""


def simulate(
    workload: Workload,
    policy: Policy,
    *,
    config: SimConfig | None = None,
    progress: Callable[[Progress], None] | None = None,
    cancel: threading.Event | None = None,
    checkpoint: Path | None = None,
    checkpoint_every_s: float = 60.0,
    resume: bool = False,
) -> History:
    """Simulate a workload under a policy; the same arguments give the same history, up to the seconds rounds took.

    Parameters
    ----------
    workload : Workload
    policy : Policy
        A fresh one: policies keep queues of their own.
    config : SimConfig, optional
        Default: the site's default numbers, a round at every event, until nothing is left to happen.
    progress : callable, optional
        Told how far the simulation is, about ten times a second.
    cancel : threading.Event, optional
        Stops the simulation after the present instant once it is set; the history says ``interrupted``.
    checkpoint : Path, optional
        Where the simulation is kept, written whole or not at all, every ``checkpoint_every_s`` seconds of wall clock
        and when it is stopped. While there is one, Ctrl-C in the main thread stops as ``cancel`` does (pressed again:
        at once). A simulation that reaches its end removes the file.
    resume : bool
        Go on from the checkpoint if there is one. It is a pickle: resume your own only.

    Returns
    -------
    History
        Of all up to the end, or up to the interruption.

    Raises
    ------
    InputError
        When the workload cannot be simulated, or the checkpoint is of another simulation.
    IllegalMove
        When the policy decides what cannot be done or breaks its promises.
    """
    config = config or SimConfig()
    kept = Checkpoint(checkpoint, workload, config, policy) if checkpoint else None
    simulation = (kept.load() if kept and resume else None) or Simulation(workload, policy, config)
    with heard(cancel or threading.Event(), listen=kept is not None) as stop:
        finished = _run(simulation, stop, progress, kept, checkpoint_every_s)
    if kept:
        kept.remove() if finished else kept.save(simulation)
    return simulation.history(interrupted=not finished)


def _run(
    simulation: Simulation,
    stop: threading.Event,
    progress: Callable[[Progress], None] | None,
    kept: Checkpoint | None,
    checkpoint_every_s: float,
) -> bool:
    """Go from instant to instant; False when stopped before the end."""
    reported = saved = time.monotonic()
    while not stop.is_set():
        if not simulation.step():
            return True
        now = time.monotonic()
        if progress and now - reported >= REPORT_EVERY_S:
            progress(simulation.progress())
            reported = now
        if kept and now - saved >= checkpoint_every_s:
            kept.save(simulation)
            saved = time.monotonic()
    return False
