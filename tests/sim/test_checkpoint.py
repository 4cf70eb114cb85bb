"""A simulation that is stopped and taken up again is the one that was never stopped."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from cpalloc.errors import InputError
from cpalloc.sim.config import Progress, SimConfig
from cpalloc.sim.policies.base import Moves, News, Policy
from cpalloc.sim.policies.best_fit import BestFit
from cpalloc.sim.policies.consolidate import Consolidate
from cpalloc.sim.policies.fifo import by_submission, fifo
from cpalloc.sim.policies.priority import Priority
from cpalloc.sim.policies.queues import QueuePolicy
from cpalloc.sim.policies.srtf import Srtf
from cpalloc.sim.simulate import simulate
from cpalloc.sim.state import State
from cpalloc.sim.workload import Workload
from sim.chaos import Chaos, random_workload
from sim.worlds import job, same, world


class StopsAfter(threading.Event):
    """An event that is set once it has been looked at so often."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self._looks = looks

    def is_set(self) -> bool:
        self._looks -= 1
        return self._looks < 0


@pytest.mark.parametrize("make", [lambda: fifo(partitioned=True), Srtf, Priority, lambda: Chaos(3)])
def test_stopped_again_and_again_it_comes_to_the_same(make: type[Policy], tmp_path: Path) -> None:
    w = random_workload(5)
    config = SimConfig(heartbeat_s=200, sample_interval_s=500)
    whole = simulate(w, make(), config=config)
    path = tmp_path / "sim.pickle"
    pieces, piece = 0, None
    while piece is None or piece.interrupted:
        piece = simulate(w, make(), config=config, checkpoint=path, resume=True, cancel=StopsAfter(7))
        pieces += 1
    assert pieces > 5
    assert same(piece, whole)
    assert not path.exists()


def test_an_interrupted_history_ends_where_it_was_stopped(tmp_path: Path) -> None:
    w = world([job("j", 0, 8, 100), job("k", 50, 8, 100)])
    h = simulate(w, fifo(), cancel=StopsAfter(2), checkpoint=tmp_path / "c")
    assert (h.interrupted, h.end_s) == (True, 50)
    assert h.runs.end_s.tolist() == [50]
    assert (tmp_path / "c").exists()


def test_a_checkpoint_is_written_now_and_then_and_leaves_the_workload_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cpalloc.sim.simulate.REPORT_EVERY_S", -1.0)
    w = world([job(f"j{i:04}", i, 8, 1) for i in range(2_000)])
    path = tmp_path / "c"
    seen: list[bytes] = []

    def look(_: Progress) -> None:
        seen.append(path.read_bytes() if path.exists() else b"")

    simulate(w, fifo(), cancel=StopsAfter(3), checkpoint=path, checkpoint_every_s=0, progress=look)
    assert seen[0] == b""
    assert len(seen[1]) > 0
    assert b"j0001" not in seen[1]
    assert [p.name for p in tmp_path.iterdir()] == ["c"]


def test_another_simulation_does_not_go_on_from_it(tmp_path: Path) -> None:
    path = tmp_path / "c"
    w = world([job("j", 0, 8, 100), job("k", 50, 8, 100)])
    simulate(w, fifo(), cancel=StopsAfter(1), checkpoint=path)
    others: list[tuple[Workload, Policy, SimConfig]] = [
        (world([job("j", 0, 8, 101), job("k", 50, 8, 100)]), fifo(), SimConfig()),
        (w, fifo(name="other"), SimConfig()),
        (w, fifo(BestFit()), SimConfig()),
        (w, fifo(), SimConfig(seed=1)),
    ]
    for workload, policy, config in others:
        with pytest.raises(InputError, match="another workload"):
            simulate(workload, policy, config=config, checkpoint=path, resume=True)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(InputError, match="cannot be read"):
        simulate(w, fifo(), checkpoint=path, resume=True)


def test_without_resume_a_simulation_starts_anew(tmp_path: Path) -> None:
    w = world([job("j", 0, 8, 100), job("k", 50, 8, 100)])
    simulate(w, fifo(), cancel=StopsAfter(1), checkpoint=tmp_path / "c")
    assert same(simulate(w, fifo(), checkpoint=tmp_path / "c"), simulate(w, fifo()))


class PressesCtrlC(QueuePolicy):
    """FIFO in whose third round somebody presses Ctrl-C."""

    rounds = 0

    def decide(self, state: State, news: News) -> Moves:
        self.rounds += 1
        if self.rounds == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return super().decide(state, news)


def presses() -> QueuePolicy:
    return PressesCtrlC("fifo", by_submission, Consolidate())


def test_ctrl_c_stops_after_the_round_and_keeps_the_simulation(tmp_path: Path) -> None:
    w = world([job(f"j{i}", i, 8, 5) for i in range(20)])
    before = signal.getsignal(signal.SIGINT)
    h = simulate(w, presses(), checkpoint=tmp_path / "c")
    assert h.interrupted
    assert len(h.rounds.at_s) == 3
    assert signal.getsignal(signal.SIGINT) is before
    assert same(simulate(w, presses(), checkpoint=tmp_path / "c", resume=True), simulate(w, fifo()))


def test_ctrl_c_is_left_alone_without_a_checkpoint() -> None:
    with pytest.raises(KeyboardInterrupt):
        simulate(world([job(f"j{i}", i, 8, 5) for i in range(20)]), presses())
