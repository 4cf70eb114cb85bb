"""What counts as worse than recorded, on made-up measurements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
NAMES = ("starvation", "shortfall", "preemption", "delay", "idle")


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))


def ran(tier_s: float, *, calibration_s: float = 0.5, open_tiers: tuple[str, ...] = (), **best: int) -> dict[str, Any]:
    """A run: every tier takes ``tier_s``, has the value given for it (7 otherwise), and is proved unless open."""
    tiers = [
        {
            "name": name,
            "best": best.get(name, 7),
            "status": "feasible" if name in open_tiers else "optimal",
            "seconds": tier_s,
        }
        for name in NAMES
    ]
    return {"case": "mixed-64-s1", "calibration_s": calibration_s, "tiers": tiers}


def worse(now: list[dict[str, Any]], before: list[dict[str, Any]]) -> list[str]:
    """Messages of what got worse."""
    from bench.watch import compared, threshold_of

    found = compared("mixed-64-s1", now, threshold_of(before))
    return [finding.message for finding in found.findings if finding.worse]


RECORDED = [ran(0.10), ran(0.12), ran(0.11)]  # 5 tiers over 0.5 s: ratios 1.0, 1.2, 1.1; allowed 1.2 + 0.2


def test_a_threshold_has_median_and_extremes_of_the_ratio() -> None:
    from bench.watch import Spread, threshold_of

    found = threshold_of(RECORDED)
    assert found.ratio == Spread(1.1, 1.0, 1.2)
    assert found.ratio.most == pytest.approx(1.4)
    assert found.timed == pytest.approx(dict.fromkeys(NAMES, 0.22))
    assert found.least_proved == 5
    assert found.values == dict.fromkeys(NAMES, (7, 7))


def test_equal_runs_always_leave_a_margin() -> None:
    from bench.watch import threshold_of

    assert threshold_of([ran(0.1), ran(0.1)]).ratio.most == pytest.approx(1.25)


def test_nothing_is_worse_within_the_spread() -> None:
    assert worse([ran(0.13)], RECORDED) == []
    assert worse(RECORDED, RECORDED) == []


def test_slower_beyond_the_spread_is_worse() -> None:
    slow = ran(0.11)
    slow["tiers"][3]["seconds"] = 0.36
    (message,) = worse([slow], RECORDED)
    assert message == (
        "takes 1.60 calibrations, 1.10 before (1.00 to 1.20, 1.40 allowed); most of it delay, 0.72 instead of 0.22"
    )


def test_a_slow_machine_is_not_worse() -> None:
    assert worse([ran(0.40, calibration_s=2.0)], RECORDED) == []


def test_the_middle_run_counts() -> None:
    assert worse([ran(0.11), ran(0.50), ran(0.12)], RECORDED) == []
    assert len(worse([ran(0.11), ran(0.50), ran(0.50)], RECORDED)) == 1


def test_fewer_proved_tiers_are_worse_and_named() -> None:
    (message,) = worse([ran(0.1, open_tiers=("idle",))], RECORDED)
    assert message == "proves 4 tiers (no longer: idle), at least 5 before"


def test_a_tier_that_was_proved_at_times_only_may_stay_open() -> None:
    before = [ran(0.1), ran(0.1, open_tiers=("idle",))]
    assert worse([ran(0.1, open_tiers=("idle",))], before) == []


def test_seconds_of_tiers_that_were_not_proved_do_not_count() -> None:
    """Three tiers of 0.1 s are timed, before and now, whatever the open one takes."""
    before = [ran(0.1, open_tiers=("delay", "idle"))]
    now = ran(0.1, open_tiers=("delay", "idle"))
    now["tiers"][3]["seconds"] = 15.0
    assert worse([now], before) == []


@pytest.mark.parametrize("value", [6, 8])
def test_another_proved_optimum_is_worse_either_way(value: int) -> None:
    (message,) = worse([ran(0.1, shortfall=value)], RECORDED)
    assert message == f"proves shortfall = {value}, 7 before; one of the two proofs is wrong"


def test_values_of_later_tiers_may_vary_as_they_did() -> None:
    before = [ran(0.1, delay=5), ran(0.1, delay=9)]
    assert worse([ran(0.1, delay=9)], before) == []
    assert worse([ran(0.1, delay=3)], before) == []
    assert worse([ran(0.1, delay=10)], before) == ["proves delay = 10, 5 to 9 before"]


def test_values_behind_an_open_tier_are_not_compared() -> None:
    before = [ran(0.1, open_tiers=("shortfall",), preemption=100)]
    assert worse([ran(0.1, open_tiers=("shortfall",), preemption=300)], before) == []


def test_faster_runs_and_unknown_cases_are_told_but_not_worse() -> None:
    from bench.watch import compared, threshold_of

    faster = compared("mixed-64-s1", [ran(0.01)], threshold_of(RECORDED))
    unknown = compared("other-64-s1", [ran(0.01)], None)
    assert [(f.worse, f.message.split()[0]) for f in (*faster.findings, *unknown.findings)] == [
        (False, "is"),
        (False, "is"),
    ]


def test_thresholds_are_written_and_read(tmp_path: Path) -> None:
    from bench.watch import read, record

    path = tmp_path / "thresholds.json"
    written = record(path, RECORDED)
    assert read(path) == written


def test_unreadable_thresholds_say_what_to_do(tmp_path: Path) -> None:
    from bench.watch import read

    with pytest.raises(SystemExit, match=r"no thresholds in .*python -m bench.watch --record"):
        read(tmp_path / "none.json")
    (tmp_path / "broken.json").write_text('{"cases": {"a": {}}}')
    with pytest.raises(SystemExit, match="does not read as thresholds"):
        read(tmp_path / "broken.json")


@pytest.mark.parametrize(("tier_s", "code"), [(0.11, 0), (0.9, 1)])
def test_the_exit_code_says_whether_anything_is_worse(
    tier_s: float, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from bench import watch

    path = tmp_path / "thresholds.json"
    watch.record(path, RECORDED)
    monkeypatch.setattr(watch, "plans", lambda runs: [watch.Plan(("mixed",), (64,), (1,), 20, runs, "watched")])
    monkeypatch.setattr(watch, "run", lambda plan, tick: [ran(tier_s) for _ in plan.orders()])
    assert watch.main(["--against", str(path), "--json", str(tmp_path / "out.json")]) == code
    assert ("allowed)" in capsys.readouterr().out) is bool(code)
    assert (tmp_path / "out.json").read_text().startswith("[")


def test_the_calibration_runs() -> None:
    from bench.calibration import calibration_s

    assert calibration_s() > 0
