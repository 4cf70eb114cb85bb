"""Rounds read one after the other are what they are when read alone, and what did not change is the same object."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from cpalloc.errors import InputError
from cpalloc.generate import GeneratorConfig, generate_doc
from cpalloc.schema import Reader, parse_round
from cpalloc.schema.examples import load

Change = Callable[[dict[str, Any]], object]


def test_what_did_not_change_is_the_same_object() -> None:
    reader, document = Reader(), load("small")
    before = reader.read(document)
    after = reader.read(json.dumps({**document, "now": "2026-11-29T12:01:00Z"}))
    assert after.cluster is before.cluster
    assert all(a is b for a, b in zip(after.jobs, before.jobs, strict=True))
    assert after.now != before.now


def test_only_the_job_that_changed_is_read_anew() -> None:
    reader, document = Reader(), copy.deepcopy(load("small"))
    before = reader.read(document)
    document["jobs"][1]["priority"] = "low"
    after = reader.read(document)
    assert [a is b for a, b in zip(after.jobs, before.jobs, strict=True)] == [
        i != 1 for i in range(len(document["jobs"]))
    ]
    assert after == parse_round(document)


def test_a_document_made_in_python_may_hold_a_tuple() -> None:
    reader, document = Reader(), load("small")
    before = reader.read({**document, "jobs": tuple(document["jobs"])})
    assert before == parse_round(document)
    assert reader.read(document).jobs[0] is before.jobs[0]


CHANGES: dict[str, Change] = {
    "a job goes": lambda d: d["jobs"].pop(0),
    "the order is another": lambda d: d["jobs"].reverse(),
    "a node drains": lambda d: d["cluster"]["nodes"][0].update(state="draining"),
    "a budget is charged": lambda d: d["budgets"][-1].update(charged_gpu_seconds=77),
    "a whole number is written as a fraction": lambda d: d["jobs"][0].update(replicas=1.0),
    "a whole number is written as a truth": lambda d: d["jobs"][0].update(replicas=True),
    "an unknown field": lambda d: d["jobs"][0].update(colour="red"),
    "a job twice": lambda d: d["jobs"].append(d["jobs"][0]),
    "no list of jobs": lambda d: d.update(jobs={"a": 1}),
    "jobs that are none": lambda d: d.update(jobs=[1, None, "x"]),
    "no cluster": lambda d: d.pop("cluster"),
    "a node less, on which a job runs": lambda d: d["cluster"]["nodes"].pop(),
    "a running job twice on its GPUs": lambda d: d["jobs"].append({**_running(d), "id": "twin"}),
}


def _running(document: dict[str, Any]) -> dict[str, Any]:
    return next(job for job in document["jobs"] if "running" in job)


@pytest.mark.parametrize("change", CHANGES)
def test_reading_is_parsing(change: str) -> None:
    reader, document = Reader(), copy.deepcopy(load("small"))
    reader.read(document)
    document = copy.deepcopy(document)
    CHANGES[change](document)
    for _ in range(2):  # what is refused once is refused again, and leaves nothing behind
        assert outcome(reader.read, document) == outcome(parse_round, document)
    assert reader.read(load("small")) == parse_round(load("small"))


def outcome(read: Callable[[Any], object], document: dict[str, Any]) -> object:
    try:
        return read(json.dumps(document))
    except InputError as error:
        return error.issues


def test_other_clusters_in_between_do_no_harm() -> None:
    reader = Reader()
    documents = [generate_doc(GeneratorConfig(nodes=8, seed=seed)) for seed in (1, 2, 1, 3, 2)]
    assert [reader.read(d) for d in documents] == [parse_round(d) for d in documents]
