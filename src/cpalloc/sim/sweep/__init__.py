"""Many scenarios and seeds: planned, run here or on a Ray cluster, and kept so that nothing is run twice."""

from cpalloc.sim.sweep.base import Ending, Engine, Outcome, Watch
from cpalloc.sim.sweep.compared import comparison_of, done_of
from cpalloc.sim.sweep.limits import Limits
from cpalloc.sim.sweep.local import LocalEngine
from cpalloc.sim.sweep.plan import Task, plan
from cpalloc.sim.sweep.ray import RayEngine
from cpalloc.sim.sweep.results import history_of, result_of
from cpalloc.sim.sweep.sweep import Swept, sweep

__all__ = [
    "Ending",
    "Engine",
    "Limits",
    "LocalEngine",
    "Outcome",
    "RayEngine",
    "Swept",
    "Task",
    "Watch",
    "comparison_of",
    "done_of",
    "history_of",
    "plan",
    "result_of",
    "sweep",
]
