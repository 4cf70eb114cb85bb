"""When a lab's teams submit: day and week, idle weeks and bursts, as a rate for every hour."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cpalloc.sim.lab.config import Activity, LabConfig
from cpalloc.sim.lab.streams import stream

FloatArray = npt.NDArray[np.float64]

_WEEK_H = 168


def hourly_rhythm(config: LabConfig) -> FloatArray:
    """Relative rate of every hour of the lab's days, mean 1, by the hour and the day of the week it falls on."""
    hours = np.arange(config.days * 24)
    hour = (config.start.hour + hours) % 24
    day = (config.start.weekday() + (config.start.hour + hours) // 24) % 7
    rate = np.asarray(config.rhythm.hourly)[hour] * np.asarray(config.rhythm.daily)[day]
    mean = float(rate.mean())
    return rate / mean if mean else np.ones_like(rate)


def team_activity(rng: np.random.Generator, activity: Activity, hours: int) -> FloatArray:
    """Relative rate of a team in every hour: 0 in its idle weeks, several times 1 in its bursts.

    A team that would be idle throughout works as if it never were.
    """
    weeks = -(-hours // _WEEK_H)
    works = rng.random(weeks) >= activity.idle_week
    rate = np.repeat(works.astype(np.float64), _WEEK_H)[:hours]
    for _ in range(rng.poisson(activity.bursts_per_week * weeks)):
        first = int(rng.integers(0, hours))
        length = round(24 * rng.uniform(*activity.burst_days))
        rate[first : first + length] *= rng.uniform(*activity.burst_factor)
    return rate if rate.any() else np.ones(hours)


class Calendar:
    """Draws submission times of teams."""

    def __init__(self, config: LabConfig, seed: int) -> None:
        hours = config.days * 24
        self._rhythm = hourly_rhythm(config)
        self._steps: dict[tuple[str, float], FloatArray] = {}
        self._activity = {
            f"{t.programme}/{t.name}": team_activity(
                stream(seed, "activity", t.programme, t.name), config.activity, hours
            )
            for t in config.teams
        }

    def draw(self, rng: np.random.Generator, team: str, strength: float) -> int:
        """Seconds since the start; ``strength`` 1 follows day and week fully, 0 not at all."""
        steps = self._steps.get((team, strength))
        if steps is None:
            rate = self._activity[team] * (strength * self._rhythm + (1 - strength))
            steps = np.cumsum(rate if rate.any() else np.ones_like(rate))
            self._steps[team, strength] = steps
        hour = int(np.searchsorted(steps, rng.random() * steps[-1], side="right"))
        return min(hour, len(steps) - 1) * 3_600 + int(rng.integers(0, 3_600))
