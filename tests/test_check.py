"""Checking an answer against its round, from the answer alone."""

from __future__ import annotations

from typing import Any

import pytest

import cpalloc
from cpalloc import Allocation, Round
from cpalloc.schema import examples

Doc = dict[str, Any]


@pytest.fixture(scope="module")
def round_() -> Round:
    return Round.model_validate(examples.load("small"))


@pytest.fixture
def answer(round_: Round) -> Doc:
    return cpalloc.solve(round_).model_dump(mode="json")


def found(round_: Round, answer: Doc) -> list[tuple[str, tuple[str, ...]]]:
    report = cpalloc.check(round_, Allocation.model_validate(answer))
    return [(v.constraint, v.jobs) for v in report.violations]


def first(answer: Doc, action: str) -> Doc:
    return next(d for d in answer["decisions"] if d["action"] == action)


def test_what_solve_answers_breaks_nothing_and_has_the_values_it_says(round_: Round, answer: Doc) -> None:
    report = cpalloc.check(round_, Allocation.model_validate(answer))
    assert report.violations == ()
    assert {t.name: t.value for t in report.tiers} == {t["name"]: t["value"] for t in answer["tiers"]}


def test_a_kept_job_must_stay_where_it_is(round_: Round, answer: Doc) -> None:
    kept = first(answer, "keep")
    there = {e["node"] for e in kept["placement"]}
    kept["placement"][0]["node"] = next(n.name for n in round_.cluster.nodes if n.name not in there)
    assert found(round_, answer) == [("answer", (kept["job"],))]


def test_a_kept_job_must_keep_its_devices(round_: Round, answer: Doc) -> None:
    kept = next(d for d in answer["decisions"] if d["action"] == "keep" and len(d["placement"][0]["gpus"]) < 8)
    gpus = kept["placement"][0]["gpus"]
    gpus[0] = next(g for g in range(8) if g not in gpus)
    assert ("answer", (kept["job"],)) in found(round_, answer)


def test_the_order_of_devices_and_replicas_does_not_matter(round_: Round, answer: Doc) -> None:
    for decision in answer["decisions"]:
        for entry in decision["placement"] or []:
            entry["gpus"].reverse()
        (decision["placement"] or []).reverse()
    assert found(round_, answer) == []


def test_every_job_has_one_decision(round_: Round, answer: Doc) -> None:
    gone = answer["decisions"].pop(0)
    again = dict(answer["decisions"][0])
    ghost = dict(first(answer, "wait"), job="nobody")
    answer["decisions"] += [again, ghost]
    blamed = {jobs for constraint, jobs in found(round_, answer) if constraint == "answer"}
    assert blamed == {(gone["job"],), (again["job"],), ("nobody",)}


def test_a_start_on_gpus_that_a_kept_job_holds_is_found(round_: Round, answer: Doc) -> None:
    held = first(answer, "keep")["placement"][0]
    start = next(d for d in answer["decisions"] if d["action"] == "start" and d["placement"][0]["node"] != held["node"])
    size = len(start["placement"][0]["gpus"])
    start["placement"][0] = {"node": held["node"], "gpus": (held["gpus"] * size)[:1] + list(range(8))[: size - 1]}
    assert ("capacity", (start["job"],)) in found(round_, answer)
