"""Hand-made rounds for what can happen in them, and what is said of that by name."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from builders import HOUR, Budget, Node, Pending, Running, hold, job_at, problem
from cpalloc.models.partition import Possible
from cpalloc.models.possible import possible
from cpalloc.problem.problem import Mode, Problem

RICH: dict[str, Any] = {"charged": 2000}
"""Of a budget whose allocated work may be preempted once it is no longer protected."""


def kept(name: str, at: str, gpus: int = 8, budget: str = "y", **terms: Any) -> Running:
    """Protected work, which stays."""
    return Running(name, budget=budget, at=at, gpus=gpus, mode="allocated", protected_s=HOUR, **terms)


def past(name: str, at: str, gpus: int = 8, budget: str = "y", **terms: Any) -> Running:
    """Allocated work past its protection."""
    return Running(name, budget=budget, at=at, gpus=gpus, mode="allocated", **terms)


def lent(name: str, at: str, gpus: int = 8, budget: str = "y", **terms: Any) -> Running:
    return Running(name, budget=budget, at=at, gpus=gpus, **terms)


def starts(p: Problem, found: Possible) -> list[str]:
    """Starts by name; of those that borrow it is said."""
    return sorted(p.jobs.ids[j] + (" lent" if mode is Mode.BORROWED else "") for j, mode in found.starts)


def names(p: Problem, jobs: Collection[int]) -> list[str]:
    return sorted(p.jobs.ids[j] for j in jobs)


def told(p: Problem, may_go: Sequence[str] | None = None) -> tuple[list[str], list[str]]:
    """What can start, and what can go."""
    found = possible(p, None if may_go is None else [job_at(p, name) for name in may_go])
    return starts(p, found), names(p, found.goes)


def promised(*jobs: Pending, gpus: int = 8, first: int = 2) -> Problem:
    """n1 is free, n2 is held for two hours; "first" is promised both of them in an hour."""
    p = problem(
        nodes=[Node("n1"), Node("n2")],
        jobs=[kept("there", "n2"), Pending("first", replicas=first, gpus=8), *jobs],
        budgets=[Budget("x", claim=64), Budget("y", **RICH)],
    )
    return replace(p, holds=(hold(p, "first", {"n1": gpus, "n2": 8}, in_s=HOUR),))
