"""Which solver a round of a cluster gets, and that its answer is the one it gets alone."""

from __future__ import annotations

import pytest

from cpalloc.api.solvers import Solvers
from cpalloc.schema.examples import load

from .conftest import MakeClient


def test_a_cluster_keeps_its_solver() -> None:
    solvers = Solvers(keep=2)
    assert solvers.of("a") is solvers.of("a")
    assert solvers.of("a") is not solvers.of("b")


def test_the_one_not_asked_for_longest_is_forgotten() -> None:
    solvers = Solvers(keep=2)
    first, second = solvers.of("a"), solvers.of("b")
    assert solvers.of("a") is first
    solvers.of("c")
    assert solvers.of("a") is first
    assert solvers.of("b") is not second


@pytest.mark.parametrize("cluster", [None, 3, ["a"]])
def test_what_is_no_name_gets_a_solver_of_its_own(cluster: object) -> None:
    solvers = Solvers(keep=2)
    assert solvers.of(cluster) is not solvers.of(cluster)


def test_none_are_kept_where_none_may_be() -> None:
    solvers = Solvers(keep=0)
    assert solvers.of("a") is not solvers.of("a")


@pytest.mark.parametrize("keep", [0, 4])
def test_the_same_round_twice_has_the_same_answer(make_client: MakeClient, keep: int) -> None:
    client = make_client(keep_clusters=keep)
    document = {**load("small"), "options": {"deterministic": True, "deterministic_limit": 1}}
    first, second = (client.post("/v1/solve", json=document) for _ in range(2))
    assert first.status_code == 200
    assert first.content == second.content


def test_after_a_round_that_is_refused_the_next_is_answered(make_client: MakeClient) -> None:
    client = make_client()
    assert client.post("/v1/solve", json={**load("small"), "jobs": 3}).status_code == 422
    assert client.post("/v1/solve", json={**load("small"), "cluster": []}).status_code == 422
    assert client.post("/v1/solve", json=load("small")).status_code == 200
