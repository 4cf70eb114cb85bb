import json
from dataclasses import replace

import pytest

from cpalloc.errors import InputError
from cpalloc.sim.history import RunEnd
from cpalloc.sim.measures import MEASURES, Summary, compare, summary, view
from cpalloc.sim.measures.compare import Verdict
from cpalloc.sim.measures.frames import comparison_frame, leaf_frame, measure_frame
from cpalloc.sim.measures.quantiles import Quantile
from cpalloc.sim.measures.registry import Measure
from cpalloc.sim.measures.units import Direction, Unit, duration, write, write_difference, write_range
from cpalloc.sim.workload import Provenance
from sim.measures.histories import HOUR, Sample, Turn, history, job, run


def made(seed=1, wait_s=600, policy="p", provenance=Provenance.CONSTRUCTED, started=True):
    """Job a waits, runs an hour on 8 of x's 8 GPUs; job b is a debug job of y that may never start."""
    runs = [run("a", wait_s, wait_s + HOUR, {"n0": 8})]
    if started:
        runs.append(run("b", 3 * HOUR, 3 * HOUR + 60, {"n1": 1}))
    return summary(
        history(
            jobs=[job("a", gpus=8), job("b", "y", 3 * HOUR - 30, min_runtime_s=60)],
            runs=runs,
            end_s=4 * HOUR,
            samples=[Sample(0, charged=(1, 1), owed=(2, 2))],
            rounds=[Turn(0, seconds=0.5)],
            policy=policy,
            seed=seed,
            provenance=provenance,
        )
    )


def test_a_summary_says_where_it_comes_from_and_goes_through_json():
    s = made(seed=7)
    data = json.loads(json.dumps(s.to_dict(), allow_nan=False))
    assert (data["workload"], data["provenance"], data["policy"], data["seed"]) == ("toy", "constructed", "p", 7)
    assert data["notes"] == ["made up for tests"]
    assert data["waits"]["debug"]["first"]["p50"] == {"value": 30.0, "lower_bound": False}
    assert Summary.from_dict(data) == s


def test_a_summary_of_another_version_is_refused_by_name_of_the_field():
    data = made().to_dict()
    del data["progress"]["useful_share"]
    with pytest.raises(InputError) as caught:
        Summary.from_dict(data)
    assert [(i.code, i.path) for i in caught.value.issues] == [("summary", "progress.useful_share")]


def test_a_summary_of_nothing():
    h = history(jobs=[], end_s=0)
    assert summary(h) == summary(view(h))
    assert all(m.read(summary(h)) is None or m.read(summary(h)).value == 0 for m in MEASURES)


def test_every_measure_reads_a_full_summary_and_names_are_unique():
    s = made()
    absent = {m.name for m in MEASURES if m.read(s) is None}
    # no interactive, multi-node, large or borrowing jobs in it
    assert absent == {
        f"{c}_wait_{q}" for c in ("interactive", "multi_node", "single_node", "borrowed") for q in ("p50", "p90", "p99")
    }
    assert len({m.name for m in MEASURES}) == len(MEASURES)
    assert len({(m.group, m.title) for m in MEASURES}) == len(MEASURES)


def test_measures_of_one_group_stand_together():
    groups = [m.group for m in MEASURES]
    assert [g for i, g in enumerate(groups) if i == 0 or groups[i - 1] != g] == list(dict.fromkeys(groups))


def test_a_measure_must_be_a_figure():
    with pytest.raises(TypeError, match="policy"):
        Measure("x", "x", "x", Unit.COUNT, Direction.HIGHER, "policy").read(made())


def test_median_spread_and_differences_paired_by_seed():
    base = [made(1, 600), made(2, 1200), made(3, 1800)]
    other = [made(3, 900), made(1, 900), made(2, 300)]
    c = compare({"base": base, "other": other})
    first, second = c.row("large_wait_p90").cells  # 8 of 16 GPUs
    assert (first.median, first.low, first.high, first.seeds, first.difference) == (1200, 600, 1800, 3, None)
    d = second.difference
    assert (d.low, d.median, d.high, d.pairs) == (-900, -900, 300, 3)  # seeds 1: +300, 2: −900, 3: −900
    assert d.relative == pytest.approx(-0.5)  # +0.5, −0.75, −0.5
    assert d.verdict is Verdict.MIXED
    assert (c.base, c.seeds, c.policies) == ("base", ((1, 2, 3), (1, 2, 3)), ("p", "p"))


@pytest.mark.parametrize(
    ("wait_s", "verdict"), [(300, Verdict.BETTER), (900, Verdict.WORSE), (600, Verdict.SAME)], ids=str
)
def test_verdict_needs_every_seed(wait_s, verdict):
    c = compare({"base": [made(1), made(2)], "other": [made(1, wait_s), made(2, wait_s)]})
    assert c.row("large_wait_p50").cells[1].difference.verdict is verdict
    assert c.row("availability").cells[1].difference.verdict is Verdict.NEITHER


def test_a_lower_bound_is_never_called_better():
    c = compare({"started": [made()], "not": [made(started=False)]}, base="not")
    row = c.row("debug_wait_p50")  # 30 s against at least 3,630 s
    assert (row.cells[1].median, row.cells[1].lower_bound) == (HOUR + 30, True)
    assert row.cells[0].difference.verdict is Verdict.BETTER
    both = compare({"a": [made(started=False)], "b": [made(started=False)]})
    assert both.row("debug_wait_p50").cells[1].difference.verdict is Verdict.NEITHER
    turned = compare({"not": [made(started=False)], "started": [made()]})
    assert turned.row("debug_wait_p50").cells[1].difference.verdict is Verdict.BETTER


