"""What a round's nodes, budgets and policy must agree on for the snapshot to be trusted (wire.md, "Errors")."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TypeVar

from pydantic import BaseModel

from cpalloc.errors import Issue
from cpalloc.schema._parts import Entries, Entry, Parts
from cpalloc.schema._placements import placement_issues
from cpalloc.schema._translate import join_path
from cpalloc.schema.request import Budget, Node
from cpalloc.schema.types import MAX_COUNT, MAX_GPU_SECONDS

M = TypeVar("M", bound=BaseModel)

RESERVED_LEVELS = ("cluster", "node")
"""Names of the top and the bottom of every topology."""

MAX_DEPTH = 16
"""Most budgets on a way from a root to a leaf."""

_SECOND = timedelta(seconds=1)


def snapshot_issues_of(parts: Parts) -> list[Issue]:
    """List every reason not to trust the snapshot, as far as its parts parsed."""
    issues = list(parts.issues)
    for check in (_duplicates, _levels, _nodes, _domains, _tree, _amounts, placement_issues, _finished):
        issues += check(parts)
    return issues


def _duplicates(parts: Parts) -> Iterator[Issue]:
    yield from _duplicate_keys(parts.nodes)
    yield from _duplicate_keys(parts.budgets)
    yield from _duplicate_keys(parts.jobs)


def _duplicate_keys(entries: Entries[M]) -> Iterator[Issue]:
    first: dict[str, int] = {}
    for entry in entries.items:
        if entry.key is not None and first.setdefault(entry.key, entry.index) != entry.index:
            where = join_path(entries.path, entry.index, entries.key_field)
            other = join_path(entries.path, first[entry.key])
            yield Issue("duplicate_id", where, f"`{entry.key}` is also {other}; names must be unique")


def _levels(parts: Parts) -> Iterator[Issue]:
    seen: set[str] = set()
    for i, level in enumerate(parts.levels or ()):
        if level in RESERVED_LEVELS:
            message = f"`{level}` is always there and may not be listed; remove it"
            yield Issue("reserved_level", join_path(parts.levels_path, i), message)
        if level in seen:
            yield Issue("duplicate_level", join_path(parts.levels_path, i), f"`{level}` is listed twice; keep one")
        seen.add(level)
    if parts.levels is None or parts.policy is None:
        return
    known = seen.union(RESERVED_LEVELS)
    for i, shape in enumerate(parts.policy.shape_mix or ()):
        if shape.level not in known:
            message = f"the cluster has no level `{shape.level}`; it has {', '.join(sorted(known))}"
            yield Issue("unknown_level", f"policy.shape_mix[{i}].level", message)


def _nodes(parts: Parts) -> Iterator[Issue]:
    total = sum(entry.item.gpus for entry in parts.nodes.items)
    if total > MAX_COUNT:
        yield Issue("too_many", parts.nodes.path, f"the nodes have {total} GPUs; at most 10^6 are supported")
    for entry in parts.nodes.items:
        if "gpus" not in entry.bad and (entry.item.gpu_groups or entry.item.unhealthy_gpus):
            yield from _devices(entry, join_path(parts.nodes.path, entry.index))


def _devices(entry: Entry[Node], base: str) -> Iterator[Issue]:
    """Devices named by a node about itself: all there, groups disjoint."""
    node = entry.item
    seen: set[int] = set()
    for g, group in enumerate(node.gpu_groups or ()):
        for k, device in enumerate(group):
            where = join_path(base, "gpu_groups", g, k)
            if device >= node.gpus:
                yield Issue("unknown_gpu", where, f"GPU {device} is not there: the node has {node.gpus}, from 0")
            elif device in seen:
                yield Issue("overlap", where, f"GPU {device} is in a GPU group already; groups must be disjoint")
            seen.add(device)
    unhealthy: set[int] = set()
    for k, device in enumerate(node.unhealthy_gpus):
        where = join_path(base, "unhealthy_gpus", k)
        if device >= node.gpus:
            yield Issue("unknown_gpu", where, f"GPU {device} is not there: the node has {node.gpus}, from 0")
        elif device in unhealthy:
            yield Issue("overlap", where, f"GPU {device} is listed twice")
        unhealthy.add(device)


def _domains(parts: Parts) -> Iterator[Issue]:
    """Levels named by nodes are listed, and every domain lies in one domain of the level above."""
    if parts.levels is None:
        return
    known = frozenset(parts.levels)
    # a missing level makes the node a domain of its own, hence the pair with the node's name
    parent: dict[tuple[str, str], tuple[str | None, str | None]] = {}
    told: set[tuple[str, str]] = set()
    pairs = list(zip(parts.levels, parts.levels[1:], strict=False))
    for entry in parts.nodes.items:
        domains = entry.item.domains
        if not domains:
            continue
        base = join_path(parts.nodes.path, entry.index, "domains")
        for level in domains:
            if level not in known:
                message = f"`{level}` is not among the cluster's levels; list it or remove it here"
                yield Issue("unknown_level", join_path(base, level), message)
        for coarse, fine in pairs:
            name = domains.get(fine)
            if name is None:
                continue
            above = domains.get(coarse)
            mine = (above, None if above is not None else entry.key)
            first = parent.setdefault((fine, name), mine)
            if first != mine and (fine, name) not in told:
                told.add((fine, name))
                one, two = (f"`{a}`" if a is not None else f"node `{k}` alone" for a, k in (first, mine))
                message = f"{fine} `{name}` lies in {coarse} {one} and in {coarse} {two}; it may lie in one only"
                yield Issue("domain_two_parents", join_path(base, fine), message)


def _tree(parts: Parts) -> Iterator[Issue]:
    """Budgets form a forest of bounded depth, and only leaves carry an account."""
    budgets = parts.budgets
    by_name: dict[str, Entry[Budget]] = {}
    for entry in budgets.items:
        if entry.key is not None:
            by_name.setdefault(entry.key, entry)
    parents = {name: e.item.parent for name, e in by_name.items() if "parent" not in e.bad}
    interior = {parent for parent in parents.values() if parent is not None}
    for name, entry in by_name.items():
        base = join_path(budgets.path, entry.index)
        parent = parents.get(name)
        if parent is not None and parent not in by_name and budgets.whole:
            yield Issue(
                "unknown_parent", f"{base}.parent", f"there is no budget `{parent}`; add it or correct the name"
            )
        if name in interior:
            yield from _interior_account(entry, base)
    yield from _depths(parts, by_name, parents)


def _interior_account(entry: Entry[Budget], base: str) -> Iterator[Issue]:
    message = f"`{entry.key}` has children and carries no account of its own; give the amount on its leaves"
    if entry.item.charged_gpu_seconds > 0:
        yield Issue("interior_charge", f"{base}.charged_gpu_seconds", message)
    if entry.item.owed_gpu_seconds is not None:
        yield Issue("interior_charge", f"{base}.owed_gpu_seconds", message)


def _depths(parts: Parts, by_name: dict[str, Entry[Budget]], parents: dict[str, str | None]) -> Iterator[Issue]:
    """Walk up from every budget once; a way that meets itself is a cycle."""
    depth: dict[str, int] = {}
    for start in by_name:
        way: list[str] = []
        on_way: set[str] = set()
        here: str | None = start
        while here is not None and here in by_name and here not in depth and here not in on_way:
            way.append(here)
            on_way.add(here)
            here = parents.get(here)
        if here is not None and here in on_way:
            cycle = way[way.index(here) :]
            first = min(cycle, key=lambda name: by_name[name].index)
            turn = cycle.index(first)
            names = " > ".join([*cycle[turn:], *cycle[:turn], first])
            where = join_path(parts.budgets.path, by_name[first].index, "parent")
            yield Issue("budget_cycle", where, f"the parents go round in a circle: {names}")
            depth.update(dict.fromkeys(way, 0))  # neither these nor what hangs on them has a depth
            continue
        above = depth.get(here, 0) if here is not None else 0
        broken = here is not None and depth.get(here) == 0
        for name in reversed(way):
            above = 0 if broken else above + 1
            depth[name] = above
            if above == MAX_DEPTH + 1:
                where = join_path(parts.budgets.path, by_name[name].index)
                yield Issue("budget_depth", where, f"`{name}` is {above} deep; at most {MAX_DEPTH} are supported")


def _amounts(parts: Parts) -> Iterator[Issue]:
    """Sums over the budgets stay within what is computed exactly."""
    for amount in ("charged_gpu_seconds", "owed_gpu_seconds"):
        total = sum(getattr(entry.item, amount) or 0 for entry in parts.budgets.items)
        if total > MAX_GPU_SECONDS:
            yield Issue("too_large", parts.budgets.path, f"{amount} add up to {total}; at most 10^15 is supported")


def _finished(parts: Parts) -> Iterator[Issue]:
    for entry in parts.finished.items:
        job = entry.item
        if job.allocated_since is not None and job.gpus * ((job.ended_at - job.allocated_since) // _SECOND) > (
            MAX_GPU_SECONDS
        ):
            where = join_path(parts.finished.path, entry.index)
            yield Issue("too_large", where, "ran for more than 10^15 GPU-seconds; check its instants and GPUs")
