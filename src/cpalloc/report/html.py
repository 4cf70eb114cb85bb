"""The page: headings, figures with their tables, a table of contents; no scripts and nothing loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files

from cpalloc.report import text
from cpalloc.sim.measures import Comparison
from cpalloc.sim.measures.compare import Cell, Row
from cpalloc.sim.measures.registry import HEADLINE
from cpalloc.sim.measures.units import Unit
from cpalloc.sim.workload import Provenance


@dataclass(frozen=True, slots=True)
class Grid:
    """A plain table of words and numbers; ``words`` are the columns of words, besides the first."""

    title: str
    headings: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    words: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Figure:
    """A picture, what one sees in it, and its figures as tables."""

    name: str
    title: str
    caption: str
    svg: str
    grids: tuple[Grid, ...]


@dataclass(frozen=True, slots=True)
class Section:
    """One study: its comparison and its figures; ``name`` is unique in the page."""

    name: str
    comparison: Comparison
    span: str
    figures: tuple[Figure, ...]


def page(title: str, sections: Sequence[Section]) -> str:
    """Write the page."""
    css = files("cpalloc.report").joinpath("page.css").read_text(encoding="utf-8")
    body = "\n".join(_section(section) for section in sections)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8"/>\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"/>\n'
        f"<title>{escape(title)}</title>\n<style>\n{css}</style>\n</head>\n<body>\n"
        f"<h1>{escape(title)}</h1>\n{_contents(sections)}\n{body}\n</body>\n</html>\n"
    )


def label(provenance: Provenance) -> str:
    """Make the mark that says where figures come from."""
    return f'<span class="label {provenance}">{provenance}</span>'


def _contents(sections: Sequence[Section]) -> str:
    lines = []
    for s in sections:
        parts = [(f"{s.name}-headline", "In short"), *((figure.name, figure.title) for figure in s.figures)]
        parts += [(f"{s.name}-table", "All measures"), (f"{s.name}-leaves", "Budgets")]
        links = " · ".join(f'<a href="#{name}">{escape(words)}</a>' for name, words in parts)
        lines.append(f'<p><a href="#{s.name}">{escape(_heading(s))}</a>: {links}</p>')
    return f"<nav>{''.join(lines)}</nav>"


def _heading(s: Section) -> str:
    return f"{s.comparison.workload} ({s.comparison.provenance})"


def _section(s: Section) -> str:
    c = s.comparison
    scenarios = "; ".join(
        f"{name} (policy {policy}, {'seeds' if len(seeds) > 1 else 'seed'} {', '.join(map(str, seeds))})"
        for name, policy, seeds in zip(c.scenarios, c.policies, c.seeds, strict=True)
    )
    notes = "".join(f"<li>{escape(note)}</li>" for note in c.notes)
    parts = [
        f'<h2 id="{s.name}">{escape(c.workload)} {label(c.provenance)}</h2>',
        f"<p>{escape(s.span)} Scenarios: {escape(scenarios)}.</p>",
        f'<details><summary>How the workload was made</summary><ul class="note">{notes}</ul></details>'
        if notes
        else "",
        f'<h3 id="{s.name}-headline">In short</h3>',
        _comparison(c, [row for row in c.rows if row.name in HEADLINE], "measure"),
        *(_figure(figure, c.provenance) for figure in s.figures),
        f'<h3 id="{s.name}-table">All measures</h3>',
        _comparison(c, c.rows, "measure"),
        f'<h3 id="{s.name}-leaves">Budgets</h3>',
        _comparison(c, c.leaves, "budget"),
    ]
    return "\n".join(part for part in parts if part)


def _figure(f: Figure, provenance: Provenance) -> str:
    tables = "".join(f"<details><summary>{escape(grid.title)}</summary>{_grid(grid)}</details>\n" for grid in f.grids)
    return (
        f'<h3 id="{f.name}">{escape(f.title)}</h3>\n<figure>\n{f.svg}\n'
        f"<figcaption>{label(provenance)} {escape(f.caption)}</figcaption>\n</figure>\n{tables}"
    )


def _grid(grid: Grid) -> str:
    head = "".join(f"<th>{escape(h)}</th>" for h in grid.headings)
    rows = "".join(f"<tr>{_tds(row, grid.words)}</tr>" for row in grid.rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def _tds(row: Iterable[str], words: frozenset[int]) -> str:
    cells = (('<td class="words">' if i in words else "<td>") + escape(value) for i, value in enumerate(row))
    return "".join(f"{cell}</td>" for cell in cells)


def _comparison(c: Comparison, rows: Iterable[Row], what: str) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in (what, *c.scenarios))
    body: list[str] = []
    group = ""
    for row in rows:
        if not any(row.cells):
            continue
        if row.group != group:
            group = row.group
            body.append(f'<tr class="group"><th colspan="{1 + len(c.scenarios)}">{escape(group)}</th></tr>')
        cells = "".join(_cell(cell, row.unit) for cell in row.cells)
        body.append(f"<tr><td>{escape(text.title(row))}</td>{cells}</tr>")
    note = f"{_how_to_read(c)} {text.ARROWS_MEAN}".strip()
    rows_html = "\n".join(body)
    return (
        f'<p class="note">{label(c.provenance)} {escape(note)}</p>\n<div class="wide"><table>'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{rows_html}\n</tbody></table></div>"
    )


def _how_to_read(c: Comparison) -> str:
    several, others = max(len(s) for s in c.seeds) > 1, len(c.scenarios) > 1
    if several and others:
        return f"Median over seeds; below it the lowest and highest, then the difference to {c.base}, seed by seed."
    if several:
        return "Median over seeds; below it the lowest and highest."
    return f"Below each value the difference to {c.base}." if others else ""


def _cell(cell: Cell | None, unit: Unit) -> str:
    parts = [escape(text.middle(cell, unit))]
    spread = text.spread(cell, unit)
    if spread:
        parts.append(f"<small>{escape(spread)}</small>")
    if cell is not None and cell.difference is not None:
        d = cell.difference
        words = f"{text.share_of_base(d, unit)} {text.verdict(d)}".strip()
        parts.append(f"<small>{escape(text.difference(d, unit))}</small>")
        parts.append(f'<small class="{d.verdict}">{escape(words)}</small>' if words else "")
    return f"<td>{''.join(parts)}</td>"
