"""What one learns from a history: measures as pure functions, their summary, and scenarios side by side."""

from cpalloc.sim.measures.compare import Comparison, compare
from cpalloc.sim.measures.registry import MEASURES, Measure
from cpalloc.sim.measures.summary import Summary, summary
from cpalloc.sim.measures.view import View, view

__all__ = ["MEASURES", "Comparison", "Measure", "Summary", "View", "compare", "summary", "view"]
