"""What the checks across objects look at: the parsed parts of a round, also where other parts did not parse."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from cpalloc.errors import Issue
from cpalloc.schema._translate import issues_of, join_path
from cpalloc.schema.request import Budget, Finished, Job, Node, Policy, Round, is_node_link
from cpalloc.schema.types import MAX_COUNT, Id, Instant

M = TypeVar("M", bound=BaseModel)

_PLACEHOLDERS: dict[type[BaseModel], dict[str, Any]] = {
    Node: {"name": "_", "gpu_type": "_", "gpus": 0},
    Budget: {"name": "_", "weight": 0},
    Job: {
        "id": "_",
        "budget": "_",
        "submitted_at": datetime.fromtimestamp(0, UTC),
        "replicas": 0,
        "gpus_per_replica": 0,
    },
    Finished: {},
}
_NODE_ATTRIBUTES = frozenset(Node.model_fields) - {"name", "domains"}


@dataclass(slots=True)
class Entry(Generic[M]):
    """An entry of a list: its index, its name or id, the model, and the fields that did not parse.

    ``key`` is the name or id as it was given, even when malformed, and ``None`` when it is not a string. The fields in
    ``bad`` hold placeholders and must not be looked at.
    """

    index: int
    key: str | None
    item: M
    bad: frozenset[str] = frozenset()


@dataclass(slots=True)
class Entries(Generic[M]):
    """The parsed entries of a list; ``whole`` says that none is missing and every one has a name."""

    path: str
    key_field: str
    items: list[Entry[M]] = field(default_factory=list)
    whole: bool = True


@dataclass(slots=True)
class Parts:
    """The parsed parts of a round. ``levels``, ``now`` and ``policy`` are ``None`` when they did not parse."""

    levels: tuple[str, ...] | None
    levels_path: str
    nodes: Entries[Node]
    budgets: Entries[Budget]
    jobs: Entries[Job]
    finished: Entries[Finished]
    now: datetime | None
    policy: Policy | None
    issues: list[Issue] = field(default_factory=list)


def parts_of_round(round_: Round) -> Parts:
    """Take a parsed round apart; nothing is missing."""
    cluster = round_.cluster
    if cluster.graph is not None:
        levels, levels_path, nodes, issues = _graph_parts(cluster.graph)
    else:
        levels, levels_path, issues = cluster.levels, "cluster.levels", []
        nodes = _entries("cluster.nodes", "name", cluster.nodes)
    return Parts(
        levels=levels,
        levels_path=levels_path,
        nodes=nodes,
        budgets=_entries("budgets", "name", round_.budgets),
        jobs=_entries("jobs", "id", round_.jobs),
        finished=_entries("finished", "id", round_.finished),
        now=round_.now,
        policy=round_.policy,
        issues=issues,
    )


def parts_of_document(document: Mapping[str, Any]) -> Parts:
    """Parse what can be parsed of a malformed round, entry by entry and field by field.

    ``issues`` of the result holds only what was found inside a graph; the rest is in the error of the whole document.
    """
    raw = document.get("cluster")
    cluster: Mapping[str, Any] = raw if isinstance(raw, Mapping) else {}
    graph = cluster.get("graph")
    issues: list[Issue] = []
    levels: tuple[str, ...] | None
    if isinstance(graph, Mapping) and not cluster.get("nodes") and not cluster.get("levels"):
        levels, levels_path, nodes, issues = _graph_parts(graph)
    else:
        levels, levels_path = _parse(TypeAdapter(tuple[Id, ...]), cluster.get("levels", ())), "cluster.levels"
        nodes = _salvage(Node, cluster.get("nodes"), "cluster.nodes", "name")
    return Parts(
        levels=levels,
        levels_path=levels_path,
        nodes=nodes,
        budgets=_salvage(Budget, document.get("budgets"), "budgets", "name"),
        jobs=_salvage(Job, document.get("jobs"), "jobs", "id"),
        finished=_salvage(Finished, document.get("finished", ()), "finished", "id"),
        now=_parse(TypeAdapter(Instant), document.get("now")),
        policy=_parse(TypeAdapter(Policy), document.get("policy", {})),
        issues=issues,
    )


def vertex_name(vertex: Mapping[str, Any]) -> object:
    """Name of a graph vertex: its ``name`` if that is a string, otherwise its ``id``, numbers written out."""
    name = vertex.get("name")
    if isinstance(name, str):
        return name
    name = vertex.get("id")
    return str(name) if isinstance(name, int) and not isinstance(name, bool) else name


def graph_nodes(graph: Mapping[str, Any]) -> list[tuple[int, dict[str, Any]]]:
    """Pick the vertices of node-link data that are nodes: those with ``gpus`` other than 0.

    Returns
    -------
    list of (int, dict)
        Index of the vertex, and its fields of :class:`~cpalloc.schema.request.Node`, ``domains`` left out.
    """
    found: list[tuple[int, dict[str, Any]]] = []
    vertices = graph.get("nodes")
    for i, vertex in enumerate(vertices if isinstance(vertices, list | tuple) else ()):
        if isinstance(vertex, Mapping) and vertex.get("gpus") not in (None, 0):
            fields = {key: vertex[key] for key in vertex if key in _NODE_ATTRIBUTES}
            found.append((i, {"name": vertex_name(vertex), **fields}))
    return found


def _graph_parts(
    graph: Mapping[str, Any],
) -> tuple[tuple[str, ...] | None, str, Entries[Node], list[Issue]]:
    base = "cluster.graph.nodes"
    entries: Entries[Node] = Entries(base, "name", whole=is_node_link(graph))
    issues: list[Issue] = []
    for i, fields in graph_nodes(graph):
        try:
            node = Node.model_validate(fields)
            entries.items.append(Entry(i, node.name, node))
        except ValidationError as error:
            issues += issues_of(error, fields, join_path(base, i))
            _salvage_one(Node, fields, i, entries)
    attributes = graph.get("graph")
    levels = attributes.get("levels") if isinstance(attributes, Mapping) else None
    return _parse(TypeAdapter(tuple[Id, ...]), levels), "cluster.graph.graph.levels", entries, issues


def _entries(path: str, key_field: str, items: tuple[M, ...]) -> Entries[M]:
    return Entries(path, key_field, [Entry(i, getattr(item, key_field), item) for i, item in enumerate(items)])


def _parse(adapter: TypeAdapter[Any], value: object) -> Any:
    try:
        return adapter.validate_python(value)
    except ValidationError:
        return None


def _salvage(model: type[M], raw: object, path: str, key_field: str) -> Entries[M]:
    entries: Entries[M] = Entries(path, key_field)
    if not isinstance(raw, list | tuple) or len(raw) > MAX_COUNT:
        entries.whole = False
        return entries
    for i, value in enumerate(raw):
        _salvage_one(model, value, i, entries)
    return entries


def _salvage_one(model: type[M], value: object, index: int, entries: Entries[M]) -> None:
    """Parse one entry; fields that do not parse are dropped or held by placeholders, and named in ``bad``."""
    if isinstance(value, model):
        entries.items.append(Entry(index, getattr(value, entries.key_field), value))
        return
    if not isinstance(value, Mapping):
        entries.whole = False
        return
    key = value.get(entries.key_field)
    if not isinstance(key, str):
        entries.whole, key = False, None
    bad: frozenset[str] = frozenset()
    try:
        item = model.model_validate(value)
    except ValidationError as error:
        bad = frozenset(str(line["loc"][0]) for line in error.errors(include_url=False) if line["loc"])
        good = {name: v for name, v in value.items() if name in model.model_fields and name not in bad}
        missing = {name: v for name, v in _PLACEHOLDERS[model].items() if name not in good}
        try:
            item = model.model_validate(good | missing)
        except ValidationError:
            entries.whole = False
            return
    entries.items.append(Entry(index, key, item, bad))
