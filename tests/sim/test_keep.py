"""Histories on disk come back as they were."""

from __future__ import annotations

import json
import zipfile
from dataclasses import fields, is_dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from cpalloc.sim.config import SimConfig
from cpalloc.sim.history import History
from cpalloc.sim.keep import read_history, write_history
from cpalloc.sim.measures import summary
from cpalloc.sim.policies.fifo import fifo
from cpalloc.sim.simulate import simulate
from sim.chaos import Chaos, random_workload
from sim.traces.files import issues_of
from sim.worlds import world


@pytest.fixture(scope="module")
def history() -> History:
    """One in which everything happens: preemptions, failures, other budgets, jobs of every kind."""
    config = SimConfig(until_s=2_000, sample_interval_s=100, warm_up_s=50, seed=4)
    found = simulate(random_workload(4), Chaos(4), config=config)
    return replace(found, notes=("ünïcode",), interrupted=True)


def equal(one: object, other: object) -> bool:
    if is_dataclass(one) and not isinstance(one, type) and type(one) is type(other):
        return all(equal(getattr(one, f.name), getattr(other, f.name)) for f in fields(one))
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    return type(one) is type(other) and one == other


def test_a_history_comes_back_exactly(history: History, tmp_path: Path) -> None:
    assert len(history.runs.job) > 10
    assert len(history.samples.at_s) > 10
    write_history(history, tmp_path / "h.cph")
    back = read_history(tmp_path / "h.cph")
    assert equal(back, history)
    assert back.workload == history.workload
    assert summary(back) == summary(history)
    assert [path.name for path in tmp_path.iterdir()] == ["h.cph"]


def test_nothing_happened(tmp_path: Path) -> None:
    empty = simulate(world([]), fifo())
    write_history(empty, tmp_path / "h.cph")
    assert equal(read_history(tmp_path / "h.cph"), empty)


def test_the_same_history_gives_the_same_bytes(history: History, tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_history(history, tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_files_that_are_no_history(history: History, tmp_path: Path) -> None:
    path = tmp_path / "h.cph"
    assert issues_of(read_history, path)[0].code == "file"
    path.write_bytes(b"something else")
    assert issues_of(read_history, path)[0].code == "file"
    write_history(history, path)
    path.write_bytes(path.read_bytes()[:-1000])
    assert issues_of(read_history, path)[0].code == "file"


@pytest.mark.parametrize(
    ("member", "content", "code"),
    [
        ("header.json", lambda text: json.dumps({**json.loads(text), "version": 2}).encode(), "version"),
        ("header.json", lambda text: b"[]", "file"),
        ("header.json", lambda text: json.dumps({"version": 1}).encode(), "file"),
        ("runs.job.npy", lambda text: None, "file"),
        ("workload.parquet", lambda text: b"", "file"),
    ],
)
def test_histories_that_cannot_be_read(
    history: History, tmp_path: Path, member: str, content: object, code: str
) -> None:
    write_history(history, tmp_path / "good.cph")
    with zipfile.ZipFile(tmp_path / "good.cph") as good, zipfile.ZipFile(tmp_path / "bad.cph", "w") as bad:
        for name in good.namelist():
            text: bytes | None = good.read(name)
            if name == member:
                text = content(text)  # type: ignore[operator]
            if text is not None:
                bad.writestr(name, text)
    assert issues_of(read_history, tmp_path / "bad.cph")[0].code == code


def test_columns_of_objects_are_refused(history: History, tmp_path: Path) -> None:
    odd = replace(history, finished_s=np.array([None, {}], dtype=object))
    with pytest.raises(ValueError, match="allow_pickle"):
        write_history(odd, tmp_path / "h.cph")
    assert not (tmp_path / "h.cph").exists()
