"""Write the report of one or several studies as one HTML file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cpalloc.errors import InputError, Issue
from cpalloc.report.figures import figures
from cpalloc.report.html import Section, page
from cpalloc.sim.history import History
from cpalloc.sim.measures import Comparison, compare, summary, view


@dataclass(frozen=True, slots=True)
class Study:
    """A comparison and, to draw, one history of each scenario (all of one seed, so that they show the same jobs).

    ``histories`` may leave scenarios out. Without any the page has the tables and the waits only.
    """

    comparison: Comparison
    histories: Mapping[str, History] = field(default_factory=dict)

    @classmethod
    def of(cls, histories: Mapping[str, History], *, base: str | None = None) -> Study:
        """Compare single histories, e.g. of one simulation."""
        return cls(compare({name: [summary(h)] for name, h in histories.items()}, base=base), histories)


def report_html(studies: Sequence[Study], *, title: str = "What if") -> str:
    """Make the page; the same studies always give the same page.

    Raises
    ------
    InputError
        ``unknown_scenario``, ``mixed_provenance``: a history is of no scenario of its comparison, or of another
        provenance.
    """
    _check(studies)
    return page(title, [_section(f"s{i}", study) for i, study in enumerate(studies, start=1)])


def write_report(path: Path, studies: Sequence[Study], *, title: str = "What if") -> None:
    """Write :func:`report_html` to a file: self-contained, with pictures and tables, readable offline."""
    path.write_text(report_html(studies, title=title), encoding="utf-8")


def _section(name: str, study: Study) -> Section:
    views = {s: view(study.histories[s]) for s in study.comparison.scenarios if s in study.histories}
    span = ""
    if views:
        h = next(iter(views.values())).history
        days = (h.end_s - h.start_s) / 86_400
        span = f"{days:.3g} days of {len(h.workload.jobs):,} jobs on {h.installed_gpus:,} GPUs."
        if max(len(seeds) for seeds in study.comparison.seeds) > 1:
            span += f" Pictures over time show seed {h.seed}; tables and waits are over all seeds."
    return Section(name, study.comparison, span, figures(name, study.comparison, views))


def _check(studies: Sequence[Study]) -> None:
    issues = []
    for i, study in enumerate(studies):
        for name, history in study.histories.items():
            where = f"studies[{i}].histories.{name}"
            if name not in study.comparison.scenarios:
                known = ", ".join(study.comparison.scenarios)
                issues.append(Issue("unknown_scenario", where, f"is not in the comparison; scenarios are: {known}"))
            if history.workload.provenance is not study.comparison.provenance:
                message = f"is {history.workload.provenance}, its comparison {study.comparison.provenance}"
                issues.append(Issue("mixed_provenance", where, message + "; report each kind in a study of its own"))
    if issues:
        raise InputError(issues)
