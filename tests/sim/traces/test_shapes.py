from __future__ import annotations

import pytest

from cpalloc.sim.traces.shapes import gang_of, gangs_of


@pytest.mark.parametrize(
    ("gpus", "gang"),
    [(1, (1, 1)), (8, (1, 8)), (9, (2, 5)), (14, (2, 7)), (16, (2, 8)), (59, (8, 8)), (160, (20, 8)), (0, (1, 0))],
)
def test_gangs_use_as_few_nodes_as_hold_them(gpus: int, gang: tuple[int, int]) -> None:
    assert gang_of(gpus, 8) == gang


def test_notes_count_what_is_not_whole_nodes() -> None:
    gangs, notes = gangs_of([4, 8, 14, 9, 59, 32], 8)
    assert gangs == [(1, 4), (1, 8), (2, 7), (2, 5), (8, 8), (4, 8)]
    # 14, 9 and 59 do not fill nodes; 9 -> 10 and 59 -> 64 add 1 + 5 GPUs
    assert notes[0].startswith("3 jobs")
    assert notes[1].startswith("2 of them")
    assert "by 6 GPUs" in notes[1]
    assert gangs_of([8, 16], 8)[1] == ()
