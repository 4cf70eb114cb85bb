"""A constructed lab: :func:`load_lab` reads its distributions from a TOML file, :func:`make_lab` draws a workload."""

from cpalloc.sim.lab.config import LabConfig, load_lab
from cpalloc.sim.lab.make import make_lab

__all__ = ["LabConfig", "load_lab", "make_lab"]
