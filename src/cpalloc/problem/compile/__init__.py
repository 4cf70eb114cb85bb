"""From the wire to the inside: a round becomes a :class:`~cpalloc.problem.problem.Problem`."""

from cpalloc.problem.compile.compile import Compiled, compile_round

__all__ = ["Compiled", "compile_round"]
