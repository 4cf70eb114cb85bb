"""Where the running jobs of a round are, against the nodes that are there: overlaps, capacity, replicas."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from cpalloc.errors import Issue
from cpalloc.schema._parts import Entry, Parts
from cpalloc.schema._translate import join_path
from cpalloc.schema.request import Job, Running
from cpalloc.schema.types import MAX_COUNT, MAX_GPU_SECONDS

ABSENT_PERCENT = 5
"""Most running GPUs, in per cent, that may be on nodes absent from the snapshot."""

_SECOND = timedelta(seconds=1)
_LONGEST_S = (datetime.max - datetime.min) // _SECOND
"""No two instants are further apart."""


@dataclass(slots=True)
class _Use:
    """What is held on a node: known devices as a bitmask, a count of unknown ones, and by whom.

    ``gpus`` is ``None`` where the node's own number did not parse.
    """

    gpus: int | None
    mask: int = 0
    unknown: int = 0
    owners: list[tuple[int, str]] = field(default_factory=list)
    exceeded: bool = False

    def empty(self) -> _Use:
        """Give the same node with nothing on it."""
        return _Use(self.gpus)


def placement_issues(parts: Parts) -> Iterator[Issue]:
    """Yield what is wrong with the running jobs.

    Jobs that are stopping are checked by themselves only: their GPUs may be given to their successors already.
    """
    uses = _uses(parts)
    leaves_ok = _known_leaves(parts)
    running_gpus = absent_gpus = 0
    nodes_whole = parts.nodes.whole
    running_whole = parts.jobs.whole
    for entry in parts.jobs.items:
        running_whole = running_whole and "running" not in entry.bad
        running = entry.item.running
        if running is None:
            continue
        base = f"{parts.jobs.path}[{entry.index}]"
        if leaves_ok is not None and "budget" not in entry.bad and entry.item.budget not in leaves_ok[0]:
            yield _budget_issue(entry.item.budget, leaves_ok[1], base)
        gpus = [place.num_gpus for place in running.placement]
        held = sum(gpus)
        running_gpus += held
        absent_gpus += sum(n for place, n in zip(running.placement, gpus, strict=True) if place.node not in uses)
        yield from _amount_issues(entry, running, held, parts.now, base)
        yield from _replica_issues(entry, gpus, base)
        yield from _device_issues(running, uses, f"{base}.running.placement")
    if nodes_whole and running_whole and absent_gpus * 100 > running_gpus * ABSENT_PERCENT:
        yield Issue(
            "snapshot_incomplete",
            parts.nodes.path,
            f"{absent_gpus} of {running_gpus} running GPUs are on nodes that are not listed, more than "
            f"{ABSENT_PERCENT} %; list those nodes, as down if they are gone",
        )


def _uses(parts: Parts) -> dict[str, _Use | None]:
    """Nodes by name, ``None`` where two share it."""
    uses: dict[str, _Use | None] = {}
    for entry in parts.nodes.items:
        if entry.key is not None:
            known = None if "gpus" in entry.bad else entry.item.gpus
            uses[entry.key] = None if entry.key in uses else _Use(known)
    return uses


def _known_leaves(parts: Parts) -> tuple[frozenset[str], frozenset[str]] | None:
    """Names of the leaves and of the other budgets; ``None`` where not all of them are known."""
    if not parts.budgets.whole:
        return None
    names = frozenset(e.key for e in parts.budgets.items if e.key is not None)
    interior = frozenset(e.item.parent for e in parts.budgets.items if e.item.parent is not None) & names
    return names - interior, interior


def _budget_issue(budget: str, interior: frozenset[str], base: str) -> Issue:
    what = f"`{budget}` has children; jobs belong to leaves" if budget in interior else f"there is no budget `{budget}`"
    return Issue("unknown_budget", f"{base}.budget", f"{what}. A running job must be charged to a leaf of `budgets`")


def _amount_issues(entry: Entry[Job], running: Running, held: int, now: datetime | None, base: str) -> Iterator[Issue]:
    """GPU-seconds and resources of a running job stay within 10^15."""
    job = entry.item
    if "restart_cost" not in entry.bad and held * job.restart_cost > MAX_GPU_SECONDS:
        yield Issue("too_large", f"{base}.restart_cost", f"times {held} GPUs is more than 10^15 GPU-seconds")
    if "resources_per_replica" not in entry.bad:
        for name, amount in job.resources_per_replica.items():
            if amount * len(running.placement) > MAX_GPU_SECONDS:
                where = join_path(base, "resources_per_replica", name)
                yield Issue("too_large", where, "times the replicas is more than 10^15")
    if now is None or held * _LONGEST_S <= MAX_GPU_SECONDS:
        return
    for name in ("placed_at", "started_at", "allocated_since"):
        since: datetime | None = getattr(running, name)
        if since is not None and held * ((now - since) // _SECOND) > MAX_GPU_SECONDS:
            yield Issue("too_large", f"{base}.running.{name}", f"with {held} GPUs is more than 10^15 GPU-seconds ago")


def _replica_issues(entry: Entry[Job], gpus: list[int], base: str) -> Iterator[Issue]:
    """As many replicas as the job has, each with the GPUs of one; ``gpus`` are those of the placement's entries."""
    job = entry.item
    if "replicas" not in entry.bad and len(gpus) != job.replicas:
        message = f"has {len(gpus)} entries for {job.replicas} replicas; give one entry a replica"
        yield Issue("replica_count", f"{base}.running.placement", message)
    if "gpus_per_replica" in entry.bad:
        return
    for k, count in enumerate(gpus):
        if count != job.gpus_per_replica:
            where = join_path(base, "running", "placement", k, "gpus")
            yield Issue("replica_size", where, f"holds {count} GPUs for a replica of {job.gpus_per_replica}")


