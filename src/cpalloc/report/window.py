"""Which hours and nodes to show in a timeline, so that it is typical of the whole and can be read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cpalloc.sim.history import FloatArray, RunEnd
from cpalloc.sim.measures import View

MOST_GPUS = 64
MOST_RUNS = 600
"""Rows and runs of a panel beyond which bars can no longer be told apart."""

_LENGTHS_S = tuple(hours * 3600 for hours in (24, 12, 6, 3, 1))
_WARM_UP = 0.2
"""Part of a history passed over, while its cluster fills up."""


@dataclass(frozen=True, slots=True)
class Window:
    """Hours ``[start_s, end_s)`` and some nodes (indices, ascending)."""

    start_s: int
    end_s: int
    nodes: tuple[int, ...]


def typical_window(views: Sequence[View]) -> Window:
    """Pick the hours and the block of neighbouring nodes that are the most ordinary.

    Candidates are blocks of nodes with at most 64 GPUs, and stretches of 24 hours after the first fifth of the span.
    The one is taken whose numbers of runs and of preemptions, under all policies, are closest to the means of all
    candidates (sum of squared standard scores; the earliest and first on ties). Where it has more than 600 runs, the
    same is done with shorter stretches.

    Parameters
    ----------
    views
        Histories of one workload, at least one.
    """
    blocks = node_blocks([node.gpus for node in views[0].nodes])
    start_s = max(v.history.start_s for v in views)
    end_s = max(start_s + 1, min(v.history.end_s for v in views))
    window = Window(start_s, end_s, blocks[0])
    for length_s in _LENGTHS_S:
        starts = _starts(start_s, end_s, length_s)
        counts = [_counts(v, blocks, starts, length_s) for v in views]
        features = np.stack([feature for pair in counts for feature in pair])
        block, at = np.unravel_index(np.argmin(_distance(features)), features.shape[1:])
        window = Window(starts[at], min(end_s, starts[at] + length_s), blocks[block])
        if max(runs[block, at] for runs, _ in counts) <= MOST_RUNS:
            break
    return window


def node_blocks(gpus: Sequence[int]) -> list[tuple[int, ...]]:
    """Cut the list of nodes into blocks of at most 64 GPUs (a larger node is a block of its own)."""
    blocks: list[list[int]] = [[]]
    held = 0
    for node, size in enumerate(gpus):
        if blocks[-1] and held + size > MOST_GPUS:
            blocks.append([])
            held = 0
        blocks[-1].append(node)
        held += size
    return [tuple(block) for block in blocks]


def _starts(start_s: int, end_s: int, length_s: int) -> list[int]:
    settled = start_s + int(_WARM_UP * (end_s - start_s)) // 3600 * 3600
    found = list(range(settled, end_s - length_s + 1, length_s))
    return found or [max(start_s, end_s - length_s)]


def _counts(
    v: View, blocks: Sequence[tuple[int, ...]], starts: Sequence[int], length_s: int
) -> tuple[FloatArray, FloatArray]:
    """Runs that overlap, and preemptions in, each (block, stretch); a gang counts in every block it touches."""
    h = v.history
    block_of = np.empty(len(v.nodes), dtype=np.int64)
    for number, block in enumerate(blocks):
        block_of[list(block)] = number
    run = np.repeat(np.arange(len(h.runs.job)), np.diff(h.runs.first_place))
    pairs = np.unique(np.stack((block_of[h.places.node], run)), axis=1)
    block, run = pairs
    start, end, cut = v.runs.start_s[run], v.runs.end_s[run], h.runs.end[run] == RunEnd.PREEMPTED
    runs, preemptions = np.zeros((2, len(blocks), len(starts)))
    for i, at in enumerate(starts):
        overlap = (start < at + length_s) & (end > at)
        runs[:, i] = np.bincount(block[overlap], minlength=len(blocks))
        ended = cut & (end >= at) & (end < at + length_s)
        preemptions[:, i] = np.bincount(block[ended], minlength=len(blocks))
    return runs, preemptions


def _distance(features: FloatArray) -> FloatArray:
    """Sum over features (axis 0) of the squared standard score of each candidate."""
    mean = features.mean(axis=(1, 2), keepdims=True)
    deviation = features.std(axis=(1, 2), keepdims=True)
    scores = (features - mean) / np.where(deviation > 0, deviation, 1)
    result: FloatArray = (scores**2).sum(axis=0)
    return result
