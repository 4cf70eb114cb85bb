"""Every error is an RFC 9457 body."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from cpalloc.api.openapi import example
from cpalloc.errors import InputError, Issue
from cpalloc.schema.examples import load

from .conftest import FakeEngine, MakeClient

SMALL = load("small")


def problem_of(response: Any, status: int) -> dict[str, Any]:
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert body["status"] == status
    assert body["title"]
    assert body["detail"]
    return body


def codes(problem: dict[str, Any]) -> list[tuple[str, str]]:
    return [(issue["code"], issue["path"]) for issue in problem["issues"]]


@pytest.mark.parametrize("path", ["/v1/solve", "/v1/check"])
@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe\x00", b"[" * 100_000, b"1" * 5000])
def test_what_is_not_json_is_400(engine: FakeEngine, make_client: MakeClient, path: str, body: bytes) -> None:
    assert codes(problem_of(make_client().post(path, content=body), 400)) == [("json", "")]


@pytest.mark.parametrize("path", ["/v1/solve", "/v1/check"])
def test_what_is_no_object_is_422(engine: FakeEngine, make_client: MakeClient, path: str) -> None:
    assert codes(problem_of(make_client().post(path, json=[1]), 422)) == [("type", "")]


def test_all_issues_of_a_round_come_at_once(engine: FakeEngine, make_client: MakeClient) -> None:
    document = {**SMALL, "now": "yesterday", "surprise": 1, "options": {"time_limit": 0}}
    problem = problem_of(make_client().post("/v1/solve", json=document), 422)
    assert {("instant", "now"), ("unknown_field", "surprise"), ("range", "options.time_limit")} <= set(codes(problem))
    assert all(issue["message"] for issue in problem["issues"])
    assert not engine.rounds


def test_issues_of_a_check_say_which_part(engine: FakeEngine, make_client: MakeClient) -> None:
    client = make_client()
    document = {"round": {**SMALL, "now": "yesterday"}, "allocation": {**example("allocation"), "status": "good"}}
    found = codes(problem_of(client.post("/v1/check", json=document | {"more": 1}), 422))
    assert set(found) == {("unknown_field", "more"), ("instant", "round.now"), ("enum", "allocation.status")}
    assert codes(problem_of(client.post("/v1/check", json={"round": 5}), 422)) == [
        ("type", "round"),
        ("missing", "allocation"),
    ]


def test_what_the_engine_refuses_is_422(engine: FakeEngine, make_client: MakeClient) -> None:
    engine.error = InputError([Issue("cycle", "cluster.graph", "has a cycle")])
    assert codes(problem_of(make_client().post("/v1/solve", json=SMALL), 422)) == [("cycle", "cluster.graph")]


@pytest.mark.parametrize("value", ["nan", "inf", "0", "-1", "soon", ""])
def test_a_deadline_that_is_none_is_422(engine: FakeEngine, make_client: MakeClient, value: str) -> None:
    response = make_client().post("/v1/solve", json=SMALL, headers={"X-Server-Timeout": value})
    assert codes(problem_of(response, 422)) == [("header", "X-Server-Timeout")]


def test_text_that_is_no_unicode_is_told_back(engine: FakeEngine, make_client: MakeClient) -> None:
    client = make_client()
    problem_of(client.post("/v1/solve", content=json.dumps({"\ud800": "\udfff"})), 422)
    response = client.post("/v1/check", content=json.dumps({"\ud800": 1}))
    assert ("unknown_field", "\ud800") in codes(problem_of(response, 422))


def test_large_bodies_are_413_announced_or_not(engine: FakeEngine, make_client: MakeClient) -> None:
    client = make_client(max_body_bytes=100)

    def chunks() -> Iterator[bytes]:
        yield b" " * 60
        yield b" " * 60

    problem_of(client.post("/v1/solve", content=b" " * 101), 413)
    problem_of(client.post("/v1/check", content=chunks()), 413)
    problem_of(client.post("/v1/solve", content=b" " * 100), 400)


def test_paths_and_methods_that_do_not_exist(engine: FakeEngine, make_client: MakeClient) -> None:
    client = make_client()
    problem_of(client.get("/v1/nothing"), 404)
    problem_of(client.post("/v1/solve/", json=SMALL), 404)
    response = client.get("/v1/solve")
    problem_of(response, 405)
    assert response.headers["allow"] == "POST"


@pytest.mark.parametrize("path", ["/v1/solve", "/v1/check"])
def test_a_bug_is_500_and_keeps_its_traceback(engine: FakeEngine, make_client: MakeClient, path: str) -> None:
    engine.error = RuntimeError("the secret")
    body = SMALL if path == "/v1/solve" else {"round": SMALL, "allocation": example("allocation")}
    response = make_client().post(path, json=body)
    problem_of(response, 500)
    assert "secret" not in response.text
    assert "Traceback" not in response.text


def test_a_full_queue_is_503_with_a_time_to_come_back(engine: FakeEngine, make_client: MakeClient) -> None:
    client = make_client(max_concurrent_solves=1, max_queue=1)
    engine.blocking = True
    answers: list[int] = []

    def ask() -> None:
        answers.append(client.post("/v1/solve", json=SMALL).status_code)

    asking = [threading.Thread(target=ask) for _ in range(2)]
    for thread in asking:
        thread.start()
    assert engine.began.acquire(timeout=10)
    pool = client.app.state.cpalloc.pool  # type: ignore[attr-defined]
    while pool.in_hand < 2:
        pass
    for response in (client.post("/v1/solve", json=SMALL), client.get("/readyz")):
        problem_of(response, 503)
        assert int(response.headers["retry-after"]) >= 1
    assert client.get("/healthz").status_code == 200
    engine.release.set()
    for thread in asking:
        thread.join(10)
    assert answers == [200, 200]
    assert client.get("/readyz").status_code == 200
    assert len(engine.rounds) == 2
