"""What there is to run: one task per scenario and seed, with a fingerprint of everything its result depends on."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from cpalloc.errors import InputError, Issue
from cpalloc.sim.keep import SUFFIX
from cpalloc.sim.scenario import Scenario
from cpalloc.version import __version__


@dataclass(frozen=True, slots=True)
class Task:
    """A scenario to run with a seed, and the folder its result goes to."""

    scenario: Scenario
    seed: int
    fingerprint: str
    folder: Path

    @property
    def label(self) -> str:
        """The name for people."""
        return f"{self.scenario.name}, seed {self.seed}"

    @property
    def stem(self) -> str:
        """What the names of its files begin with: no two scenarios share one, even where only their names differ."""
        name = self.scenario.name
        plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40] or "scenario"
        if plain != name:
            plain += f"-{hashlib.sha256(name.encode()).hexdigest()[:4]}"
        return f"{plain}-{self.fingerprint[:10]}-seed{self.seed}"

    @property
    def result_path(self) -> Path:
        """The summary (JSON), written last: where it is, the task is done."""
        return self.folder / f"{self.stem}.json"

    @property
    def history_path(self) -> Path:
        """The history."""
        return self.folder / f"{self.stem}{SUFFIX}"

    @property
    def checkpoint_path(self) -> Path:
        """The simulation, while it is not done."""
        return self.folder / f"{self.stem}.checkpoint"


def plan(scenarios: Iterable[Scenario], folder: Path) -> tuple[Task, ...]:
    """List the tasks: seed by seed, so that early results already compare the scenarios.

    Raises
    ------
    InputError
        Every file of a workload that cannot be read.
    """
    scenarios = tuple(scenarios)
    digests = _digests(scenarios)
    marks = {s.name: fingerprint(s, digests) for s in scenarios}
    seeds = dict.fromkeys(seed for s in scenarios for seed in s.seeds)
    return tuple(Task(s, seed, marks[s.name], folder.resolve()) for seed in seeds for s in scenarios if seed in s.seeds)


def fingerprint(scenario: Scenario, digests: Mapping[Path, str]) -> str:
    """Tell scenarios apart that may have other results: all but name and seeds, with what is in the files.

    Parameters
    ----------
    digests : mapping of Path to str
        Of the content of the files of the workload.
    """
    source = scenario.workload
    settings = scenario.model_dump_json(exclude={"name": True, "seeds": True, "workload": {"path", "nodes", "events"}})
    nodes = source.nodes if isinstance(source.nodes, int) else ""
    files = [f"{path.name} {digests[path]}" for path in source.files()]
    return hashlib.sha256("\n".join([__version__, settings, str(nodes), *files]).encode()).hexdigest()


def _digests(scenarios: Iterable[Scenario]) -> dict[Path, str]:
    digests: dict[Path, str] = {}
    issues = []
    for path in dict.fromkeys(path for s in scenarios for path in s.workload.files()):
        try:
            with path.open("rb") as file:
                digests[path] = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            issues.append(Issue("file", str(path), f"cannot be read: {error.strerror}"))
    if issues:
        raise InputError(issues)
    return digests
