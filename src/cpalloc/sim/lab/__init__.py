"""A constructed lab: :func:`load_lab` reads its distributions from a file, :func:`make_lab` draws a workload."""

from cpalloc.sim.lab.config import SUFFIXES, LabConfig, load_lab, parse_lab
from cpalloc.sim.lab.make import make_lab

__all__ = ["SUFFIXES", "LabConfig", "load_lab", "make_lab", "parse_lab"]
