"""Graphs as they are given: node-link data or networkx graphs, their vertices parsed, their shape not looked at."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import networkx as nx
from pydantic import ValidationError

from cpalloc.errors import InputError, Issue
from cpalloc.schema import Node
from cpalloc.schema._translate import issues_of, join_path
from cpalloc.topology.naming import CLUSTER, NODE, is_id, level_issues, pattern_issue

_NODE_FIELDS = frozenset(Node.model_fields) - {"name", "domains"}


@dataclass(frozen=True, slots=True)
class Vertex:
    """A vertex: a node (``node`` is given), a domain or a switch.

    ``rank`` counts the levels from the cluster (0) to the node (number of user levels + 1). ``path`` says where the
    vertex stands in what was given.
    """

    id: Hashable
    name: str
    level: str
    rank: int
    path: str
    node: Node | None

    @property
    def order(self) -> tuple[str, str]:
        """Key that sorts vertices whatever the types of their ids."""
        return str(self.id), type(self.id).__name__


@dataclass(frozen=True, slots=True)
class Drawing:
    """A parsed graph: user levels, vertices by id, and an undirected graph of the ids without parallel links."""

    levels: tuple[str, ...]
    vertices: Mapping[Hashable, Vertex]
    graph: nx.Graph

    def neighbours(self, vertex: Vertex) -> list[Vertex]:
        """Vertices linked to ``vertex``, sorted."""
        return sorted((self.vertices[v] for v in self.graph.adj[vertex.id]), key=lambda v: v.order)


def from_networkx(graph: nx.Graph, *, tree: bool = True) -> Drawing:
    """Parse a networkx graph of any kind.

    Parameters
    ----------
    graph : networkx.Graph
        Directed graphs and multigraphs as well; directions and parallel links are forgotten.
    tree : bool
        Whether vertices that are not nodes must say which level they are domains of; otherwise they are switches, and
        the result has no levels.

    Raises
    ------
    InputError
        ``missing``, ``unknown_level``, ``node_level``, ``duplicate_id``, ``pattern`` and the codes of wire nodes.
    """
    paths = {v: f"graph.nodes[{v!r}]" for v in graph}
    return _parse(nx.Graph(graph), paths, "graph.graph.levels", tree=tree)


def from_node_link(data: Mapping[str, Any], base: str) -> Drawing:
    """Parse node-link data that stands at path ``base`` of a document.

    Raises
    ------
    InputError
        As :func:`from_networkx`; also ``type``, ``missing`` and ``duplicate_id`` (of vertex ids), and
        ``unknown_vertex`` (of links).
    """
    attributes = data.get("graph", {})
    graph = nx.Graph()
    graph.graph.update(attributes if isinstance(attributes, Mapping) else {})
    paths: dict[Hashable, str] = {}
    issues: list[Issue] = []
    for i, vertex in enumerate(data["nodes"]):
        path = join_path(base, "nodes", i)
        try:
            key = _key_of(vertex, "id", path)
            if key in paths:
                raise InputError([Issue("duplicate_id", f"{path}.id", f"`{key}` is also {paths[key]}; keep one")])
        except InputError as error:
            issues += error.issues
            continue
        paths[key] = path
        graph.add_node(key)
        graph.nodes[key].update(vertex)
    links = "edges" if "edges" in data else "links"
    for i, link in enumerate(data[links]):
        path = join_path(base, links, i)
        try:
            source, target = (_key_of(link, end, path) for end in ("source", "target"))
        except InputError as error:
            issues += error.issues
            continue
        unknown = [end for end in (source, target) if end not in paths]
        issues += [Issue("unknown_vertex", path, f"there is no vertex `{end}`; add or correct it") for end in unknown]
        if not unknown:
            graph.add_edge(source, target)
    if issues:
        raise InputError(issues)
    return _parse(graph, paths, f"{base}.graph.levels", tree=True)


def _key_of(entry: object, field: str, path: str) -> str | int:
    if not isinstance(entry, Mapping):
        raise InputError([Issue("type", path, "must be an object")])
    if field not in entry:
        raise InputError([Issue("missing", f"{path}.{field}", "is required")])
    value = entry[field]
    if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise InputError([Issue("type", f"{path}.{field}", "must be a string or an integer")])


def _parse(graph: nx.Graph, paths: Mapping[Hashable, str], levels_path: str, *, tree: bool) -> Drawing:
    issues: list[Issue] = []
    levels: tuple[str, ...] = ()
    if tree:
        levels = _levels(graph, levels_path, issues)
    ranks = {level: rank for rank, level in enumerate((CLUSTER, *levels, NODE))}
    vertices: dict[Hashable, Vertex] = {}
    for key, attributes in graph.nodes(data=True):
        name = attributes.get("name")
        name = name if isinstance(name, str) else str(key)
        try:
            if _is_node(attributes):
                node = _node(name, attributes, paths[key])
                vertices[key] = Vertex(key, name, NODE, ranks[NODE], paths[key], node)
            else:
                level = _level(attributes, ranks, paths[key]) if tree else ""
                vertices[key] = Vertex(key, name, level, ranks.get(level, 0), paths[key], None)
                if tree and level != CLUSTER and not is_id(name):
                    issues.append(pattern_issue(f"{paths[key]}.name", name))
        except InputError as error:
            issues += error.issues
    issues += _duplicate_nodes(vertices)
    if issues:
        raise InputError(issues)
    return Drawing(levels, vertices, graph)


def _levels(graph: nx.Graph, path: str, issues: list[Issue]) -> tuple[str, ...]:
    levels = graph.graph.get("levels")
    if levels is None:
        used = {level for _, level in graph.nodes(data="level") if isinstance(level, str)} - {CLUSTER, NODE}
        if used:
            issues.append(Issue("missing", path, "is required: list the levels, coarse to fine"))
        return tuple(sorted(used))
    if not isinstance(levels, list | tuple) or not all(isinstance(level, str) for level in levels):
        issues.append(Issue("type", path, "must be a list of names, coarse to fine"))
        return ()
    issues += level_issues(levels, path)
    return tuple(dict.fromkeys(levels))


def _is_node(attributes: Mapping[str, Any]) -> bool:
    """Whether a vertex is a node; level ``node`` makes one of a host without GPUs."""
    return attributes.get("gpus") not in (None, 0) or attributes.get("level") == NODE


def _node(name: str, attributes: Mapping[str, Any], path: str) -> Node:
    level = attributes.get("level", NODE)
    if level not in (None, NODE):
        message = f"has `gpus` and is a node, but carries level `{level}`; remove one of the two"
        raise InputError([Issue("node_level", path, message)])
    fields = {key: value for key, value in attributes.items() if key in _NODE_FIELDS}
    try:
        return Node.model_validate({"name": name, **fields})
    except ValidationError as error:
        raise InputError(issues_of(error, {"name": name, **fields}, path)) from None


def _level(attributes: Mapping[str, Any], ranks: Mapping[str, int], path: str) -> str:
    level = attributes.get("level")
    if level is None:
        raise InputError([Issue("missing", f"{path}.level", "needs `gpus` (a node) or `level` (a domain)")])
    if not isinstance(level, str) or level not in ranks:
        message = f"`{level}` is not among the graph's levels; list it there or correct it here"
        raise InputError([Issue("unknown_level", f"{path}.level", message)])
    return level


def _duplicate_nodes(vertices: Mapping[Hashable, Vertex]) -> Iterator[Issue]:
    first: dict[str, Vertex] = {}
    for vertex in vertices.values():
        if vertex.node is not None and first.setdefault(vertex.name, vertex) is not vertex:
            message = f"node `{vertex.name}` is also {first[vertex.name].path}; names must be unique"
            yield Issue("duplicate_id", vertex.path, message)
