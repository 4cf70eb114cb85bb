"""From the wire to the inside: a round becomes a :class:`~cpalloc.problem.problem.Problem`."""

from cpalloc.problem.compile.cache import CompileCache
from cpalloc.problem.compile.compile import Compiled, compile_round

__all__ = ["CompileCache", "Compiled", "compile_round"]
