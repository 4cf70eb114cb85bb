import numpy as np
import pytest

from cpalloc.report import series
from cpalloc.sim.measures import view
from cpalloc.sim.measures.delivery import delivery
from report.studies import END_S, preempting
from sim.measures.histories import HOUR, Sample, history


def test_bins_are_as_fine_as_can_be_read():
    assert series.step_s(0, 24 * HOUR, 96) == HOUR
    assert series.step_s(0, 30 * 24 * HOUR, 96) == 12 * HOUR
    assert series.step_s(0, 10_000 * 24 * HOUR, 96) == 168 * HOUR


def test_held_is_a_mean_over_each_bin():
    s = series.held(view(preempting()), most=5)  # 30 h in bins of 6 h
    assert s.days.tolist() == [0, 0.25, 0.5, 0.75, 1.0]
    # hours 6–12: 16 for 2 h, then c 8 for 4 h and d 1 for 10 min; borrowed 4 for 4 h
    assert s.allocated[1] == pytest.approx((16 * 2 + 8 * 4 + 1 / 6) / 6)
    assert s.borrowed[1] == pytest.approx(4 * 4 / 6)
    assert s.in_service[-1] == pytest.approx((16 * 2 + 8 * 4) / 6)


def test_what_is_met_adds_up_to_hour_capped_delivery():
    v = view(preempting())
    s = series.owed(v, most=7)
    widths = np.diff(np.append(s.days * 86_400, END_S))
    for i, leaf in enumerate(delivery(v).leaves):
        assert (s.owed[i] * widths).sum() / HOUR == pytest.approx(leaf.owed_gpu_hours)
        assert (s.met[i] * widths).sum() / (s.owed[i] * widths).sum() == pytest.approx(leaf.hour_capped)


def test_samples_are_averaged_and_unknown_ones_left_out():
    samples = [
        Sample(0, charged=(1, 1), owed=(2, 0), stranded=2),
        Sample(60, charged=(3, 1), owed=(2, 0), stranded=float("nan")),
        Sample(3 * HOUR, stranded=5),
    ]
    s = series.sampled(view(history(jobs=[], end_s=4 * HOUR, samples=samples)))
    assert s.days.tolist() == [0, 3 / 24]
    assert s.stranded.tolist() == [2, 5]
    assert s.ratio[0, 0] == 1.0
    assert np.isnan(s.ratio[0, 1])


def test_an_empty_history_has_empty_series():
    v = view(history(jobs=[], end_s=0))
    assert series.owed(v).owed.shape == (2, 0)
    assert len(series.held(v).days) == 0
    assert len(series.sampled(v).days) == 0
