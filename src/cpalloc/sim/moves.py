"""Whether a policy may do what it decided: cheap checks of every move, always on."""

from __future__ import annotations

from collections.abc import Container

from cpalloc.errors import GuardFailed
from cpalloc.problem.problem import Mode
from cpalloc.sim.policies.base import Policy, Start
from cpalloc.sim.state import JobStatus, NodePlaces, State


class IllegalMove(GuardFailed):
    """A policy decided something that cannot be or that it has promised not to do: a bug of the policy."""


def check_start(state: State, policy: Policy, start: Start, preempted: Container[int] = ()) -> None:
    """Refuse the start of a job that is not pending, on GPUs that are not free or that do not suit it."""
    job, jobs = start.job, state.jobs
    if job in preempted:
        raise _illegal(state, policy, start, "the job is preempted in this round")
    if not 0 <= job < len(jobs) or state.status[job] is not JobStatus.PENDING:
        raise _illegal(state, policy, start, "the job is not pending")
    if policy.traits.protects:
        allowed = jobs.may_allocate[job] if start.mode is Mode.ALLOCATED else jobs.may_borrow[job]
        if not allowed:
            raise _illegal(state, policy, start, "its funding does not allow that mode")
    if start.mode is Mode.NONE:
        raise _illegal(state, policy, start, "it has no mode")
    wrong = _place_fault(state, job, start.places)
    if wrong:
        raise _illegal(state, policy, start, wrong)


def check_preemption(state: State, policy: Policy, job: int) -> None:
    """Refuse to preempt what does not run, and what the policy promised to protect."""
    if not 0 <= job < len(state.jobs) or state.status[job] is not JobStatus.RUNNING:
        raise _illegal(state, policy, f"preempt {job}", "the job does not run")
    if policy.traits.protects and state.is_protected(job):
        until_s = state.protected_until_s[job]
        raise _illegal(state, policy, f"preempt {job}", f"the job is protected until {until_s} s")


def check_promotion(state: State, policy: Policy, job: int) -> None:
    """Refuse to promote what does not run borrowed or may not be allocated."""
    if not 0 <= job < len(state.jobs) or state.mode[job] is not Mode.BORROWED:
        raise _illegal(state, policy, f"promote {job}", "the job does not run borrowed")
    if not state.jobs.may_allocate[job]:
        raise _illegal(state, policy, f"promote {job}", "its funding does not allow that mode")


def _place_fault(state: State, job: int, places: NodePlaces) -> str:
    """What is wrong with the places of a start; empty if nothing is."""
    jobs, nodes = state.jobs, state.nodes
    each, free, held = jobs.gpus_per_replica[job], state.free_devices, 0
    for node, devices in places:
        if not 0 <= node < len(free) or devices <= 0 or devices & ~free[node]:
            return f"devices {devices:#x} of node {node} are not free"
        gpus = devices.bit_count()
        if gpus % each:
            return f"{gpus} GPUs of node {node} are no whole replicas of {each}"
        held += gpus
    if held != jobs.size[job]:
        return f"{held} GPUs are not the {jobs.size[job]} of the gang"
    if nodes.pool[places[0][0]] not in jobs.pools[job]:
        return "it does not accept the GPU type"
    if len(places) > 1:
        used = [node for node, _ in places]
        domain = nodes.domain_of[jobs.required_level[job]]
        if len(set(used)) < len(used):
            return "a node is listed twice"
        if len({nodes.pool[node] for node in used}) > 1:
            return "a gang does not span GPU types"
        if len({domain[node] for node in used}) > 1:
            return f"it spans domains of level `{nodes.levels[jobs.required_level[job]]}`"
    return ""


def _illegal(state: State, policy: Policy, move: object, why: str) -> IllegalMove:
    job = move.job if isinstance(move, Start) else None
    name = f" of `{state.workload.jobs[job].id}`" if job is not None and 0 <= job < len(state.jobs) else ""
    return IllegalMove(f"policy `{policy.name}` at {state.now_s} s: {move}{name}: {why}")
