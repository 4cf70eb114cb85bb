"""What every policy is: asked at a round with all that a scheduler can see, it answers what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from cpalloc.problem.problem import Mode
from cpalloc.sim.history import RoundPath
from cpalloc.sim.state import State


@dataclass(frozen=True, slots=True)
class Start:
    """Start job ``job`` (index into the workload) in ``mode``; ``places``: (node index, device bitmask) per node."""

    job: int
    mode: Mode
    places: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Moves:
    """What a policy decides in a round; preemptions happen before starts.

    ``unproved_tiers``: tiers of the objective without a proof of optimality (0 where the policy has none). ``wake_s``:
    ask again at this instant even if nothing happens until then; -1: no need.
    """

    starts: Sequence[Start] = ()
    preempts: Sequence[int] = ()
    promotes: Sequence[int] = ()
    path: RoundPath = RoundPath.SOLVED
    unproved_tiers: int = 0
    wake_s: int = -1


NO_MOVES = Moves(path=RoundPath.NOTHING)


@dataclass(frozen=True, slots=True)
class News:
    """What happened since the policy was last asked, by job index, each in order of time (then index).

    ``arrived``: became pending (submitted, or back in the queue after an interruption). ``left``: runs that ended
    without the policy's doing (finished, timed out, lost, drained). ``expired``: protections that ended.
    """

    arrived: Sequence[int] = ()
    left: Sequence[int] = ()
    expired: Sequence[int] = ()
    capacity_changed: bool = False
    budgets_changed: bool = False


@dataclass(frozen=True, slots=True)
class Traits:
    """What a policy promises; the simulator holds it to that.

    ``protects``: it knows modes and protection windows: allocated runs get their window and are never preempted inside
    it, and modes follow the jobs' funding. Without it nothing is protected; policies that know no modes run everything
    as ALLOCATED, so that what they deliver can be compared. ``suspends``: an oracle that loses no work: whatever it
    preempts goes on later from where it stood, checkpoints or not, and be it in the middle of a restart.
    """

    protects: bool = True
    suspends: bool = False


class Policy(Protocol):
    """A scheduling policy: deterministic, and picklable with the queues it may keep; it never changes the state."""

    @property
    def name(self) -> str:
        """The name in tables and files, e.g. ``fair-share``."""
        ...

    @property
    def traits(self) -> Traits:
        """What it promises."""
        ...

    def begin(self, state: State) -> None:
        """See the empty cluster once, before the first round."""
        ...

    def decide(self, state: State, news: News) -> Moves:
        """Decide the round at ``state.now_s``."""
        ...
