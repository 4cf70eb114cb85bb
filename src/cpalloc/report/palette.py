"""Colours that people with any colour vision can tell apart, and that print."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

HUES = (
    "#332288",  # indigo
    "#88CCEE",  # cyan
    "#117733",  # green
    "#DDCC77",  # sand
    "#CC6677",  # rose
    "#44AA99",  # teal
    "#882255",  # wine
    "#999933",  # olive
    "#AA4499",  # purple
)
"""For budgets, most important first; in lightness as well as in hue."""

OTHERS = "#C4C4C4"
"""For the budgets there is no hue left for."""

LINES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#555555")
"""For scenarios drawn as lines; each has a dash of its own too."""

DASHES = ((1, 0), (7, 3), (2, 2), (8, 3, 2, 3), (12, 3), (4, 4), (1, 3))

INK, MUTED, GRID = "#222222", "#5F5F5F", "#DDDDDD"
ALARM = "#D40000"
"""A preemption."""
OWED, DELIVERED, EXTRA = "#F2A79A", "#7FA8C9", "#1F4E79"
"""Owed and not delivered; owed and delivered; the line of all that was delivered."""
ALLOCATED, BORROWED, IDLE = "#3B6E8F", "#B9D3E3", "#F0E6C8"
FREE = "#F7F7F7"
OFF = "#4A4A4A"
"""A node out of service."""


@dataclass(frozen=True, slots=True)
class Hues:
    """The colour of each budget."""

    of: dict[str, str]
    others: int

    def __getitem__(self, budget: str) -> str:
        return self.of.get(budget, OTHERS)


def hues(budgets: Sequence[str]) -> Hues:
    """Give the first budgets a hue each; the rest share a grey."""
    return Hues(dict(zip(budgets, HUES, strict=False)), max(0, len(budgets) - len(HUES)))


def line_colours(names: Iterable[str]) -> dict[str, str]:
    """Colours of scenarios drawn as lines, beginning anew where there are more of them than colours."""
    return {name: LINES[i % len(LINES)] for i, name in enumerate(names)}


def line_dashes(names: Iterable[str]) -> dict[str, list[int]]:
    """Dashes of scenarios, in the same order."""
    return {name: list(DASHES[i % len(DASHES)]) for i, name in enumerate(names)}


def lighter(colour: str, part: float) -> str:
    """Mix a colour (``#RRGGBB``) with white; ``part`` of white in 0 … 1."""
    channels = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(c + (255 - c) * part):02X}" for c in channels)


def is_dark(colour: str) -> bool:
    """Whether white letters read better on it than black ones."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return 0.299 * red + 0.587 * green + 0.114 * blue < 140
