"""What-ifs to post: a quick one, one that takes far longer than a test, and what is common to watching them."""

from __future__ import annotations

import json
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from cpalloc.api.openapi import example

EXAMPLES = Path(__file__).parents[3] / "examples"
PATH = "/v1/what-if"
OVER = ("done", "failed", "cancelled")


def lab(**changes: Any) -> dict[str, Any]:
    """The small lab of the examples as JSON."""
    document = tomllib.loads((EXAMPLES / "small-lab.toml").read_text(encoding="utf-8"))
    return {**document, "start": document["start"].isoformat(), **changes}


def quick(*changes: Mapping[str, Any], **base: Any) -> dict[str, Any]:
    """Two teams on two nodes for a day, with one seed: a fraction of a second a run."""
    return {"base": {**example("what_if")["base"], "seeds": 1, **base}, "scenario": list(changes)}


def endless(**base: Any) -> dict[str, Any]:
    """Weeks of a lab under the optimiser, a round at every event, after one hour of it under ``fifo``."""
    first = {"workload": {"lab": lab(days=20)}, "policy": "fifo", "until": "1h", **base}
    return {"base": first, "scenario": [{"name": "endless", "policy": "cpalloc", "until": "366d"}]}


def posted(client: Any, document: Mapping[str, Any]) -> str:
    """Post a what-if; the path of its status."""
    response = client.post(PATH, json=document)
    assert response.status_code == 202, response.text
    location: str = response.headers["location"]
    assert location == response.json()["links"]["self"]
    return location


def until(client: Any, path: str, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Ask for a status until it is as wanted."""
    while True:
        status: dict[str, Any] = client.get(path).json()
        if condition(status):
            return status
        assert status["state"] not in OVER, status
        time.sleep(0.02)  # the core is the simulation's


def over(client: Any, path: str) -> dict[str, Any]:
    return until(client, path, lambda status: status["state"] in OVER)


def moving(status: Mapping[str, Any]) -> bool:
    """Whether the last run has begun and is under way."""
    return bool(status["runs"][-1]["simulated_s"])


def events(lines: Iterator[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Events of a stream; comments have the name ``:``."""
    name = ""
    for line in lines:
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))
        elif line.startswith(":"):
            yield ":", {}


def timeless(comparison: dict[str, Any]) -> dict[str, Any]:
    """A comparison without the seconds that rounds took."""
    return {**comparison, "rows": [row for row in comparison["rows"] if not row["name"].startswith("round_")]}
