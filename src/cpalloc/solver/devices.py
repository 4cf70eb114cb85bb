"""Which GPUs of a node each replica gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Want:
    """One replica that wants GPUs of a node; ``group`` is the mask they must come from (0: anywhere)."""

    job: int
    gpus: int
    group: int


def lowest(mask: int, count: int) -> int:
    """The ``count`` lowest bits of a mask.

    >>> bin(lowest(0b110110, 3))
    '0b10110'
    """
    out = 0
    for _ in range(count):
        bit = mask & -mask
        out |= bit
        mask ^= bit
    return out


def assign_devices(free: int, groups: Sequence[int], wants: Sequence[Want]) -> list[int] | None:
    """Device masks for replicas on one node, in the order of ``wants``; None if they do not fit.

    Replicas bound to a group come first, then larger before smaller; the others go whole into the fullest group that
    holds them (best fit), else over the fullest groups. ``free`` -1 (unknown devices) gives counts: every mask is -1.
    """
    if free < 0:
        return [-1] * len(wants)
    masks = [0] * len(wants)
    for i in sorted(range(len(wants)), key=lambda i: (not wants[i].group, -wants[i].gpus, wants[i].job, i)):
        want = wants[i]
        pools = [free & g for g in ([want.group] if want.group else groups)]
        whole = [p for p in pools if p.bit_count() >= want.gpus]
        if whole:
            mask = lowest(min(whole, key=lambda p: (p.bit_count(), p)), want.gpus)
        elif want.group or free.bit_count() < want.gpus:
            return None
        else:
            mask = 0
            for part in sorted((p for p in pools if p), key=lambda p: (p.bit_count(), p)):
                mask |= lowest(part, min(part.bit_count(), want.gpus - mask.bit_count()))
        masks[i] = mask
        free &= ~mask
    return masks
