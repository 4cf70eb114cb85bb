"""A solver that is given one round after the other answers each as if it were the only one."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cpalloc.engine import Solver, solve
from cpalloc.errors import InputError
from cpalloc.schema import parse_round
from cpalloc.schema.examples import load

if TYPE_CHECKING:
    from bench.usual import Queue

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(params=["mixed", "gang-heavy", "lending", "failing"])
def queue(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Queue:
    monkeypatch.syspath_prepend(str(ROOT))
    from bench.usual import Queue

    queue = Queue(request.param, 16, 1, limit_s=1, events=6)
    queue.document["options"] = {"deterministic": True, "deterministic_limit": "0.2"}
    return queue


def test_rounds_in_a_row_are_answered_as_each_alone(queue: Queue) -> None:
    solver = Solver()
    for _ in range(6):
        text = json.dumps(queue.document)
        answer = solver.solve(solver.read(text), trusted=True)
        assert answer == solve(parse_round(text))
        queue.answered(answer.model_dump(mode="json"))


def test_threads_may_share_one(queue: Queue) -> None:
    solver, alone, texts = Solver(), [], []
    for _ in range(4):
        texts.append(json.dumps(queue.document))
        alone.append(solve(parse_round(texts[-1])))
        queue.answered(alone[-1].model_dump(mode="json"))
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda text: solver.solve(solver.read(text), trusted=True), texts * 2))
    assert together == alone * 2


def test_a_round_from_elsewhere_is_checked() -> None:
    round_ = parse_round(load("small"))
    twice = round_.model_copy(update={"jobs": (*round_.jobs, round_.jobs[0])})
    with pytest.raises(InputError):
        Solver().solve(twice)
