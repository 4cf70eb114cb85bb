"""The links of a fabric that count, its switches by tier, and what was left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from cpalloc.topology.vertices import Drawing

_LISTED = 8
"""Names written out in a note; the rest is counted."""

Links = dict[Hashable, set[Hashable]]
Labels = dict[Hashable, str]


@dataclass(frozen=True, slots=True)
class Wiring:
    """Hosts and switches of a fabric.

    Attributes
    ----------
    hosts : tuple
        Ids, sorted by name.
    labels : mapping
        Name of every vertex; its id for switches that share a name.
    links : mapping
        Neighbours of every vertex, hosts' and dead-end links left out.
    tier : mapping
        Steps from the nearest host: 0 for hosts, 1 for leaf switches. Switches that no host reaches are not in it.
    notes : tuple of str
        What was left out.
    """

    hosts: tuple[Hashable, ...]
    labels: Mapping[Hashable, str]
    links: Mapping[Hashable, set[Hashable]]
    tier: Mapping[Hashable, int]
    notes: tuple[str, ...]

    def up(self, vertices: Iterable[Hashable], tier: int) -> frozenset[Hashable]:
        """Switches of a tier that any of the vertices is wired to."""
        return frozenset(other for v in vertices for other in self.links[v] if self.tier.get(other) == tier)

    def listed(self, vertices: Iterable[Hashable]) -> str:
        """Names of some vertices, sorted and cut short."""
        return _listed(self.labels, vertices)


def read_wiring(drawing: Drawing) -> Wiring:
    """Find the tiers of a fabric and set aside what connects nothing."""
    ordered = sorted(drawing.vertices.values(), key=lambda v: (v.name, v.order))
    hosts = tuple(v.id for v in ordered if v.node is not None)
    switches = [v.id for v in ordered if v.node is None]
    names = Counter(v.name for v in ordered if v.node is None)
    labels: Labels = {v.id: v.name if v.node is not None or names[v.name] == 1 else str(v.id) for v in ordered}
    links: Links = {v.id: set(drawing.graph.adj[v.id]) - {v.id} for v in ordered}
    notes = [
        *_unlink_hosts(hosts, labels, links),
        *_drop_dead_ends(switches, frozenset(hosts), labels, links),
    ]
    tier = _tiers(hosts, links)
    notes += _flat_links(tier, labels, links)
    return Wiring(hosts, labels, links, tier, tuple(notes))


def _listed(labels: Mapping[Hashable, str], vertices: Iterable[Hashable]) -> str:
    names = sorted(labels[v] for v in vertices)
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more


def _unlink_hosts(hosts: Sequence[Hashable], labels: Labels, links: Links) -> list[str]:
    notes: list[str] = []
    among = set(hosts)
    joined = [host for host in hosts if links[host] & among]
    if joined:
        count = sum(len(links[host] & among) for host in joined) // 2
        notes.append(f"links between hosts do not count, {count} of them: {_listed(labels, joined)}")
    for host in joined:
        links[host] -= among
    alone = [host for host in hosts if not links[host]]
    if alone:
        notes.append(f"without a link to a switch, each a domain of its own: {_listed(labels, alone)}")
    return notes


def _drop_dead_ends(
    switches: Sequence[Hashable], hosts: frozenset[Hashable], labels: Labels, links: Links
) -> list[str]:
    """Forget switches without hosts and with fewer than two links, until none is left."""
    dropped: dict[Hashable, None] = {}
    queue = list(switches)
    for switch in queue:
        if switch in dropped or len(links[switch]) > 1 or links[switch] & hosts:
            continue
        dropped[switch] = None
        for other in links[switch]:
            links[other].discard(switch)
            queue.append(other)
        links[switch] = set()
    return [f"connecting nothing, left out: {_listed(labels, dropped)}"] if dropped else []


def _tiers(hosts: Sequence[Hashable], links: Links) -> dict[Hashable, int]:
    tier = dict.fromkeys(hosts, 0)
    queue = list(hosts)
    for vertex in queue:
        for other in links[vertex]:
            if other not in tier:
                tier[other] = tier[vertex] + 1
                queue.append(other)
    return tier


def _flat_links(tier: Mapping[Hashable, int], labels: Labels, links: Links) -> list[str]:
    count: Counter[int] = Counter()
    ends: dict[int, list[Hashable]] = {}
    for switch, here in tier.items():
        flat = sum(tier[other] == here for other in links[switch])
        if flat:
            count[here] += flat
            ends.setdefault(here, []).append(switch)
    return [
        f"links inside tier {here} do not count, {count[here] // 2} of them: {_listed(labels, ends[here])}"
        for here in sorted(ends)
    ]
