"""What a process that simulates beside more urgent work is held to."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a process is held to; what the platform does not know is passed over.

    Parameters
    ----------
    niceness : int
        Its priority is lowered by so much (19: it runs when nobody else wants to).
    memory_bytes : int, optional
        Most memory; what asks for more fails, and leaves the machine to the others.
    """

    niceness: int = 0
    memory_bytes: int | None = None

    def apply(self) -> None:
        """Hold this process to them, for good."""
        if self.niceness and hasattr(os, "nice"):
            os.nice(self.niceness)
        if self.memory_bytes is None:
            return
        try:
            import resource
        except ImportError:  # not everywhere
            return
        # Data, not address space: libraries map far more than they ever write to.
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        least = self.memory_bytes if most == resource.RLIM_INFINITY else min(self.memory_bytes, most)
        resource.setrlimit(resource.RLIMIT_DATA, (least, least))
