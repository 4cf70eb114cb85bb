"""The service with an engine that the test holds in its hands."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import pytest
from starlette.testclient import TestClient

from cpalloc.api.app import create_app
from cpalloc.api.openapi import example
from cpalloc.api.settings import Settings
from cpalloc.schema import Allocation, CheckReport, Round, fingerprint, parse_allocation, parse_round

MakeClient = Callable[..., TestClient]


@dataclass
class FakeEngine:
    """Answers at once, unless ``blocking``: then when released or cancelled."""

    blocking: bool = False
    error: Exception | None = None
    rounds: list[Round] = field(default_factory=list)
    began: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    release: threading.Event = field(default_factory=threading.Event)
    cancelled: threading.Event = field(default_factory=threading.Event)

    def read(self, document: Mapping[str, Any]) -> Round:
        return parse_round(document)

    def solve(self, round_: Round, *, cancel: threading.Event, trusted: bool, asked: Round) -> Allocation:
        assert trusted
        self.rounds.append(round_)
        self.began.release()
        if self.error is not None:
            raise self.error
        while self.blocking and not self.release.is_set():
            if cancel.wait(0.005):
                self.cancelled.set()
                break
        return parse_allocation(example("allocation")).model_copy(update={"request_fingerprint": fingerprint(asked)})

    def check(self, round_: Round, allocation: Allocation) -> CheckReport:
        if self.error is not None:
            raise self.error
        return CheckReport.model_validate(example("report"))


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeEngine]:
    fake = FakeEngine()
    module: Any = ModuleType("cpalloc.engine")
    module.Solver, module.check = lambda: fake, fake.check
    monkeypatch.setitem(sys.modules, "cpalloc.engine", module)
    yield fake
    fake.release.set()


@pytest.fixture
def make_client() -> Iterator[MakeClient]:
    """Start services on one event loop each, as uvicorn does; they end with the test."""
    clients: list[TestClient] = []

    def make(**settings: Any) -> TestClient:
        client = TestClient(create_app(Settings(**settings)), raise_server_exceptions=False)
        client.__enter__()
        clients.append(client)
        return client

    yield make
    for client in clients:
        client.__exit__(None, None, None)
