from __future__ import annotations

from cpalloc.metrics.shape_mix import MAX_SHAPES, default_shape_mix
from cpalloc.problem.problem import Shape


def test_equal_shapes_are_added_up_and_nothing_else() -> None:
    jobs = [(2, 8, 1, 0), (1, 8, 0, 0), (2, 8, 1, 0), (2, 8, 0, 0), (2, 8, 1, -1)]
    # the whole node of pool 0 joins the job of one whole node
    assert default_shape_mix(jobs, [(8, 0), (4, 1)]) == (
        Shape(1, 4, 0, 1, 1),
        Shape(1, 8, 0, 2, 0),
        Shape(2, 8, 0, 1, 0),
        Shape(2, 8, 1, 1, -1),
        Shape(2, 8, 1, 2, 0),
    )


def test_the_order_of_the_jobs_does_not_matter() -> None:
    jobs = [(r, g, 0, 0) for r in range(1, 20) for g in (1, 2, 3, 4, 5)]
    assert default_shape_mix(jobs, []) == default_shape_mix(reversed(jobs), [])


def test_of_many_shapes_the_heaviest_stay() -> None:
    # 70 sizes 1 ... 70, one each, but three jobs of size 2: weight × size 6. Kept: the 64 largest of
    # 1, 3, 4, 5, 6 (twice), 7 ... 70: 70 down to 8 are 63, then 7
    mix = default_shape_mix([(1, g, 0, 0) for g in range(1, 71)] + [(1, 2, 0, 0)] * 2, [])
    assert len(mix) == MAX_SHAPES
    assert [s.gpus_per_replica for s in mix] == list(range(7, 71))
    # one more job of size 2 makes it 8, past the 7
    mix = default_shape_mix([(1, g, 0, 0) for g in range(1, 71)] + [(1, 2, 0, 0)] * 3, [])
    assert [s.gpus_per_replica for s in mix] == [2, *range(8, 71)]


def test_shapes_without_a_gpu_are_left_out() -> None:
    assert default_shape_mix([(3, 0, 0, 0)], [(0, 0)]) == ()
