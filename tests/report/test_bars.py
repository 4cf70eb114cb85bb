import pytest

from cpalloc.report.bars import Bar, Edge, Gap, Shown, Standing, bars, edges, gaps, never_interrupts, shown_runs
from cpalloc.report.window import Window, node_blocks, typical_window
from cpalloc.sim.history import RunEnd
from cpalloc.sim.measures import view
from report.studies import calm, preempting
from sim.measures.histories import HOUR, Lab, history, job, run

BOTH = Window(0, 24 * HOUR, (0, 1))


def test_a_gang_on_neighbouring_nodes_is_one_rectangle_per_standing():
    v = view(preempting())
    shown = shown_runs(v, BOTH)
    assert shown[0] == Shown(0, ((0, 16),))
    assert [b for b in bars(v, BOTH, shown) if b.run == 0] == [
        Bar(0, 0, 16, 0, 4 * HOUR, Standing.SAFE),
        Bar(0, 0, 16, 4 * HOUR, 8 * HOUR, Standing.PAST),
    ]


def test_gpus_apart_are_rectangles_apart():
    v = view(calm())
    assert shown_runs(v, BOTH)[1].rows == ((0, 3), (5, 6))


def test_borrowed_work_may_always_be_taken_back():
    v = view(preempting())
    found = [b for b in bars(v, BOTH, shown_runs(v, BOTH)) if b.run == 2]
    assert found == [Bar(2, 8, 12, 8 * HOUR, 14 * HOUR, Standing.BORROWED)]


def test_only_the_nodes_and_hours_of_the_window():
    window = Window(10 * HOUR, 20 * HOUR, (1,))
    v = view(preempting())
    shown = shown_runs(v, window)
    assert [one.run for one in shown] == [2, 4]  # b, and a again; c is on n0, d was over
    assert bars(v, window, shown) == [
        Bar(2, 0, 4, 10 * HOUR, 14 * HOUR, Standing.BORROWED),
        Bar(4, 0, 8, 14 * HOUR, 18 * HOUR, Standing.SAFE),
        Bar(4, 0, 8, 18 * HOUR, 20 * HOUR, Standing.PAST),
    ]


def test_bars_cover_exactly_what_was_held():
    v = view(preempting())
    window = Window(0, 30 * HOUR, (0, 1))
    area = sum((b.bottom - b.top) * (b.end_s - b.start_s) for b in bars(v, window, shown_runs(v, window)))
    assert area == (v.runs.size * v.runs.length_s).sum()


def test_red_edges_where_the_policy_ended_a_run_and_others_where_it_had_to():
    v = view(preempting())
    assert edges(v, BOTH, shown_runs(v, BOTH)) == [Edge(0, 0, 16, 8 * HOUR, forced=False)]
    h = history(jobs=[job("a")], runs=[run("a", 0, 60, {"n0": [3]}, end=RunEnd.LOST)], end_s=HOUR)
    window = Window(0, HOUR, (0,))
    assert edges(view(h), window, shown_runs(view(h), window)) == [Edge(0, 3, 4, 60, forced=True)]
    early = Window(0, 30, (0,))
    assert edges(view(h), early, shown_runs(view(h), early)) == []


def test_nodes_out_of_service_are_gaps():
    window = Window(20 * HOUR, 30 * HOUR, (0, 1))
    assert gaps(view(preempting()), window) == [Gap(8, 16, 26 * HOUR, 30 * HOUR)]
    assert gaps(view(preempting()), BOTH) == []


def test_what_no_policy_interrupts_is_not_hatched():
    v = view(calm())
    assert never_interrupts(v)
    assert {b.standing for b in bars(v, BOTH, shown_runs(v, BOTH))} == {Standing.SAFE}
    assert not never_interrupts(view(preempting()))


def test_the_64th_gpu_of_a_node_is_shown():
    h = history(jobs=[job("a")], runs=[run("a", 0, HOUR, {"n0": [0]})], end_s=HOUR, lab=Lab(nodes=1, gpus=64))
    h.places.devices[0] = -(1 << 63)  # bit 63, as a signed integer
    assert shown_runs(view(h), Window(0, HOUR, (0,)))[0].rows == ((63, 64),)


def test_blocks_hold_at_most_64_gpus():
    assert node_blocks([8] * 10) == [tuple(range(8)), (8, 9)]
    assert node_blocks([100, 8]) == [(0,), (1,)]


def test_a_short_history_is_shown_whole():
    h = history(jobs=[job("a")], runs=[run("a", 0, 60, {"n0": 1})], end_s=2 * HOUR)
    assert typical_window([view(h)]) == Window(0, 2 * HOUR, (0, 1))
    nothing = history(jobs=[], end_s=HOUR)
    assert typical_window([view(nothing)]).nodes == (0, 1)


def busy(per_day, nodes=16):
    """``per_day[d][block]`` jobs of a minute start on day d on the first node of a block of 8 nodes."""
    width = len(str(nodes - 1))
    starts = sorted(
        (day * 24 * HOUR + 60 * i, f"n{8 * block:0{width}}")
        for day, counts in enumerate(per_day)
        for block, count in enumerate(counts)
        for i in range(count)
    )
    jobs = [job(f"j{i}") for i in range(len(starts))]
    runs = [run(f"j{i}", at, at + 60, {node: 1}) for i, (at, node) in enumerate(starts)]
    return view(history(jobs=jobs, runs=runs, end_s=len(per_day) * 24 * HOUR, lab=Lab(nodes=nodes)))


def test_the_most_ordinary_day_and_block_are_chosen():
    # day 0 is warm-up; the other days and blocks have 9, 1, 3, 0 and 0, 7, 8, 4 runs: 4 on the mean
    v = busy([(4, 4), (9, 0), (1, 7), (3, 8), (0, 4)])
    assert typical_window([v]) == Window(4 * 24 * HOUR, 5 * 24 * HOUR, tuple(range(8, 16)))


def test_too_many_runs_shorten_the_window():
    v = busy([(900,)], nodes=8)
    window = typical_window([v])
    assert window.end_s - window.start_s < 24 * HOUR


@pytest.mark.parametrize("count", [1, 2])
def test_the_choice_is_the_same_each_time(count):
    views = [view(preempting()), view(calm())][:count]
    assert typical_window(views) == typical_window(views)
