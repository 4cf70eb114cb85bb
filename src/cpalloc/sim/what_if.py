"""A file of scenarios: a base, and what is different in each of the others."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cpalloc.errors import InputError, Issue
from cpalloc.sim.scenario import Scenario, expanded, parse_scenario

BASE = "base"
"""Name of the base where it has none."""

_KEYS = ("title", "base", "scenario")


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Scenarios of one workload to be run side by side; the first is the base the others are compared to."""

    title: str
    scenarios: tuple[Scenario, ...]

    def with_seeds(self, seeds: tuple[int, ...]) -> WhatIf:
        """The same with other seeds in all scenarios."""
        return replace(self, scenarios=tuple(s.model_copy(update={"seeds": seeds}) for s in self.scenarios))


def load_what_if(path: Path) -> WhatIf:
    """Read a file of scenarios (TOML); its paths are relative to where it lies.

    Raises
    ------
    InputError
        With every issue, each naming the key, as in ``what-if.toml: scenario[1].policy.depth``.
    """
    path = Path(path)
    document = load_toml(path)
    try:
        return parse_what_if(document, folder=path.parent, title=path.stem)
    except InputError as error:
        raise InputError([Issue(i.code, f"{path.name}: {i.path}", i.message) for i in error.issues]) from None


def load_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises
    ------
    InputError
        Code ``file`` or ``toml``.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError([Issue("file", str(path), f"cannot be read: {error}")]) from None
    except tomllib.TOMLDecodeError as error:
        raise InputError([Issue("toml", str(path), f"is not TOML: {error}")]) from None


def parse_what_if(document: Mapping[str, Any], *, folder: Path | None = None, title: str = "What if") -> WhatIf:
    """Read a base and its changes.

    Parameters
    ----------
    document : mapping
        ``base``: a scenario; it is run as well, named ``base`` where it has no name. ``scenario``: a list of others,
        each with a name and what is different (see :func:`changed`). ``title``: optional.
    folder : Path, optional
        What relative paths start from.

    Raises
    ------
    InputError
        With every issue; what is wrong in the base is told once.
    """
    issues = [
        Issue("unknown_field", key, f"is no part of a file of scenarios; use {', '.join(_KEYS)}")
        for key in document
        if key not in _KEYS
    ]
    base, changes = document.get("base"), document.get("scenario", [])
    if not isinstance(base, Mapping):
        issues.append(Issue("missing", "base", "is required: a table [base] with at least workload and policy"))
    if not isinstance(changes, list) or not all(isinstance(change, Mapping) for change in changes):
        issues.append(Issue("type", "scenario", "must be tables [[scenario]], each with a name and what is different"))
    if not isinstance(document.get("title", ""), str):
        issues.append(Issue("type", "title", "must be text"))
    if not isinstance(base, Mapping) or any(issue.path == "scenario" for issue in issues):
        raise InputError(issues)
    scenarios = _read_all({"name": BASE, **base}, changes, folder, issues)
    issues += _name_issues(scenarios)
    issues += _workload_issues(scenarios)
    if issues:
        raise InputError(issues)
    return WhatIf(document.get("title", title), tuple(scenarios.values()))


def changed(base: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """A document with changes: tables are changed key by key, everything else is replaced.

    A policy of another name than the base's replaces it whole, as it cannot be told the same things.

    Examples
    --------
    >>> changed({"policy": {"name": "fifo"}, "weights": {"a": 1}}, {"weights": {"b": 2}})
    {'policy': {'name': 'fifo'}, 'weights': {'a': 1, 'b': 2}}
    """
    out, change = expanded(base), expanded(change)
    for key, value in change.items():
        old = out.get(key)
        if not (isinstance(value, Mapping) and isinstance(old, Mapping)):
            out[key] = value
        elif key == "policy":
            another = value.get("name", old.get("name")) != old.get("name")
            out[key] = dict(value) if another else {**old, **value}
        else:
            out[key] = changed(old, value)
    return out


def _read_all(
    base: Mapping[str, Any], changes: Sequence[Mapping[str, Any]], folder: Path | None, issues: list[Issue]
) -> dict[str, Scenario]:
    """Scenarios by their place in the document; what is wrong goes to ``issues``."""
    documents = {"base": expanded(base)}
    for i, change in enumerate(changes):
        where = f"scenario[{i}]"
        documents[where] = changed(base, change)
        if "name" not in change:
            issues.append(Issue("missing", f"{where}.name", "is required"))
    scenarios: dict[str, Scenario] = {}
    of_base: set[tuple[str, str]] = set()
    for where, document in documents.items():
        try:
            scenarios[where] = parse_scenario(document, folder=folder, where=where)
        except InputError as error:
            found = {(i.path.removeprefix(where), i.message): i for i in error.issues}
            issues += [issue for key, issue in found.items() if key not in of_base]
            if where == "base":
                of_base = set(found)
    return scenarios


def _name_issues(scenarios: Mapping[str, Scenario]) -> list[Issue]:
    first: dict[str, str] = {}
    return [
        Issue("duplicate_id", f"{where}.name", f"`{s.name}` is also the name of {first[s.name]}; give it another")
        for where, s in scenarios.items()
        if first.setdefault(s.name, where) != where
    ]


def _workload_issues(scenarios: Mapping[str, Scenario]) -> list[Issue]:
    base = scenarios.get("base")
    return [
        Issue("workload", f"{where}.workload.path", "is not that of the base; compare it in a file of its own")
        for where, s in scenarios.items()
        if base is not None and s.workload.path != base.workload.path
    ]