def test_seeds_that_only_one_has_are_not_paired():
    c = compare({"base": [made(1)], "other": [made(2, 60)], "more": [made(1, 60), made(5, 60)]})
    _, other, more = c.row("large_wait_p50").cells
    assert other.difference is None
    assert (more.seeds, more.difference.pairs) == (2, 1)


def test_leaves_are_compared_too():
    c = compare({"base": [made()], "other": [made(wait_s=0)]})
    x = c.leaves[0]
    assert x.name == "x"
    # 8 GPUs owed in hours 0 and 1 while it is there: 8 + 8/6 GPU-h, of which 8·5/6 + 8/6 delivered
    assert x.cells[0].median == pytest.approx((8 * 5 / 6 + 8 / 6) / (8 + 8 / 6))
    assert x.cells[1].median == 1


def test_all_that_is_wrong_with_a_comparison_is_said_at_once():
    with pytest.raises(InputError) as caught:
        compare({"a": [made(1), made(1)], "b": [], "c": [made(1, provenance=Provenance.TRACE)]}, base="z")
    assert {i.code for i in caught.value.issues} == {"empty", "unknown_base", "duplicate_seed", "mixed_provenance"}
    with pytest.raises(InputError, match="is not a scenario"):
        compare({})


def test_comparison_goes_through_json_and_into_a_frame():
    c = compare({"base": [made(1), made(2)], "other": [made(1, 60), made(2, 60)]})
    assert json.loads(json.dumps(c.to_dict(), allow_nan=False))["rows"][0]["name"] == MEASURES[0].name
    frame = comparison_frame(c)
    row = frame.filter(scenario="other", measure="large_wait_p50").row(0, named=True)
    assert (row["median"], row["difference_median"], row["difference_relative"]) == (60, -540, -0.9)
    assert (row["verdict"], row["better"], row["unit"]) == ("better", "lower", "s")


def test_frames_have_a_row_per_seed_and_figure(tmp_path):
    scenarios = {"base": [made(1), made(2)], "other": [made(1, started=False)]}
    frame = measure_frame(scenarios)
    assert frame.height == 3 * len(MEASURES)
    frame.write_parquet(tmp_path / "measures.parquet")
    bound = frame.filter(frame["lower_bound"])
    assert set(bound["scenario"]) == {"other"}
    leaves = leaf_frame(scenarios)
    assert leaves.height == 6
    assert leaves["leaf"].to_list()[:2] == ["x", "y"]


def test_mean_is_read_as_a_lower_bound():
    s = made(started=False)
    queued = replace(s.waits.all.queued, mean=Quantile(1.0, True))
    changed = replace(s, waits=replace(s.waits, all=replace(s.waits.all, queued=queued)))
    measure = next(m for m in MEASURES if m.name == "queued_mean")
    assert measure.read(changed) == Quantile(1.0, True)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.9731, Unit.SHARE, "97.3 %"),
        (None, Unit.SHARE, "–"),
        (0.5, Unit.SECONDS, "500 ms"),
        (0, Unit.SECONDS, "0 s"),
        (59.4, Unit.SECONDS, "59 s"),
        (90, Unit.SECONDS, "1 min 30 s"),
        (3 * HOUR, Unit.SECONDS, "3 h"),
        (30 * HOUR, Unit.SECONDS, "1 d 6 h"),
        (12345.6, Unit.GPU_HOURS, "12,346 GPU-h"),
        (12.34, Unit.GPUS, "12.3 GPUs"),
        (1.234, Unit.RATIO, "1.23"),
        (7, Unit.COUNT, "7"),
    ],
)
def test_values_are_written_with_their_units(value, unit, text):
    assert write(value, unit) == text


def test_ranges_share_a_unit():
    assert write_range(0.0001, 0.0218, Unit.SECONDS) == "0.1 … 21.8 ms"
    assert write_range(1800, 9000, Unit.SECONDS) == "0.5 … 2.5 h"
    assert write_range(-0.05, 0.02, Unit.SHARE, signed=True) == "−5.0 … +2.0 pp"
    assert write_range(12.34, 2000, Unit.GPU_HOURS) == "12.3 … 2,000 GPU-h"
    assert write_range(-3, 7, Unit.COUNT, signed=True) == "−3 … +7"


def test_durations_never_show_sixty_of_anything():
    assert [duration(s) for s in (9.999, 59.7, 3599.7, 86_399)] == ["10 s", "1 min", "1 h", "1 d"]


def test_differences_carry_their_sign():
    assert write_difference(0.0123, Unit.SHARE) == "+1.2 pp"
    assert write_difference(-600, Unit.SECONDS) == "−10 min"
    assert write_difference(0, Unit.COUNT) == "±0"
    assert write_difference(None, Unit.COUNT) == "–"


def test_an_interrupted_history_says_so():
    h = replace(
        history(jobs=[job("a")], runs=[run("a", 0, -1, {"n0": 1}, end=RunEnd.OPEN)], end_s=60), interrupted=True
    )
    assert summary(h).interrupted
