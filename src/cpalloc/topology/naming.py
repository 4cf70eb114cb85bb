"""Names of levels and domains: which are possible, and which are made up where none is given."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set

from cpalloc.errors import Issue

CLUSTER = "cluster"
"""Level (and only domain) at the top of every topology."""

NODE = "node"
"""Level at the bottom of every topology."""

_NOT_ID = re.compile(r"[^A-Za-z0-9._:/@+-]")
_MAX_LENGTH = 253


def is_id(name: str) -> bool:
    """Whether the wire format takes ``name`` as a name."""
    return 0 < len(name) <= _MAX_LENGTH and _NOT_ID.search(name) is None


def as_id(name: str, room: int = 16) -> str:
    """Make any text a name: other characters become ``-``, and ``room`` characters are left for a suffix."""
    return _NOT_ID.sub("-", name)[: _MAX_LENGTH - room] or "-"


def own_name(name: str, level: str, taken: Set[str]) -> str:
    """Name, at a level that was skipped, the domain that holds nothing but ``name`` of ``level``.

    Parameters
    ----------
    name, level : str
        What is a domain of its own: a node, or a domain attached to a vertex more than one level up.
    taken : set of str
        Names of the other domains of the skipped level.

    Returns
    -------
    str
        The name behind its level, ``node:n1``; the level is repeated as often as it takes to be free.

    Examples
    --------
    >>> own_name("n1", "node", {"b0"}), own_name("n1", "node", {"node:n1"})
    ('node:n1', 'node:node:n1')
    """
    own = f"{level}:{name}"
    while own in taken:
        own = f"{level}:{own}"
    return own


def level_issues(levels: Sequence[str], path: str) -> Iterator[Issue]:
    """Find levels that are reserved, listed twice or no names."""
    seen: set[str] = set()
    for i, level in enumerate(levels):
        where = f"{path}[{i}]"
        if level in (CLUSTER, NODE):
            yield Issue("reserved_level", where, f"`{level}` is always there and may not be listed; remove it")
        elif not is_id(level):
            yield pattern_issue(where, level)
        if level in seen:
            yield Issue("duplicate_level", where, f"`{level}` is listed twice; keep one")
        seen.add(level)


def pattern_issue(path: str, name: str) -> Issue:
    """Say that ``name`` is not one."""
    return Issue("pattern", path, f"`{name}` must be 1 to 253 characters out of A-Z a-z 0-9 . _ : / @ + -")
