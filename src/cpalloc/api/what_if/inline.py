"""Workloads that come with the request: their content goes to files of the service's own naming.

A request never names a file. Everything the simulator reads from a path comes as content here, is written to a folder
made for the one what-if, and issues that name such a file are told in the words of the request.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from cpalloc.errors import InputError, Issue
from cpalloc.schema._translate import issues_of
from cpalloc.schema.types import PositiveCount

if TYPE_CHECKING:
    from cpalloc.sim.lab import LabConfig

NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"
"""What a trace may be called: it becomes the name of a file, so it is nothing but that."""

_OF_THE_BASE = ("lab", "trace", "format", "name")
_OF_TRACES = ("format", "name", "nodes", "gpus_per_node", "recipe")


class InlineWorkload(BaseModel):
    """A workload in a request; in a scenario only what is different from the base's.

    Attributes
    ----------
    lab
        A lab, as its file states it.
    trace
        Text of a trace, in any of the formats of traces: comma- or ``|``-separated, with a header.
    name
        What to call the trace; default: ``trace``.
    format
        Of the trace; default: told by the header.
    nodes
        Their number, or the text of a file that lists them.
    events
        Text of a file of drains, failures and repairs.
    gpus_per_node, recipe
        As in a file of scenarios.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    lab: dict[str, Any] | None = None
    trace: str | None = None
    name: Annotated[str, StringConstraints(pattern=NAME)] = "trace"
    format: str | None = None
    nodes: PositiveCount | str | None = None
    gpus_per_node: PositiveCount | None = None
    recipe: dict[str, Any] | None = None
    events: str | None = None


@dataclass(frozen=True, slots=True)
class Origins:
    """Where in the request the content of the service's files came from; all of them are in one folder."""

    folder: Path
    places: dict[str, str] = field(default_factory=dict)

    def issue(self, issue: Issue) -> Issue:
        """An issue in the words of the request: ``…/nodes.csv:3`` is line 3 of ``base.workload.nodes``."""
        for path, place in self.places.items():
            if issue.path == path:
                return replace(issue, path=place, message=self.text(issue.message))
            line = issue.path.removeprefix(f"{path}:")
            if line != issue.path:
                return replace(issue, path=place, message=f"line {line}: {self.text(issue.message)}")
        return replace(issue, path=self.text(issue.path), message=self.text(issue.message))

    def text(self, text: str) -> str:
        """A text without paths of the service."""
        for path, place in self.places.items():
            text = text.replace(path, place)
        return text.replace(str(self.folder), "the service's folder")


class Inliner:
    """Puts the workloads of one request into a folder.

    Attributes
    ----------
    origins
        Where the files' content came from.
    issues
        What was wrong with them.
    lab
        The base's lab, where it has one that can be used.
    """

    def __init__(self, folder: Path) -> None:
        self.origins = Origins(folder)
        self.issues: list[Issue] = []
        self.lab: LabConfig | None = None
        self._is_lab = False

    def base(self, scenario: Mapping[str, Any]) -> dict[str, Any]:
        """The base with the workload in files."""
        given = self._read(scenario, "base.workload")
        if given is None:
            # What else is wrong is to be told as well; a missing workload is told by whoever reads the rest.
            return {**scenario, "workload": {"path": "unreadable"}} if "workload" in scenario else dict(scenario)
        if (given.lab is None) == (given.trace is None):
            self._complain("workload", "base.workload", "needs exactly one of `lab` and `trace`")
        self._is_lab = given.lab is not None
        self._refuse_traces_own(given, "base.workload")
        if given.lab is not None:
            path = self._lab(given.lab, "base.workload.lab")
        else:
            path = self._text(f"trace/{given.name}.csv", given.trace or "", "base.workload.trace")
        return {**scenario, "workload": {"path": path, **self._common(given, "base")}}

    def change(self, scenario: Mapping[str, Any], where: str) -> dict[str, Any]:
        """A scenario with what it says of the workload in files."""
        if "workload" not in scenario:
            return dict(scenario)
        given = self._read(scenario, f"{where}.workload")
        if given is None:
            return {key: value for key, value in scenario.items() if key != "workload"}
        for key in _OF_THE_BASE:
            if key in given.model_fields_set:
                self._complain(
                    "workload", f"{where}.workload.{key}", "is that of the base; for another one post another what-if"
                )
        self._refuse_traces_own(given, f"{where}.workload")
        return {**scenario, "workload": self._common(given, where)}

    def _read(self, scenario: Mapping[str, Any], where: str) -> InlineWorkload | None:
        given = scenario.get("workload")
        if not isinstance(given, Mapping):
            if "workload" in scenario:
                self._complain("type", where, "must be an object with `lab` or `trace`: send the content of the file")
            return None
        try:
            return InlineWorkload.model_validate(given)
        except ValidationError as error:
            message = "names a file, and the service reads none; send its content as `lab` or `trace`"
            path = Issue("unknown_field", f"{where}.path", message)
            pattern = "must be up to 64 letters, digits, - and _"
            for issue in issues_of(error, given, where):
                named = issue.path == f"{where}.name" and issue.code == "pattern"
                told = replace(issue, message=pattern) if named else issue
                self.issues.append(path if issue.path == path.path else told)
            return None

    def _refuse_traces_own(self, given: InlineWorkload, where: str) -> None:
        for key in _OF_TRACES:
            if self._is_lab and key in given.model_fields_set:
                self._complain("workload", f"{where}.{key}", "is for traces; a lab states its own, so remove it")

    def _common(self, given: InlineWorkload, where: str) -> dict[str, Any]:
        """What base and scenarios may both say, with texts in files."""
        out = {key: getattr(given, key) for key in ("format", "gpus_per_node", "recipe") if getattr(given, key)}
        folder = "".join(c for c in where if c.isalnum())
        for key in ("nodes", "events"):
            value = getattr(given, key)
            if isinstance(value, str):
                out[key] = self._text(f"{folder}/{key}.csv", value, f"{where}.workload.{key}")
            elif value is not None:
                out[key] = value
        return out

    def _lab(self, lab: Mapping[str, Any], where: str) -> str:
        from cpalloc.sim.lab import parse_lab

        try:
            self.lab = parse_lab(lab)
        except InputError as error:
            self.issues += [replace(i, path=f"{where}.{i.path}" if i.path else where) for i in error.issues]
        return self._write("lab.json", json.dumps(lab), where)

    def _text(self, name: str, text: str, where: str) -> str:
        if text and "\n" not in text.strip():
            self._complain("workload", where, "must be a header and rows: the content of a file, not its name")
        return self._write(name, text, where)

    def _write(self, name: str, text: str, where: str) -> str:
        path = self.origins.folder / "inputs" / name
        self.origins.places[str(path)] = where
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            path.write_text(text, encoding="utf-8", newline="")
        except UnicodeEncodeError:
            self._complain("type", where, "has halves of characters (lone surrogates); remove them")
        return str(path)

    def _complain(self, code: str, path: str, message: str) -> None:
        self.issues.append(Issue(code, path, message))
