"""One simulation: its state, what is to come, the policy and the record, and the step from one instant to the next.

Of one instant, ends come first, then nodes, budgets, protections that end, and arrivals; the round sees all of them.
"""

from __future__ import annotations

import time

from cpalloc.problem.problem import Mode, NodeState
from cpalloc.sim.columns import NODE_STATES
from cpalloc.sim.config import Progress, SimConfig
from cpalloc.sim.events import NEVER, Events, Happening
from cpalloc.sim.history import History, JobEnd, RunEnd
from cpalloc.sim.moves import check_preemption, check_promotion, check_start
from cpalloc.sim.policies.base import Moves, News, Policy, Start
from cpalloc.sim.recorder import Recorder
from cpalloc.sim.sampling import fragmentation_sample, workload_mix
from cpalloc.sim.state import State
from cpalloc.sim.workload import Workload


class Simulation:
    """A simulation that can be stopped between any two steps, pickled, and taken up again."""

    def __init__(self, workload: Workload, policy: Policy, config: SimConfig) -> None:
        self._state = State(workload, config)
        self._events = Events(workload)
        self._recorder = Recorder(self._state)
        self._policy = policy
        self._mix = workload_mix(self._state)
        self._arrived: list[int] = []
        self._left: list[int] = []
        self._expired: list[int] = []
        self._capacity_changed = self._budgets_changed = False
        self._round_s = NEVER
        self._last_round_s = config.start_s - 1
        self._sample_s = config.start_s if config.sample_interval_s else NEVER
        self._promotable = 0
        """Running borrowed jobs that may become allocated: with none of them and nothing pending, no move is left."""
        self._over = 0
        """Jobs that have left for good."""
        self._idle = False
        """Whether the last round moved nothing, and nothing has happened since."""
        self._notes = _notes(workload, config)
        policy.begin(self._state)

    def step(self) -> bool:
        """Go to the next instant, apply its events and hold its round; False when nothing is left to happen."""
        state = self._state
        event_s = self._events.next_s(state)
        now_s = min(event_s, self._round_s)
        if self._is_over(now_s, event_s):
            return False
        self._take_samples(now_s)
        state.now_s = now_s
        if event_s == now_s:
            self._idle = False
            self._apply_events()
            self._round_s = min(self._round_s, self._round_at_or_after(now_s))
        if self._round_s <= now_s:
            self._hold_round()
        return True

    def progress(self) -> Progress:
        """How far it is."""
        state, until_s = self._state, self._state.config.until_s
        if until_s is None:
            fraction = self._over / max(1, len(state.jobs))
        else:
            start_s = state.config.start_s
            fraction = (state.now_s - start_s) / max(1, until_s - start_s)
        return Progress(fraction, state.now_s, self._recorder.num_rounds(), len(state.pending))

    def history(self, *, interrupted: bool) -> History:
        """Write down everything up to now, or up to the end. The simulation must not go on afterwards."""
        state, until_s = self._state, self._state.config.until_s
        end_s = state.now_s if interrupted or until_s is None else until_s
        self._take_samples(end_s)
        state.now_s = end_s
        for job in state.running:
            self._recorder.close_run(job, end_s, RunEnd.OPEN, state.progress_s(job))
            self._recorder.job_end[job] = JobEnd.RUNNING
        for job in state.pending:
            self._recorder.job_end[job] = JobEnd.WAITING
        return self._recorder.history(state, self._policy.name, end_s, interrupted=interrupted, notes=self._notes)

    def _is_over(self, now_s: int, event_s: int) -> bool:
        """Whether the end comes before the next instant."""
        until_s = self._state.config.until_s
        if until_s is not None:
            return now_s >= until_s
        if now_s == NEVER or self._over == len(self._state.jobs):
            return True
        # Nothing runs and nothing is to come: who has not been started now never will be.
        return event_s == NEVER and self._idle

    def _take_samples(self, before_s: int) -> None:
        state = self._state
        while self._sample_s < before_s:
            self._recorder.add_sample(state, self._sample_s, fragmentation_sample(state, self._mix, self._sample_s))
            self._sample_s += state.config.sample_interval_s

    # Events

    def _apply_events(self) -> None:
        state, events = self._state, self._events
        for job in events.timed(state, Happening.END):
            self._end(job)
        for event in events.nodes(state.now_s):
            self._change_node(state.nodes.index[event.node], NODE_STATES[event.state])
        for change in events.budgets(state.now_s):
            state.set_budgets(change.budgets)
            self._recorder.shares_changed(state)
            self._budgets_changed = True
        for job in events.timed(state, Happening.EXPIRY):
            self._expired.append(job)
            if any(state.node_state[node] is NodeState.DRAINING for node, _ in state.places[job]):
                self._interrupt(job, RunEnd.DRAINED)
        for job in events.arrivals(state.now_s):
            self._submit(job)

    def _submit(self, job: int) -> None:
        state = self._state
        if state.jobs.fits[job]:
            state.submit(job)
            self._arrived.append(job)
        else:
            state.refuse(job)
            self._recorder.job_end[job] = JobEnd.NEVER_FITS
            self._over += 1

    def _end(self, job: int) -> None:
        """The work is done or the time is up; what a job has done by its time limit counts as done."""
        state = self._state
        done = state.now_s >= state.finish_s(job)
        self._stop(job, RunEnd.FINISHED if done else RunEnd.TIMED_OUT, state.progress_s(job))
        self._left.append(job)
        self._leave(job, JobEnd.DONE if done else JobEnd.TIMED_OUT)

    def _leave(self, job: int, end: JobEnd) -> None:
        self._recorder.job_end[job] = end
        self._recorder.finished_s[job] = self._state.now_s
        self._over += 1

    def _stop(self, job: int, end: RunEnd, saved_s: int, restart_left_s: int = 0) -> None:
        state = self._state
        self._promotable -= self._may_promote(job)
        self._recorder.close_run(job, state.now_s, end, saved_s)
        state.stop(job, saved_s, restart_left_s)

    def _interrupt(self, job: int, end: RunEnd) -> None:
        """Stop a job before its end: it goes back to the queue with what is safe, or is killed."""
        state = self._state
        suspended = end is RunEnd.PREEMPTED and self._policy.traits.suspends
        if suspended:
            self._stop(job, end, state.progress_s(job), state.restarting_s(job))
        else:
            self._stop(job, end, state.safe_s(job))
        if end is not RunEnd.PREEMPTED:
            self._left.append(job)
        if suspended or state.jobs.resumable[job]:
            state.submit(job)
            self._arrived.append(job)
        else:
            self._leave(job, JobEnd.KILLED)

    def _change_node(self, node: int, node_state: NodeState) -> None:
        state = self._state
        state.set_node_state(node, node_state)
        self._recorder.capacity_changed(state)
        self._capacity_changed = True
        for job in sorted(state.node_jobs[node]):
            if node_state is NodeState.DOWN:
                self._interrupt(job, RunEnd.LOST)
            elif node_state is NodeState.DRAINING and not state.is_protected(job):
                self._interrupt(job, RunEnd.DRAINED)

    # Rounds

    def _round_at_or_after(self, at_s: int) -> int:
        """First instant from ``at_s`` on at which a round may be held."""
        every_s = self._state.config.round_interval_s
        if not every_s:
            return at_s
        at_s = max(at_s, self._last_round_s + 1)
        return -(-at_s // every_s) * every_s

    def _hold_round(self) -> None:
        state = self._state
        self._round_s = NEVER
        if not state.pending and not self._promotable:
            return
        pending = len(state.pending)
        began = time.perf_counter()
        moves = self._policy.decide(state, self._news())
        seconds = time.perf_counter() - began
        self._apply(moves)
        self._last_round_s = state.now_s
        self._idle = not (moves.starts or moves.preempts or moves.promotes)
        self._recorder.add_round(
            state.now_s, pending, len(moves.starts), len(moves.preempts), moves.path, moves.unproved_tiers, seconds
        )
        if moves.wake_s > state.now_s:
            self._round_s = self._round_at_or_after(moves.wake_s)
        if state.config.heartbeat_s and state.pending:
            self._round_s = min(self._round_s, self._round_at_or_after(state.now_s + state.config.heartbeat_s))

    def _news(self) -> News:
        news = News(
            arrived=self._arrived,
            left=self._left,
            expired=self._expired,
            capacity_changed=self._capacity_changed,
            budgets_changed=self._budgets_changed,
        )
        self._arrived, self._left, self._expired = [], [], []
        self._capacity_changed = self._budgets_changed = False
        return news

    def _apply(self, moves: Moves) -> None:
        state, policy = self._state, self._policy
        for job in moves.preempts:
            check_preemption(state, policy, job)
            self._interrupt(job, RunEnd.PREEMPTED)
        for job in moves.promotes:
            check_promotion(state, policy, job)
            self._promote(job)
        preempted = set(moves.preempts)
        for start in moves.starts:
            check_start(state, policy, start, preempted)
            self._start(start)

    def _start(self, start: Start) -> None:
        state, job = self._state, start.job
        state.start(job, start.mode, start.places, self._protected_until_s(job, start.mode))
        self._recorder.open_run(state, job, state.saved_s[job], state.restart_s[job])
        self._promotable += self._may_promote(job)
        end_s, timeout_s = state.finish_s(job), state.jobs.timeout_s[job]
        if timeout_s >= 0:
            end_s = min(end_s, state.now_s + timeout_s)
        self._events.time(state, job, Happening.END, end_s)
        self._time_expiry(job)

    def _promote(self, job: int) -> None:
        state = self._state
        self._promotable -= 1
        worked_s = state.progress_s(job)
        self._recorder.close_run(job, state.now_s, RunEnd.PROMOTED, worked_s)
        state.promote(job, self._protected_until_s(job, Mode.ALLOCATED))
        self._recorder.open_run(state, job, worked_s, state.restarting_s(job))
        self._time_expiry(job)

    def _protected_until_s(self, job: int, mode: Mode) -> int:
        if mode is Mode.BORROWED or not self._policy.traits.protects:
            return -1
        return self._state.now_s + self._state.jobs.min_runtime_s[job]

    def _time_expiry(self, job: int) -> None:
        if self._state.is_protected(job):
            self._events.time(self._state, job, Happening.EXPIRY, self._state.protected_until_s[job])

    def _may_promote(self, job: int) -> bool:
        state = self._state
        return state.mode[job] is Mode.BORROWED and state.jobs.may_allocate[job]


def _notes(workload: Workload, config: SimConfig) -> tuple[str, ...]:
    maximum_s = config.site.max_min_runtime
    asking = sum(job.min_runtime_s > maximum_s for job in workload.jobs)
    if not asking:
        return ()
    return (f"{asking:,} jobs ask for the maximum of {maximum_s:,} s as min_runtime instead of more",)
