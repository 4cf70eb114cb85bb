"""Drivers: every case × every phase under pytest-benchmark.

``pytest bench --benchmark-only --bench-sizes 64 --bench-seeds 1-3``; ``--bench-smoke`` for the smallest case.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from bench.phases import PHASES, SOLVING, Prepared

ROUNDS = 5
"""Rounds of a phase that does not wait for the time limit."""


@pytest.fixture(scope="module")
def prepared(request: pytest.FixtureRequest) -> Iterator[Prepared]:
    case = Prepared(request.param)
    yield case
    case.close()


@pytest.mark.parametrize("phase", PHASES)
def test_phase(benchmark: Any, prepared: Prepared, phase: str, request: pytest.FixtureRequest) -> None:
    once = phase in SOLVING or request.config.getoption("--bench-smoke")
    benchmark.group = prepared.case.name
    run = PHASES[phase]
    if phase not in SOLVING:
        run(prepared)  # what the phase starts from is prepared outside the timed rounds
    elif phase == "http":
        assert prepared.client
    result = benchmark.pedantic(run, args=(prepared,), rounds=1 if once else ROUNDS)
    if phase == "solve":
        for tier in result.tiers:
            benchmark.extra_info[tier.name] = round(tier.seconds, 4)
        benchmark.extra_info["stop_reason"] = result.stop_reason
