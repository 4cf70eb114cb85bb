"""From a number of GPUs to a gang: equal replicas on as few nodes as can hold them."""

from __future__ import annotations

from collections.abc import Sequence


def gang_of(gpus: int, gpus_per_node: int) -> tuple[int, int]:
    """Replicas and GPUs per replica of a job of which only the number of GPUs is known.

    Up to a node: one replica. More: as few nodes as can hold it, evenly, rounded up to equal replicas. For whole nodes,
    which nearly all larger jobs are, this is what Helios' simulator does with consolidated placement; there a remainder
    goes to one more node (14 GPUs on nodes of 8 are 8 + 6), which equal replicas cannot say (here 2 x 7).

    Examples
    --------
    >>> gang_of(4, 8), gang_of(32, 8), gang_of(14, 8), gang_of(59, 8)
    ((1, 4), (4, 8), (2, 7), (8, 8))
    """
    replicas = max(1, -(-gpus // gpus_per_node))
    return replicas, -(-gpus // replicas)


def gangs_of(gpus: Sequence[int], gpus_per_node: int) -> tuple[list[tuple[int, int]], tuple[str, ...]]:
    """Gangs of many jobs, and notes on how many are not whole nodes and what rounding up has added."""
    gangs = [gang_of(g, gpus_per_node) for g in gpus]
    partial = sum(
        (replicas > 1 and each < gpus_per_node) or replicas * each > g
        for (replicas, each), g in zip(gangs, gpus, strict=True)
    )
    rounded = sum(replicas * each > g for (replicas, each), g in zip(gangs, gpus, strict=True))
    added = sum(replicas * each - g for (replicas, each), g in zip(gangs, gpus, strict=True))
    notes: list[str] = []
    if partial:
        notes.append(f"{partial:,} jobs of several nodes do not fill them: split evenly over the fewest nodes")
    if rounded:
        notes.append(f"{rounded:,} of them are rounded up to equal replicas, by {added:,} GPUs in all")
    return gangs, tuple(notes)
