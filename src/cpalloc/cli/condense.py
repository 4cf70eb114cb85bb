"""Many names in few characters: ``n[001-016]``."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

_NUMBERED = re.compile(r"(.*?)([0-9]+)([^0-9]*)", re.DOTALL)


def condense(names: Iterable[str], *, most: int | None = None) -> str:
    """Write names as ranges over their last number.

    Parameters
    ----------
    names : iterable of str
        Names; repetitions count once.
    most : int, optional
        Most groups to write; what is left out is counted.

    Examples
    --------
    >>> condense(["n001", "n002", "n003", "n007", "login"])
    'login n[001-003,007]'
    >>> condense(["r0n1", "r0n2", "r1n1", "r2n5"], most=2)
    'r0n[1-2] r1n1 +1'
    """
    plain: set[str] = set()
    groups: dict[tuple[str, str], set[str]] = defaultdict(set)
    for name in names:
        match = _NUMBERED.fullmatch(name)
        if match is None:
            plain.add(name)
        else:
            groups[match[1], match[3]].add(match[2])
    parts = [(name, name, 1) for name in plain]  # first name, text, number of names
    for (prefix, suffix), numbers in groups.items():
        padded = any(len(number) > 1 and number.startswith("0") for number in numbers)
        by_width: dict[int, list[str]] = defaultdict(list)
        for number in sorted(numbers, key=lambda n: (int(n), n)):
            by_width[len(number) if padded else 0].append(number)
        for same in by_width.values():
            inside = same[0] if len(same) == 1 else f"[{_ranges(same)}]"
            parts.append((f"{prefix}{same[0]}{suffix}", f"{prefix}{inside}{suffix}", len(same)))
    parts.sort(key=lambda part: _natural(part[0]))
    shown = parts if most is None else parts[:most]
    hidden = sum(count for _, _, count in parts[len(shown) :])
    return " ".join(text for _, text, _ in shown) + (f" +{hidden}" if hidden else "")


def _ranges(numbers: Sequence[str]) -> str:
    """Join ascending numbers, three or more in a row as first-last, two as well."""
    runs: list[list[str]] = []
    for number in numbers:
        if runs and int(number) == int(runs[-1][-1]) + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(run[0] if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _natural(text: str) -> list[tuple[bool, int, str]]:
    """Order r2 before r10."""
    pieces = re.findall(r"[0-9]+|[^0-9]+", text)
    return [(p.isascii() and p.isdecimal(), int(p) if p.isascii() and p.isdecimal() else 0, p) for p in pieces]
