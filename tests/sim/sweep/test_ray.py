"""Sweeps over a real Ray on this machine."""

from __future__ import annotations

import sys
import threading
from importlib.util import find_spec
from pathlib import Path

import pytest

from cpalloc.sim.sweep import RayEngine, sweep
from sim.sweep.labs import Seen, Serial, longer, same_histories, tasks_in, timeless
from sim.traces.files import issues_of


@pytest.mark.skipif(find_spec("ray") is None, reason="needs the extra: pip install 'cpalloc[ray]'")
def test_ray_comes_to_the_same_as_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One Ray for all, as starting it takes seconds: results, a failure, stopping, and going on."""
    import ray

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    changes = ({"name": "own nodes", "policy": "partition"}, {"name": "no such team", "weights": {"nobody": 1}})
    serial, cluster = (tasks_in(tmp_path / name, *changes) for name in ("serial", "ray"))
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        engine = RayEngine()
        seen = Seen()
        one, other = sweep(serial, Serial()), sweep(cluster, engine, watch=seen)
        assert timeless(one) == timeless(other)
        assert [(t.label, o.issues) for t, o in sorted(other.failed, key=lambda f: f[0].seed)] == [
            (t.label, o.issues) for t, o in one.failed
        ]
        good = [i for i, task in enumerate(serial) if task.scenario.name != "no such team"]
        assert same_histories([serial[i] for i in good], [cluster[i] for i in good])
        assert sorted(seen.endings.values()) == ["failed", "failed", *["finished"] * 4]

        stop = threading.Event()
        long = tasks_in(tmp_path / "long", seeds="1-3", lab=longer(tmp_path, 40), until="40d")
        stopped = sweep(long, engine, watch=Seen(lambda _, fraction: stop.set() if fraction > 0 else None), cancel=stop)
        assert (stopped.interrupted, stopped.failed) == (True, ())
        assert any(task.checkpoint_path.exists() for task in long)
        assert ray.is_initialized()  # it is not the engine's to end
    finally:
        ray.shutdown()


def test_without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    (issue,) = issues_of(RayEngine)
    assert (issue.code, "pip install 'cpalloc[ray]'" in issue.message) == ("extra", True)