def _device_issues(running: Running, uses: dict[str, _Use | None], base: str) -> Iterator[Issue]:
    """Place a job's replicas on the nodes, telling what is not there, taken already, or too much."""
    own: dict[str, _Use] = {}  # a stopping job is placed on nodes of its own
    for k, place in enumerate(running.placement):
        use = uses.get(place.node)
        if use is None:
            continue
        if running.stopping:
            use = own.setdefault(place.node, use.empty())
        where = f"{base}[{k}]"
        if isinstance(place.gpus, int):
            use.unknown += place.gpus
        else:
            mask, issues = _mask(place.gpus, use.gpus, where)
            yield from issues
            if use.mask & mask:
                yield _overlap(use, mask, place.node, where)
            use.mask |= mask
            use.owners.append((mask, where))
        if use.gpus is None or use.exceeded:
            continue
        held = use.unknown + use.mask.bit_count()
        if held > use.gpus:
            use.exceeded = True
            message = f"brings node `{place.node}` to {held} GPUs held; it has {use.gpus}"
            yield Issue("node_exceeded", f"{where}.gpus", message)


def _mask(devices: tuple[int, ...], gpus: int | None, where: str) -> tuple[int, list[Issue]]:
    """Bitmask of the devices that are there."""
    mask = 0
    issues: list[Issue] = []
    limit = MAX_COUNT if gpus is None else gpus
    for m, device in enumerate(devices):
        if device >= limit:
            issues.append(
                Issue("unknown_gpu", f"{where}.gpus[{m}]", f"GPU {device} is not there: the node has {limit}, from 0")
            )
            continue
        bit = 1 << device
        if mask & bit:
            issues.append(Issue("overlap", f"{where}.gpus[{m}]", f"GPU {device} is listed twice"))
        mask |= bit
    return mask, issues


def _overlap(use: _Use, mask: int, node: str, where: str) -> Issue:
    other, shared = next((path, mask & taken) for taken, path in use.owners if mask & taken)
    devices = [i for i in range(shared.bit_length()) if shared >> i & 1]
    names = ", ".join(map(str, devices[:8])) + (" …" if len(devices) > 8 else "")
    message = f"GPU {names} of node `{node}` is also held by {other.removesuffix('.running.placement')}"
    return Issue("overlap", where, message)
