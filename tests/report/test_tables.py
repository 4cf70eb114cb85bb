import io

import pytest
from rich.console import Console

from cpalloc.report import comparison_leaves_table, comparison_table, leaves_table, summary_table, text
from cpalloc.sim.measures import compare, summary
from cpalloc.sim.measures.compare import Cell, Difference, Verdict
from cpalloc.sim.measures.quantiles import Quantile
from cpalloc.sim.measures.units import Unit
from report.studies import comparison, preempting


def printed(table):
    out = io.StringIO()
    Console(file=out, width=200).print(table)
    return out.getvalue()


def line(shown, start):
    return next(row for row in shown.splitlines() if row.strip().startswith(start))


def test_a_summary_is_a_table_with_its_provenance():
    shown = printed(summary_table(summary(preempting())))
    assert "cuts on toy (constructed), seed 1" in shown
    assert line(shown, "preemptions").split() == ["preemptions", "1"]
    assert "interactive" not in shown  # there was none


def test_leaves_are_a_table():
    shown = printed(leaves_table(summary(preempting())))
    # y is charged 29·50 of 29·80 at the last sample
    assert line(shown, "y").split()[-1] == "0.625"
    assert "constructed" in shown


def test_a_comparison_says_what_is_better_and_by_how_much():
    shown = printed(comparison_table(comparison()))
    assert "toy (constructed), median of 2 seeds" in shown
    assert "differences to first come" in shown
    preemptions = line(shown, "preemptions")
    assert preemptions.split() == ["preemptions", "↓", "0", "1"]
    after = shown.splitlines()[shown.splitlines().index(preemptions) + 1]
    assert after.split() == ["+1", "✗"]
    assert "✓ better with every seed" in shown


def test_the_headline_is_short():
    whole, short = printed(comparison_table(comparison())), printed(comparison_table(comparison(), headline=True))
    assert len(short.splitlines()) < len(whole.splitlines()) / 2
    assert "worst budget" in short
    assert "slowdown" not in short


def test_leaves_are_compared():
    shown = printed(comparison_leaves_table(comparison()))
    assert line(shown, "x").split()[:2] == ["x", "↑"]


def test_markup_in_names_is_not_read():
    c = compare({"[bold]a[/bold]": [summary(preempting())]})
    assert "[bold]a[/bold]" in printed(comparison_table(c))


@pytest.mark.parametrize(
    ("found", "unit", "words"),
    [
        (Difference(-600, -660, -540, 2, -0.5, Verdict.BETTER), Unit.SECONDS, "−10 min (−11.0 … −9.0 min)"),
        (Difference(0.01, 0.01, 0.01, 1, 0.1, Verdict.BETTER), Unit.SHARE, "+1.0 pp"),
        (Difference(12, -3, 1200, 3, 4.0, Verdict.MIXED), Unit.GPU_HOURS, "+12 GPU-h (−3 … +1,200)"),
        (Difference(1e-9, 0.0, 1e-9, 2, None, Verdict.BETTER), Unit.SHARE, "±0 (0.0 … 0.0 pp)"),
    ],
)
def test_differences_in_words(found, unit, words):
    assert text.difference(found, unit) == words


def test_relative_differences_in_words():
    assert [text.relative(x) for x in (-0.89, 0.25, 1.5, 0.001, 4000.0)] == ["−89 %", "+25 %", "×2.5", "", "×4,001"]
    d = Difference(0.5, 0.5, 0.5, 1, 1.0, Verdict.BETTER)
    assert (text.share_of_base(d, Unit.SHARE), text.share_of_base(d, Unit.COUNT)) == ("", "×2")


def test_cells_in_words():
    cell = Cell(median=5400, low=1800, high=9000, seeds=3, lower_bound=True, difference=None)
    assert text.middle(cell, Unit.SECONDS) == "≥ 1 h 30 min"
    assert text.spread(cell, Unit.SECONDS) == "0.5 … 2.5 h"
    assert (text.middle(None, Unit.SHARE), text.spread(None, Unit.SHARE)) == ("–", "")
    assert text.quantile(Quantile(0.5), Unit.SHARE) == "50.0 %"
