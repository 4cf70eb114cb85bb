"""Trace readers: one small file a format, and :func:`read_trace` over all of them."""

from cpalloc.sim.traces.base import ClusterFacts, Trace, team_weights
from cpalloc.sim.traces.registry import FORMATS, read_trace

__all__ = ["FORMATS", "ClusterFacts", "Trace", "read_trace", "team_weights"]
