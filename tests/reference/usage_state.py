"""What a Usage knows, as values that compare."""

from __future__ import annotations

from cpalloc.problem.usage import Usage


def state(usage: Usage) -> tuple[object, ...]:
    """Everything a Usage knows, to compare."""
    return (
        usage.free_gpus.tolist(),
        list(usage.free_devices),
        usage.free_resources.tolist(),
        usage.running_on.tolist(),
    )
