"""Real fabrics, in which hosts have several uplinks and switches share the tier above, condensed to a tree."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace

from cpalloc.schema import Node
from cpalloc.topology.naming import CLUSTER, as_id
from cpalloc.topology.vertices import Drawing
from cpalloc.topology.wiring import Wiring, read_wiring


@dataclass(frozen=True, slots=True)
class _Group:
    """Hosts that are alike up to a tier, and the switches of that tier they reach; none where the fabric ends below.

    ``parts`` counts the groups of the tier below (at the lowest tier: the hosts) that make it up.
    """

    name: str
    hosts: tuple[Hashable, ...]
    switches: frozenset[Hashable]
    parts: int


def condense(drawing: Drawing, levels: Sequence[str]) -> tuple[tuple[str, ...], tuple[Node, ...], tuple[str, ...]]:
    """Make a tree of a fabric.

    The switches a host is wired to are its first tier, the switches these are wired to (and no host is) the second, and
    so on; links inside a tier and between hosts do not count. Hosts wired to exactly the same switches of the first
    tier form a domain of the finest level. Domains whose switches reach the same switches of the next tier, taken
    together, form one of the next level. A tier above the first that connects every host is the cluster itself: it, and
    whatever is above, makes no level. A switch without hosts and with a single link connects nothing and is left out.

    The switches of a domain are looked at together because in a rail-optimised fabric each leaf (rail) of a pod may
    have spines of its own, as each aggregation switch of a fat tree has cores of its own (Al-Fares et al., SIGCOMM'08,
    section 2): only as a whole are pods alike.

    Parameters
    ----------
    drawing : Drawing
        Hosts and switches.
    levels : sequence of str
        Names of the levels, coarse to fine.

    Returns
    -------
    levels : tuple of str
        The levels that came about: the last ones of those given.
    nodes : tuple of Node
        With ``domains``; hosts without a link have none.
    notes : tuple of str
        What was merged, left out, and looks like a broken link.
    """
    wiring = read_wiring(drawing)
    notes = list(wiring.notes)
    domains: dict[Hashable, dict[str, str]] = {host: {} for host in wiring.hosts}
    groups, finer = _by_leaves(wiring), "host"
    used: list[str] = []
    for level in reversed(levels):
        notes += (_merged(level, group, finer, wiring) for group in groups if len(group.switches) > 1)
        if not used:
            notes += _odd_links(level, groups, wiring)
        for group in groups:
            for host in group.hosts:
                domains[host] = {level: group.name, **domains[host]}
        used.insert(0, level)
        finer = level
        above = _by_uplinks(groups, len(used) + 1, wiring)
        if len(used) == len(levels) or _is_top(above):
            notes += _top(groups, above, used, levels, wiring)
            break
        groups = above
    nodes = [v.node.model_copy(update={"domains": domains[v.id]}) for v in drawing.vertices.values() if v.node]
    return tuple(used), tuple(nodes), tuple(notes)


def _by_leaves(wiring: Wiring) -> list[_Group]:
    """Hosts by the switches they are wired to; hosts without any are left out."""
    wired: defaultdict[frozenset[Hashable], list[Hashable]] = defaultdict(list)
    for host in wiring.hosts:
        wired[wiring.up([host], 1)].append(host)
    wired.pop(frozenset(), None)
    return _named([_Group("", tuple(hosts), leaves, len(hosts)) for leaves, hosts in wired.items()], wiring)


def _by_uplinks(groups: Sequence[_Group], tier: int, wiring: Wiring) -> list[_Group]:
    """Groups by what their switches reach together; one that reaches nothing stays alone and keeps its name."""
    reached: defaultdict[frozenset[Hashable], list[_Group]] = defaultdict(list)
    above: list[_Group] = []
    for group in groups:
        switches = wiring.up(group.switches, tier)
        if switches:
            reached[switches].append(group)
        else:
            above.append(replace(group, switches=frozenset(), parts=1))
    for switches, parts in reached.items():
        above.append(_Group("", tuple(host for part in parts for host in part.hosts), switches, len(parts)))
    return _named(above, wiring)


def _named(groups: Sequence[_Group], wiring: Wiring) -> list[_Group]:
    """Call each group by its first switch and the number of the others; ``@2`` and so on where that repeats."""
    taken: set[str] = set()
    named: list[_Group] = []
    for labels, group in sorted(
        ((sorted(wiring.labels[s] for s in group.switches), group) for group in groups),
        key=lambda pair: (pair[0], pair[1].name),
    ):
        plain = group.name
        if labels:
            plain = as_id(labels[0]) + (f"+{len(labels) - 1}" if len(labels) > 1 else "")
        name, count = plain, 1
        while name in taken:
            count += 1
            name = f"{plain}@{count}"
        taken.add(name)
        named.append(replace(group, name=name))
    return named


def _is_top(groups: Sequence[_Group]) -> bool:
    """Whether a tier makes no level: it connects everything, or it is not there."""
    return len(groups) < 2 or not any(group.switches for group in groups)


def _top(
    groups: Sequence[_Group], above: Sequence[_Group], used: Sequence[str], levels: Sequence[str], wiring: Wiring
) -> Iterator[str]:
    """Say what the cluster is made of, and which levels did not come about."""
    switches = frozenset(s for group in above for s in group.switches)
    if not _is_top(above):
        yield f"no level is left for the switches above the {_count(len(groups), used[0])}: {wiring.listed(switches)}"
    elif switches:
        how = f"connected by {_count(len(switches), 'switch', 'switches')}: {wiring.listed(switches)}"
        yield f"{CLUSTER}: {_count(len(groups), used[0])} {how}"
    elif len(groups) > 1:
        yield f"{CLUSTER}: {_count(len(groups), used[0])} that no switch connects"
    without = levels[: len(levels) - len(used)]
    if without:
        yield f"the fabric has no tier for {', '.join(without)}; left out"


def _merged(level: str, group: _Group, finer: str, wiring: Wiring) -> str:
    switches = f"{len(group.switches)} switches: {wiring.listed(group.switches)}"
    return f"{level} `{group.name}`: {_count(group.parts, finer)} wired to the same {switches}"


def _odd_links(level: str, groups: Sequence[_Group], wiring: Wiring) -> Iterator[str]:
    """Find groups whose switches are some of another's: a broken link, or several hosts under one name."""
    having: defaultdict[Hashable, list[_Group]] = defaultdict(list)
    for group in groups:
        for switch in group.switches:
            having[switch].append(group)
    inside: defaultdict[str, list[str]] = defaultdict(list)
    for group in groups:
        rarest = min((having[s] for s in group.switches), key=len)
        fuller = [g for g in rarest if group.switches < g.switches]
        for other in fuller:
            inside[other.name].append(group.name)
        other = max(fuller, key=lambda g: (len(g.hosts), g.name), default=group)
        if other is not group and len(other.hosts) >= len(group.hosts):
            missing = wiring.listed(other.switches - group.switches)
            yield (
                f"{level} `{group.name}` is not wired to {missing}, unlike the {_count(len(other.hosts), 'host')} of "
                f"`{other.name}`, and kept apart; is a link down? {wiring.listed(group.hosts)}"
            )
    for group in groups:
        if len(inside[group.name]) > 1:
            yield (
                f"{level} `{group.name}` is wired to all switches of {', '.join(inside[group.name])}, and kept apart; "
                f"are there several hosts under one name? {wiring.listed(group.hosts)}"
            )


def _count(number: int, one: str, more: str | None = None) -> str:
    return f"{number} {one if number == 1 else more or one + 's'}"
