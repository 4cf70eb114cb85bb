"""Optimization-based GPU allocator: a scheduling round as one CP-SAT model, with a proof of how good the answer is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cpalloc.version import __version__

if TYPE_CHECKING:
    from cpalloc.engine import Solver, check, solve
    from cpalloc.errors import CpallocError, InputError, Issue
    from cpalloc.schema import Allocation, CheckReport, Round, parse_round
    from cpalloc.sim.simulate import simulate
    from cpalloc.topology import Cluster

_WHERE = {
    "solve": "cpalloc.engine",
    "Solver": "cpalloc.engine",
    "check": "cpalloc.engine",
    "simulate": "cpalloc.sim.simulate",
    "Round": "cpalloc.schema",
    "Allocation": "cpalloc.schema",
    "CheckReport": "cpalloc.schema",
    "parse_round": "cpalloc.schema",
    "Cluster": "cpalloc.topology",
    "CpallocError": "cpalloc.errors",
    "InputError": "cpalloc.errors",
    "Issue": "cpalloc.errors",
}

__all__ = [
    "Allocation",
    "CheckReport",
    "Cluster",
    "CpallocError",
    "InputError",
    "Issue",
    "Round",
    "Solver",
    "__version__",
    "check",
    "parse_round",
    "simulate",
    "solve",
]


def __getattr__(name: str) -> Any:
    """Import the public names on first use: ``cpalloc --help`` must not load a solver."""
    if name in _WHERE:
        from importlib import import_module

        return getattr(import_module(_WHERE[name]), name)
    raise AttributeError(f"module 'cpalloc' has no attribute {name!r}")
