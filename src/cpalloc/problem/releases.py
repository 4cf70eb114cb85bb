"""When an allocated job surely leaves (policy section 6)."""

from __future__ import annotations

from cpalloc.problem.grants import granted
from cpalloc.problem.problem import US, Action, Decision, IntArray, Mode, Problem

NEVER = 2**62
"""Release of a job of which nobody knows when it leaves, in microseconds."""


def timeout_us(problem: Problem, job: int) -> int:
    """Instant at which a running job reaches its timeout, counted from its start (its placement while not up)."""
    jobs = problem.jobs
    if jobs.timeout_s[job] < 0:
        return NEVER
    began = int(jobs.started_us[job]) if jobs.started_us[job] >= 0 else int(jobs.placed_us[job])
    return began + int(jobs.timeout_s[job]) * US


def start_release_us(problem: Problem, job: int) -> int:
    """Instant by which a job surely leaves if it is allocated (started or promoted) now.

    The end of its protection where its budget is over its share and claims nothing, its timeout, or NEVER; the earlier
    of the two. Whether a budget with a claim keeps it without the job is not sure before all is decided.
    """
    jobs = problem.jobs
    if jobs.started_us[job] >= 0 or jobs.placed_us[job] >= 0:
        release = timeout_us(problem, job)
    else:
        release = NEVER if jobs.timeout_s[job] < 0 else problem.now_us + int(jobs.timeout_s[job]) * US
    leaf = int(jobs.leaf[job])
    if problem.budgets.claim[leaf] == 0 and problem.budgets.over_share(leaf):
        release = min(release, problem.now_us + int(jobs.min_runtime_s[job]) * US)
    return release


def bound_by(problem: Problem, job: int) -> tuple[int, ...]:
    """Kept reservations that bind an allocated start of a pending job, by index (policy section 6): it ranks below
    their job, and may still be there at their instant."""
    if not problem.holds:
        return ()

    def binding() -> tuple[int, ...]:
        rank, release = problem.jobs.rank, start_release_us(problem, job)
        return tuple(
            h
            for h, hold in enumerate(problem.holds)
            if hold.job != job and rank[job] >= rank[hold.job] and release > hold.starts_us
        )

    return problem.once(("bound by", job), binding)


def release_us(problem: Problem, decision: Decision, job: int, have: IntArray | None = None) -> int:
    """Instant by which a job that runs after the decision stands in no allocated gang's way.

    Borrowed work never does. A kept allocated job leaves when its protection ends if its budget is over its share and
    keeps its claim without it; otherwise at its timeout; otherwise never. ``have`` is ``granted(problem, decision)``
    where the caller has it already.
    """
    jobs = problem.jobs
    if decision.mode[job] != Mode.ALLOCATED:
        return problem.now_us
    if decision.action[job] == Action.START or decision.promoted[job]:
        return start_release_us(problem, job)
    release = max(problem.now_us, timeout_us(problem, job))
    leaf = int(jobs.leaf[job])
    have = granted(problem, decision) if have is None else have
    if problem.budgets.over_share(leaf) and int(have[leaf]) - int(jobs.size[job]) >= int(problem.budgets.claim[leaf]):
        release = min(release, max(problem.now_us, int(jobs.protected_until_us[job])))
    return release
