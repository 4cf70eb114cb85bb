"""What the service answers when all is well."""

from __future__ import annotations

from decimal import Decimal

import pytest

from cpalloc.api.openapi import example
from cpalloc.api.routes.solve import limited
from cpalloc.api.settings import Settings
from cpalloc.schema import CheckReport, Options, Round, fingerprint, parse_allocation, parse_round
from cpalloc.schema.examples import load
from cpalloc.version import __version__

from .conftest import FakeEngine, MakeClient

SETTINGS = Settings(max_workers=2, max_concurrent_solves=1, max_time_limit=Decimal(60))


def with_options(**options: object) -> Round:
    return parse_round({**load("small"), "options": options})


def test_a_round_is_solved_and_its_answer_checked_by_the_real_engine(make_client: MakeClient) -> None:
    client = make_client()
    solved = client.post("/v1/solve", json=load("small"))
    assert (solved.status_code, solved.headers["content-type"]) == (200, "application/json")
    allocation = parse_allocation(solved.content)
    assert [d.job for d in allocation.decisions] == sorted(job["id"] for job in load("small")["jobs"])
    checked = client.post("/v1/check", json={"round": load("small"), "allocation": solved.json()})
    assert checked.status_code == 200
    assert CheckReport.model_validate(checked.json()).violations == ()


def test_the_packaged_answer_still_answers_the_packaged_round(make_client: MakeClient) -> None:
    checked = make_client().post("/v1/check", json={"round": load("small"), "allocation": example("allocation")})
    assert checked.json() == example("report")


def test_the_real_engine_reports_broken_rules(make_client: MakeClient) -> None:
    allocation = example("allocation")
    started = next(d for d in allocation["decisions"] if d["job"] == "notebook-2")
    started["placement"] = [{"node": "r1n1", "gpus": [0]}]  # video-3 runs there
    checked = make_client().post("/v1/check", json={"round": load("small"), "allocation": allocation})
    assert checked.status_code == 200
    assert [v["constraint"] for v in checked.json()["violations"]] == ["capacity"]


def test_a_generous_deadline_changes_nothing(engine: FakeEngine, make_client: MakeClient) -> None:
    make_client().post("/v1/solve", json=load("small"), headers={"X-Server-Timeout": "100"})
    assert engine.rounds == [parse_round(load("small"))]


def test_a_deadline_shortens_the_solve_and_not_the_fingerprint(engine: FakeEngine, make_client: MakeClient) -> None:
    answer = make_client().post("/v1/solve", json=load("small"), headers={"X-Server-Timeout": "2"})
    assert 1 < engine.rounds[0].options.time_limit <= 2
    assert answer.json()["request_fingerprint"] == fingerprint(parse_round(load("small")))


@pytest.mark.parametrize(
    ("asked", "left_s", "granted"),
    [
        ({"time_limit": 5, "workers": 2}, None, {"time_limit": 5, "workers": 2}),
        ({"time_limit": 600, "workers": 2}, None, {"time_limit": 60, "workers": 2}),
        ({"time_limit": 5, "workers": 8}, None, {"time_limit": 5, "workers": 2}),
        ({"time_limit": 5, "workers": 8, "deterministic": True}, None,
         {"time_limit": 5, "workers": 8, "deterministic": True}),
        ({"time_limit": 5}, 1.23456, {"time_limit": Decimal("1.235")}),
        ({"time_limit": 5}, 0.001, {"time_limit": Decimal("0.05")}),
        ({"time_limit": 5}, -3.0, {"time_limit": Decimal("0.05")}),
        ({"time_limit": 5}, 1e300, {"time_limit": 5}),
    ],
)  # fmt: skip
def test_options_are_cut_to_what_is_granted(
    asked: dict[str, object], left_s: float | None, granted: dict[str, object]
) -> None:
    assert limited(with_options(**asked), SETTINGS, left_s).options == Options.model_validate(granted)


def test_a_round_within_its_limits_is_left_alone() -> None:
    round_ = with_options(time_limit=5)
    assert limited(round_, SETTINGS, 100.0) is round_


def test_health_and_version(engine: FakeEngine, make_client: MakeClient) -> None:
    client = make_client()
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/readyz").json() == {"status": "ready"}
    version = client.get("/version").json()
    assert (version["cpalloc"], version["schema_versions"]) == (__version__, [1])
    assert version["ortools"].startswith("9.15")


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CPALLOC_PORT", "9000")
    monkeypatch.setenv("CPALLOC_MAX_TIME_LIMIT", "1.5")
    monkeypatch.setattr("cpalloc.api.settings.usable_cores", lambda: 16)
    settings = Settings()
    assert (settings.port, settings.max_time_limit) == (9000, Decimal("1.5"))
    assert settings.max_concurrent_solves == 8
    assert Settings(max_workers=32).max_concurrent_solves == 1
