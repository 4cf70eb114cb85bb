"""What is charged and owed, against sums by hand and against adding up second by second."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from cpalloc.problem.problem import Mode
from cpalloc.schema import Budget
from cpalloc.sim.config import SimConfig
from cpalloc.sim.ledger import Ledger, Meter
from cpalloc.sim.state import State
from sim.worlds import HOUR, job, nodes, world

WEEK = 7 * 24 * HOUR


def ledger(window_s: int = 100, in_service: int = 10, shares: tuple[Fraction, ...] = (Fraction(1, 4),)) -> Ledger:
    return Ledger([f"l{i}" for i in range(len(shares))], 0, window_s, in_service, shares)


def test_a_leaf_begins_with_ratio_0_and_a_full_window_of_what_it_is_owed() -> None:
    book = ledger()
    assert book.charged(0, 0) == 0
    assert book.owed(0, 0) == 10 * 100 // 4
    assert book.ratio(0, 0) == 0


def test_charges_slide_out_of_the_window() -> None:
    book = ledger()
    book.charge(0, 0, 4)
    assert book.charged(0, 30) == 120
    book.charge(0, 50, -4)
    assert book.charged(0, 50) == 200
    assert book.charged(0, 100) == 200
    assert book.charged(0, 130) == 80  # only seconds 30 to 50 are left
    assert book.charged(0, 150) == 0
    assert book.charged_ever(0, 150) == 200


def test_what_is_owed_follows_the_gpus_in_service_and_is_floored() -> None:
    book = ledger(shares=(Fraction(1, 3),))
    book.serve(10, -9)
    assert book.owed(0, 20) == (90 * 10 + 10 * 1) // 3
    assert book.owed(0, 110) == 100 // 3


def test_a_leaf_that_is_owed_nothing_has_no_ratio() -> None:
    assert ledger(shares=(Fraction(0),)).ratio(0, 5) is None


def test_other_shares_count_from_their_instant_on() -> None:
    book = ledger(shares=(Fraction(1, 2), Fraction(1, 2)))
    book.share_out(20, (Fraction(1, 10), Fraction(9, 10)))
    assert book.all_owed(40) == [10 * 80 // 2 + 10 * 20 // 10, 10 * 80 // 2 + 9 * 20]
    assert book.all_owed(120) == [100, 900]
    assert book.shares == [Fraction(1, 10), Fraction(9, 10)]


def test_memory_is_bounded_by_the_window() -> None:
    meter = Meter(0, 100, 0)
    for second in range(1, 10_000):
        meter.step(second, 1 if second % 2 else -1)
    assert len(meter._steps) <= 102
    assert meter.in_window(10_000) == 50


def test_shares_of_the_past_are_forgotten_with_it() -> None:
    book = ledger()
    for second in range(0, 10_000, 50):
        book.share_out(second, (Fraction(1, second + 1),))
    assert len(book._eras) <= 4


@pytest.mark.parametrize("seed", range(5))
def test_against_adding_up_second_by_second(seed: int) -> None:
    rng = np.random.default_rng(seed)
    window_s, end_s = 40, 200
    book = ledger(window_s=window_s, in_service=7, shares=(Fraction(2, 7), Fraction(5, 7)))
    charged = np.zeros((end_s, 2), dtype=np.int64)
    owed = np.zeros((end_s + window_s, 2), dtype=object)  # from one window before the start
    gpus, service, shares = [0, 0], 7, [Fraction(2, 7), Fraction(5, 7)]
    owed[:window_s] = [service * s for s in shares]
    for now in range(end_s):
        if rng.random() < 0.2:
            leaf, more = int(rng.integers(2)), int(rng.integers(4))
            change = more - gpus[leaf]
            book.charge(leaf, now, change)
            gpus[leaf] = more
        if rng.random() < 0.05:
            more = int(rng.integers(9))
            book.serve(now, more - service)
            service = more
        if rng.random() < 0.03:
            part = Fraction(int(rng.integers(8)), 7)
            shares = [part, 1 - part]
            book.share_out(now, shares)
        for leaf in (0, 1):
            assert book.charged(leaf, now) == charged[max(0, now - window_s) : now, leaf].sum()
            assert book.owed(leaf, now) == int(sum(owed[now : now + window_s, leaf]) // 1)
        assert book.all_owed(now) == [book.owed(0, now), book.owed(1, now)]
        charged[now] = gpus
        owed[window_s + now] = [service * s for s in shares]


def test_worked_decision_2_six_idle_days() -> None:
    """Y (25) idles six days while X (75) holds all 64; after a day of Y on all 64: ratios 0.571 and 1.14."""
    w = world(
        [job("x", 0, 8, 6 * 24 * HOUR, "x", replicas=8), job("y", 0, 8, WEEK, "y", replicas=8)],
        nodes(8),
        teams={"x": 75, "y": 25},
    )
    state = State(w, SimConfig())
    everything = tuple((node, 0xFF) for node in range(8))
    for i in (0, 1):
        state.submit(i)
    state.start(0, Mode.ALLOCATED, everything, -1)
    state.now_s = 6 * 24 * HOUR
    state.stop(0, state.now_s)
    state.start(1, Mode.ALLOCATED, everything, -1)
    state.now_s = WEEK
    x, y = state.ledger.leaf_names.index("x"), state.ledger.leaf_names.index("y")
    assert state.ledger.ratio(y, WEEK) == Fraction(4, 7)  # 64·24 / (0.25·64·168) = 0.571
    assert state.ledger.ratio(x, WEEK) == Fraction(8, 7)  # 64·144 / (0.75·64·168) = 1.143


def test_the_state_keeps_charges_of_leaves_over_a_change_of_budgets() -> None:
    w = world([job("j", 0, 8, 100)], teams={"a": 1, "b": 3})
    state = State(w, SimConfig())
    state.submit(0)
    state.start(0, Mode.ALLOCATED, ((0, 0xFF),), -1)
    state.now_s = 50
    state.set_budgets((Budget(name="a", weight=1),))
    assert state.ledger.shares == [1, 0]
    assert state.ledger.all_charged(50) == [400, 0]
    assert state.budgets_version == 1


def test_before_the_start_only_the_prior_time_is_owed() -> None:
    # 10 GPUs, a quarter of them for 20 s before the start: 50 GPU-s; then 2.5 a second until the window is full
    book = Ledger(["l0"], 0, 100, 10, (Fraction(1, 4),), prior_s=20)
    assert [book.owed(0, t) for t in (0, 20, 80, 100, 140)] == [50, 100, 250, 250, 250]


def test_a_simulation_begins_with_one_charge_horizon_owed() -> None:
    state = State(world([job("a", 0, 1, 60)]), SimConfig())
    assert sum(state.ledger.owed(leaf, 0) for leaf in range(len(state.ledger.leaf_names))) == 8 * HOUR
    longer = State(world([job("a", 0, 1, 60)]), SimConfig(prior_s=2 * HOUR))
    assert sum(longer.ledger.owed(leaf, 0) for leaf in range(len(longer.ledger.leaf_names))) == 16 * HOUR
