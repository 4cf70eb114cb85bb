"""Reading documents: a round or an allocation, or everything that is wrong with it at once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from cpalloc.collector import collector_paused
from cpalloc.errors import InputError, Issue
from cpalloc.schema._parts import parts_of_document, parts_of_round
from cpalloc.schema._snapshot import snapshot_issues_of
from cpalloc.schema._translate import issues_of
from cpalloc.schema.answer import Allocation
from cpalloc.schema.request import CLUSTER_NEEDS, CLUSTER_TAKES, Round


@collector_paused()
def parse_round(document: Mapping[str, Any] | str | bytes, *, known: Mapping[str, Any] = MappingProxyType({})) -> Round:
    """Read a round and check that its snapshot can be trusted.

    Parameters
    ----------
    document : mapping, str or bytes
        The document, or its JSON text (UTF-8).
    known : mapping
        Some of the document's fields as they were read before, in part or in whole (:class:`~cpalloc.schema.Reader`).

    Returns
    -------
    Round
        The parsed round; :func:`snapshot_issues` has nothing to say about it.

    Raises
    ------
    InputError
        With every issue: malformed fields, and what the well-formed ones contradict each other in.
    """
    parsed = load_document(document)
    try:
        round_ = Round.model_validate({**parsed, **known} if known else parsed)
    except ValidationError as error:
        issues = issues_of(error, parsed)
        issues += _form_issues(parsed, issues)
        issues += snapshot_issues_of(parts_of_document(parsed))
        raise InputError(_distinct(issues)) from None
    issues = snapshot_issues(round_)
    if issues:
        raise InputError(issues)
    return round_


def snapshot_issues(round_: Round) -> list[Issue]:
    """Check what the objects of a parsed round must agree on (wire.md, "Errors").

    What concerns one pending job only is not looked at; the compiler makes that job wait.

    Parameters
    ----------
    round_ : Round
        A parsed round.

    Returns
    -------
    list of Issue
        Every reason to refuse the snapshot; empty when it can be used.
    """
    return _distinct(snapshot_issues_of(parts_of_round(round_)))


def parse_allocation(document: Mapping[str, Any] | str | bytes) -> Allocation:
    """Read an allocation.

    Parameters
    ----------
    document : mapping, str or bytes
        The document, or its JSON text (UTF-8).

    Returns
    -------
    Allocation
        The parsed answer; fields it does not know are left out.

    Raises
    ------
    InputError
        With every malformed field.
    """
    parsed = load_document(document)
    try:
        return Allocation.model_validate(parsed)
    except ValidationError as error:
        raise InputError(issues_of(error, parsed)) from None


def load_document(document: Mapping[str, Any] | str | bytes) -> dict[str, Any]:
    """The document as an object; :class:`InputError` where it is none."""
    value: object = document
    if isinstance(document, str | bytes):
        try:
            value = json.loads(document)
        except RecursionError:
            raise InputError([Issue("json", "", "is nested too deeply")]) from None
        except ValueError as error:
            raise InputError([Issue("json", "", f"is not JSON: {error}")]) from None
    if not isinstance(value, Mapping):
        raise InputError([Issue("type", "", "must be a JSON object")])
    return dict(value)


def _form_issues(document: Mapping[str, Any], known: list[Issue]) -> list[Issue]:
    """Say what pydantic leaves out when anything else in the cluster is malformed: which of its two forms it has."""
    cluster = document.get("cluster")
    if not isinstance(cluster, Mapping) or any(issue.code == "cluster_form" for issue in known):
        return []
    graph = cluster.get("graph")
    if graph is None and "nodes" not in cluster:
        return [Issue("cluster_form", "cluster", CLUSTER_NEEDS)]
    if graph is not None and (cluster.get("nodes") or cluster.get("levels")):
        return [Issue("cluster_form", "cluster", CLUSTER_TAKES)]
    return []


def _distinct(issues: list[Issue]) -> list[Issue]:
    found: dict[tuple[str, str], Issue] = {}
    for issue in issues:
        found.setdefault((issue.code, issue.path), issue)
    return list(found.values())
