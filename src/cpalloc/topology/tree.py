"""Graphs that are trees of domains: verified, read as nodes with their domains, and drawn."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence

import networkx as nx

from cpalloc.errors import InputError, Issue
from cpalloc.schema import Node
from cpalloc.topology.naming import CLUSTER, NODE, is_id, own_name, pattern_issue
from cpalloc.topology.vertices import Drawing, Vertex

Parents = dict[Hashable, Vertex | None]
"""Parent of every vertex; ``None`` for roots."""


def read_tree(drawing: Drawing) -> tuple[Node, ...]:
    """Verify that a graph is a tree (or a forest with an implicit root) and read its nodes.

    Parameters
    ----------
    drawing : Drawing
        The parsed graph.

    Returns
    -------
    tuple of Node
        With their ``domains``, sorted by name.

    Raises
    ------
    InputError
        With every cycle (one a component), double parent, link inside a level, detached domain and repeated domain.
    """
    issues = list(_shape_issues(drawing))
    if issues:
        raise InputError(issues)
    parents: Parents = {}
    for vertex in drawing.vertices.values():
        above = [v for v in drawing.neighbours(vertex) if v.rank < vertex.rank]
        parents[vertex.id] = above[0] if above else None
    names = _domain_names(drawing, parents)
    domains = _domains(drawing, parents, names)
    nodes: list[Node] = []
    for vertex in drawing.vertices.values():
        if vertex.node is not None:
            parent = parents[vertex.id]
            held = dict(domains[parent.id]) if parent is not None else {}
            nodes.append(vertex.node.model_copy(update={"domains": held}))
    return tuple(sorted(nodes, key=lambda node: node.name))


def draw_tree(name: str, levels: Sequence[str], nodes: Iterable[Node]) -> nx.Graph:
    """Draw nodes and their domains as a tree under one root of level ``cluster``."""
    graph = nx.Graph(name=name, levels=list(levels))
    root = f"{CLUSTER} {name}"
    graph.add_node(root, name=name, level=CLUSTER)
    for node in nodes:
        above = root
        for level in levels:
            domain = node.domains.get(level)
            if domain is not None:
                here = f"{level} {domain}"
                if here not in graph:
                    graph.add_node(here, name=domain, level=level)
                    graph.add_edge(above, here)
                above = here
        fields = node.model_dump(mode="json", exclude={"name", "domains"}, exclude_defaults=True)
        graph.add_node(node.name, name=node.name, level=NODE, **fields)
        graph.add_edge(above, node.name)
    return graph


def _shape_issues(drawing: Drawing) -> Iterator[Issue]:
    roots = sorted((v for v in drawing.vertices.values() if v.level == CLUSTER), key=lambda v: v.order)
    for other in roots[1:]:
        message = f"`{other.id}` and `{roots[0].id}` are both of level {CLUSTER}; keep one"
        yield Issue("duplicate_domain", other.path, message)
    components = [[drawing.vertices[v] for v in part] for part in nx.connected_components(drawing.graph)]
    for part in sorted(components, key=lambda part: min(v.order for v in part)):
        links = drawing.graph.subgraph([v.id for v in part]).number_of_edges()
        if links >= len(part):
            cycle = _cycle(drawing, part)
            way = " > ".join(str(v.id) for v in [*cycle, cycle[0]])
            message = (
                f"is not a tree, the links go round in a circle: {way}; remove one of them, "
                "or condense a fabric with Cluster.from_fabric"
            )
            yield Issue("graph_cycle", cycle[0].path, message)
        else:
            for vertex in sorted(part, key=lambda v: v.order):
                yield from _parent_issues(drawing, vertex)


def _parent_issues(drawing: Drawing, vertex: Vertex) -> Iterator[Issue]:
    neighbours = drawing.neighbours(vertex)
    level = [v for v in neighbours if v.rank == vertex.rank]
    above = [v for v in neighbours if v.rank < vertex.rank]
    for other in level:
        if vertex.order < other.order:
            message = f"{vertex.level} `{vertex.id}` is linked to {other.level} `{other.id}`; link each to its domain"
            yield Issue("same_level_link", vertex.path, message)
    if len(above) > 1:
        both = " and in ".join(f"{v.level} `{v.id}`" for v in above)
        code = "node_two_parents" if vertex.node is not None else "domain_two_parents"
        message = f"{vertex.level} `{vertex.id}` lies in {both}; it may lie in one only"
        yield Issue(code, vertex.path, message)
    if not above and not level and vertex.rank > 1 and vertex.node is None:
        message = (
            f"{vertex.level} `{vertex.id}` hangs on nothing; link it to its {drawing.levels[vertex.rank - 2]}, "
            f"or to a vertex of level {CLUSTER} if it has none"
        )
        yield Issue("detached_domain", vertex.path, message)


def _cycle(drawing: Drawing, part: Sequence[Vertex]) -> list[Vertex]:
    """Find the shortest of the cycles that the links outside a breadth-first tree close; coarsest vertex first."""
    start = min(part, key=lambda v: (v.rank, v.order))
    parents: Parents = {start.id: None}
    depth: dict[Hashable, int] = {start.id: 0}
    queue = [start]
    best: list[Vertex] | None = None
    for vertex in queue:
        for other in drawing.neighbours(vertex):
            if other.id not in depth:
                parents[other.id], depth[other.id] = vertex, depth[vertex.id] + 1
                queue.append(other)
    for vertex in queue:
        # links are met from both ends; the nearer end comes first in the queue
        for other in drawing.neighbours(vertex):
            if parents[other.id] is vertex or parents[vertex.id] is other:
                continue
            found = _closed(vertex, other, parents, depth)
            if best is None or len(found) < len(best):
                best = found
    assert best is not None  # a connected graph with as many links as vertices has one
    return best if len(best) < 3 or best[1].order < best[-1].order else [best[0], *reversed(best[1:])]


def _closed(one: Vertex, two: Vertex, parents: Parents, depth: dict[Hashable, int]) -> list[Vertex]:
    """Walk up from both ends of a link to where the ways meet."""
    left, right = [one], [two]
    while left[-1].id != right[-1].id:
        longer = left if depth[left[-1].id] >= depth[right[-1].id] else right
        above = parents[longer[-1].id]
        assert above is not None  # both ways end at the start of the search
        longer.append(above)
    return [*reversed(left), *right[:-1]]


def _domain_names(drawing: Drawing, parents: Parents) -> dict[Hashable, str]:
    """Name every domain uniquely inside its level, coarse to fine; repeated names make parents qualify the level."""
    names: dict[Hashable, str] = {}
    issues: list[Issue] = []
    by_rank: defaultdict[int, list[Vertex]] = defaultdict(list)
    for vertex in sorted(drawing.vertices.values(), key=lambda v: v.order):
        if vertex.node is None and vertex.level != CLUSTER:
            by_rank[vertex.rank].append(vertex)
    for _, domains in sorted(by_rank.items()):
        repeated = len({v.name for v in domains}) < len(domains)
        first: dict[str, Vertex] = {}
        for vertex in domains:
            parent = parents[vertex.id]
            inside = repeated and parent is not None and parent.level != CLUSTER
            name = f"{names[parent.id]}/{vertex.name}" if inside and parent is not None else vertex.name
            names[vertex.id] = name
            if first.setdefault(name, vertex) is not vertex:
                message = f"`{vertex.id}` and `{first[name].id}` are both {vertex.level} `{name}`; rename one"
                issues.append(Issue("duplicate_domain", vertex.path, message))
            elif not is_id(name):
                issues.append(pattern_issue(vertex.path, name))
    if issues:
        raise InputError(issues)
    return names


def _domains(drawing: Drawing, parents: Parents, names: dict[Hashable, str]) -> dict[Hashable, dict[str, str]]:
    """Domains that a node attached to each domain lies in, by level.

    A domain of several nodes that skips levels is given a domain of its own there; with a single node below, the level
    stays open, which says the same.
    """
    below = _count_nodes(drawing, parents)
    taken: defaultdict[int, set[str]] = defaultdict(set)
    for key, name in names.items():
        taken[drawing.vertices[key].rank].add(name)
    domains: dict[Hashable, dict[str, str]] = {v.id: {} for v in drawing.vertices.values() if v.level == CLUSTER}
    for vertex in sorted((drawing.vertices[key] for key in names), key=lambda v: (v.rank, names[v.id])):
        parent = parents[vertex.id]
        held = dict(domains[parent.id]) if parent is not None else {}
        if below[vertex.id] > 1:
            for rank in range(parent.rank + 1 if parent is not None else 1, vertex.rank):
                own = own_name(names[vertex.id], vertex.level, taken[rank])
                taken[rank].add(own)
                held[drawing.levels[rank - 1]] = own
        held[vertex.level] = names[vertex.id]
        domains[vertex.id] = held
    return domains


def _count_nodes(drawing: Drawing, parents: Parents) -> Counter[Hashable]:
    below: Counter[Hashable] = Counter()
    for vertex in drawing.vertices.values():
        if vertex.node is not None:
            above = parents[vertex.id]
            while above is not None:
                below[above.id] += 1
                above = parents[above.id]
    return below
