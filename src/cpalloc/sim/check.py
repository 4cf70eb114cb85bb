"""Whether a workload can be simulated at all; everything wrong with it at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from cpalloc.entitlement import shares
from cpalloc.errors import InputError, Issue
from cpalloc.schema import Budget, Round, snapshot_issues
from cpalloc.sim.workload import WorkJob, Workload
from cpalloc.topology import Cluster


def leaf_shares(budgets: Sequence[Budget]) -> dict[str, Fraction]:
    """Share of every leaf of a funding tree, by name."""
    index = {b.name: v for v, b in enumerate(budgets)}
    parent = [index[b.parent] if b.parent is not None else -1 for b in budgets]
    inner = set(parent)
    share = shares(parent, [b.weight for b in budgets])
    return {b.name: share[v] for v, b in enumerate(budgets) if v not in inner}


def all_leaves(workload: Workload) -> tuple[str, ...]:
    """Names of the leaves of all funding trees of a workload, sorted."""
    trees = (workload.budgets, *(change.budgets for change in workload.budget_changes))
    return tuple(sorted({name for tree in trees for name in leaf_shares(tree)}))


def check_workload(workload: Workload, start_s: int = 0) -> Cluster:
    """Read the cluster of a workload that can be simulated from ``start_s`` on.

    Raises
    ------
    InputError
        With every issue: what a round with these nodes and budgets would be refused for, and jobs, events and changes
        that name what is not there, come before the start, or are not in order.
    """
    issues = list(_tree_issues(workload))
    if issues:
        raise InputError(issues)
    cluster = Cluster.from_wire(workload.cluster)
    issues += _job_issues(workload, cluster, start_s)
    issues += _event_issues(workload, cluster, start_s)
    if issues:
        raise InputError(issues)
    return cluster


def _tree_issues(workload: Workload) -> Iterator[Issue]:
    """Cluster and budgets as a round without jobs; the budget changes likewise, with their own paths."""
    first = Round(schema_version=1, now=workload.epoch, cluster=workload.cluster, budgets=workload.budgets, jobs=())
    yield from snapshot_issues(first)
    for i, change in enumerate(workload.budget_changes):
        for issue in snapshot_issues(first.model_copy(update={"budgets": change.budgets})):
            if issue.path.startswith("budgets"):
                yield Issue(issue.code, f"budget_changes[{i}].{issue.path}", issue.message)


def _job_issues(workload: Workload, cluster: Cluster, start_s: int) -> Iterator[Issue]:
    leaves, levels = set(all_leaves(workload)), {*cluster.levels, "cluster", "node"}
    ids: dict[str, int] = {}
    last = (start_s, -1, "")
    for i, job in enumerate(workload.jobs):
        path = f"jobs[{i}]"
        first = ids.setdefault(job.id, i)
        if first != i:
            yield Issue("duplicate_id", f"{path}.id", f"`{job.id}` is also jobs[{first}]; ids must be unique")
        if job.budget not in leaves:
            yield Issue("unknown_budget", f"{path}.budget", f"`{job.budget}` is no leaf of the budgets; add it there")
        if job.submitted_s < start_s:
            yield Issue("range", f"{path}.submitted_s", f"lies before the start of the simulation at {start_s} s")
        if i and (job.submitted_s, job.order, job.id) < last:
            yield Issue("order", path, "jobs must be sorted by (submitted_s, order, id)")
        last = (job.submitted_s, job.order, job.id)
        yield from _number_issues(job, path)
        for key, level in (("required_level", job.required_level), ("preferred_level", job.preferred_level)):
            if level is not None and level not in levels:
                yield Issue("unknown_level", f"{path}.{key}", f"`{level}` is not among the levels of the cluster")


def _number_issues(job: WorkJob, path: str) -> Iterator[Issue]:
    least = {"replicas": 1, "gpus_per_replica": 1, "timeout_s": -1}
    for key in ("work_s", "min_runtime_s", "restart_cost_s", "checkpoint_interval_s", *least):
        if getattr(job, key) < least.get(key, 0):
            yield Issue("range", f"{path}.{key}", f"must be at least {least.get(key, 0)}")


def _event_issues(workload: Workload, cluster: Cluster, start_s: int) -> Iterator[Issue]:
    nodes = {n.name for n in cluster.nodes}
    for i, event in enumerate(workload.node_events):
        if event.node not in nodes:
            yield Issue("unknown_node", f"node_events[{i}].node", f"`{event.node}` is no node of the cluster")
    for team, names in workload.team_nodes.items():
        for name in sorted(set(names) - nodes):
            yield Issue("unknown_node", f"team_nodes.{team}", f"`{name}` is no node of the cluster")
    times = {
        "node_events": [event.at_s for event in workload.node_events],
        "budget_changes": [change.at_s for change in workload.budget_changes],
    }
    for name, instants in times.items():
        for i, at_s in enumerate(instants):
            if at_s < start_s:
                yield Issue("range", f"{name}[{i}].at_s", f"lies before the start of the simulation at {start_s} s")
