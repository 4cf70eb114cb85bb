"""The measures by which policies are compared: one tuple, in the order of the table."""

from __future__ import annotations

from dataclasses import dataclass

from cpalloc.sim.measures.quantiles import Quantile
from cpalloc.sim.measures.summary import Summary
from cpalloc.sim.measures.units import Direction, Unit

_HIGHER, _LOWER, _NEITHER = Direction.HIGHER, Direction.LOWER, Direction.NEITHER
_SHARE, _SECONDS, _GPU_HOURS, _COUNT = Unit.SHARE, Unit.SECONDS, Unit.GPU_HOURS, Unit.COUNT

_BUDGETS = "Budgets"
_CAPACITY = "Capacity"
_WAITS = "Wait until the first start"
_QUEUE = "Time in the queue, and slowdown"
_WORK = "Work"
_ROOM = "Room for gangs"
_JOBS = "Jobs"
_ROUNDS = "Rounds"


@dataclass(frozen=True, slots=True)
class Measure:
    """One figure of a summary: what it is called, where it stands, and how it is read.

    Parameters
    ----------
    name : str
        Key in JSON and Parquet.
    title : str
        Words in tables, under the heading ``group``.
    unit, direction
        How it is written, and which way is better.
    path : str
        Fields from :class:`Summary` down, joined by dots.
    """

    name: str
    title: str
    group: str
    unit: Unit
    direction: Direction
    path: str

    def read(self, summary: Summary) -> Quantile | None:
        """Value of the measure; None where the summary has none."""
        value: object = summary
        for field in self.path.split("."):
            if value is None:
                return None
            value = getattr(value, field)
        if value is None or isinstance(value, Quantile):
            return value
        if not isinstance(value, int | float):
            raise TypeError(f"{self.path} is no figure")
        return Quantile(float(value))


def _waits_of(field: str, title: str) -> tuple[Measure, ...]:
    return tuple(
        Measure(f"{field}_wait_{q}", f"{title}, {words}", _WAITS, _SECONDS, _LOWER, f"waits.{field}.first.{q}")
        for q, words in (("p50", "median"), ("p90", "p90"), ("p99", "p99"))
    )


MEASURES: tuple[Measure, ...] = (
    Measure("delivered", "delivered of owed, hour-capped", _BUDGETS, _SHARE, _HIGHER, "delivery.hour_capped"),
    Measure("delivered_total", "delivered of owed, total-capped", _BUDGETS, _SHARE, _HIGHER, "delivery.total_capped"),
    Measure("worst_budget", "worst budget, hour-capped", _BUDGETS, _SHARE, _HIGHER, "delivery.worst_hour_capped"),
    Measure("occupancy", "occupancy", _CAPACITY, _SHARE, _HIGHER, "capacity.occupancy"),
    Measure("availability", "availability", _CAPACITY, _SHARE, _NEITHER, "capacity.availability"),
    Measure("borrowed_share", "borrowed, of held", _CAPACITY, _SHARE, _NEITHER, "capacity.borrowed_share"),
    *_waits_of("debug", "debug"),
    *_waits_of("interactive", "interactive"),
    *_waits_of("single_node", "single-node"),
    *_waits_of("multi_node", "multi-node"),
    *_waits_of("large", "large"),
    *_waits_of("largest", "largest gangs"),
    *_waits_of("borrowed", "borrowed only"),
    *_waits_of("all", "all"),
    Measure("never_started", "never started", _WAITS, _COUNT, _LOWER, "waits.all.first.censored"),
    Measure("queued_p50", "queue in all, median", _QUEUE, _SECONDS, _LOWER, "waits.all.queued.p50"),
    Measure("queued_p90", "queue in all, p90", _QUEUE, _SECONDS, _LOWER, "waits.all.queued.p90"),
    Measure("queued_mean", "queue in all, mean", _QUEUE, _SECONDS, _LOWER, "waits.all.queued.mean"),
    Measure("slowdown_p50", "bounded slowdown, median", _QUEUE, Unit.RATIO, _LOWER, "waits.slowdown.p50"),
    Measure("slowdown_p90", "bounded slowdown, p90", _QUEUE, Unit.RATIO, _LOWER, "waits.slowdown.p90"),
    Measure("useful_share", "useful progress, of held", _WORK, _SHARE, _HIGHER, "progress.useful_share"),
    Measure("useful", "useful progress", _WORK, _GPU_HOURS, _HIGHER, "progress.useful_gpu_hours"),
    Measure("work_done", "work of finished jobs", _WORK, _GPU_HOURS, _HIGHER, "jobs.work_done_gpu_hours"),
    Measure("lost", "lost", _WORK, _GPU_HOURS, _LOWER, "progress.lost_gpu_hours"),
    Measure(
        "lost_by_preemption", "lost by preemptions", _WORK, _GPU_HOURS, _LOWER, "progress.lost_by_preemption_gpu_hours"
    ),
    Measure("restart", "spent on restarts", _WORK, _GPU_HOURS, _LOWER, "progress.restart_gpu_hours"),
    Measure("preemptions", "preemptions", _WORK, _COUNT, _LOWER, "interruptions.preemptions"),
    Measure(
        "preemption_rounds", "rounds with preemptions", _WORK, _COUNT, _LOWER, "interruptions.rounds_with_preemptions"
    ),
    Measure("stranded", "stranded, mean", _ROOM, Unit.GPUS, _LOWER, "fragmentation.stranded_gpus.mean"),
    Measure("time_to_place", "time to place, mean", _ROOM, _SECONDS, _LOWER, "fragmentation.time_to_place_s.mean"),
    Measure(
        "largest_gang", "largest gang now, mean", _ROOM, Unit.GPUS, _HIGHER, "fragmentation.largest_gang_gpus.mean"
    ),
    Measure("done", "done", _JOBS, _COUNT, _HIGHER, "jobs.done"),
    Measure("killed", "killed", _JOBS, _COUNT, _LOWER, "jobs.killed"),
    Measure("timed_out", "timed out", _JOBS, _COUNT, _NEITHER, "jobs.timed_out"),
    Measure("waiting", "waiting at the end", _JOBS, _COUNT, _LOWER, "jobs.waiting"),
    Measure("rounds", "rounds", _ROUNDS, _COUNT, _NEITHER, "rounds.rounds"),
    Measure("rounds_solved", "asked in full", _ROUNDS, _COUNT, _NEITHER, "rounds.solved"),
    Measure("proved", "nothing unproven, of all", _ROUNDS, _SHARE, _NEITHER, "rounds.proved_share"),
    Measure("solved_proved", "nothing unproven, of full", _ROUNDS, _SHARE, _NEITHER, "rounds.solved_proved_share"),
    Measure("round_p50", "time of a full round, median", _ROUNDS, _SECONDS, _LOWER, "rounds.seconds.p50"),
    Measure("round_p99", "time of a full round, p99", _ROUNDS, _SECONDS, _LOWER, "rounds.seconds.p99"),
)
"""All measures, grouped; everything that compares or prints goes through this tuple."""

HEADLINE = (
    "delivered",
    "worst_budget",
    "occupancy",
    "debug_wait_p90",
    "large_wait_p90",
    "largest_wait_p90",
    "useful_share",
    "lost",
    "preemptions",
)
"""Names of the few measures that say most; policies without an objective leave nothing unproven, so no proofs here."""
