"""A simulation on disk, so that it can go on after an interruption."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
from pathlib import Path
from typing import Any

from cpalloc.errors import InputError, Issue
from cpalloc.sim.config import SimConfig
from cpalloc.sim.policies.base import Policy
from cpalloc.sim.simulation import Simulation
from cpalloc.sim.workload import Workload
from cpalloc.version import __version__


class Checkpoint:
    """One file for one simulation: a fingerprint of what is simulated, then its pickled state without the workload."""

    def __init__(self, path: Path, workload: Workload, config: SimConfig, policy: Policy) -> None:
        self._path = path
        self._workload = workload
        asked = repr((__version__, workload, config, policy.name)).encode()
        # A fresh policy is its parameters and nothing else.
        self._fingerprint = hashlib.sha256(asked + pickle.dumps(policy, protocol=pickle.HIGHEST_PROTOCOL)).digest()

    def save(self, simulation: Simulation) -> None:
        """Write the file whole or not at all."""
        buffer = io.BytesIO()
        _Pickler(buffer, self._workload).dump(simulation)
        part = self._path.with_name(f"{self._path.name}.part")
        part.write_bytes(self._fingerprint + buffer.getvalue())
        os.replace(part, self._path)

    def load(self) -> Simulation | None:
        """Read the file; None where there is none.

        Raises
        ------
        InputError
            Code ``checkpoint``, when it is of another simulation or cannot be read.
        """
        if not self._path.exists():
            return None
        content = self._path.read_bytes()
        size = len(self._fingerprint)
        if content[:size] != self._fingerprint:
            message = "is a checkpoint of another workload, configuration, policy or version; remove it to start anew"
            raise InputError([Issue("checkpoint", str(self._path), message)])
        try:
            simulation = _Unpickler(io.BytesIO(content[size:]), self._workload).load()
        except Exception as error:
            message = f"cannot be read ({error}); remove it to start anew"
            raise InputError([Issue("checkpoint", str(self._path), message)]) from error
        if not isinstance(simulation, Simulation):
            raise InputError([Issue("checkpoint", str(self._path), "holds no simulation; remove it to start anew")])
        return simulation

    def remove(self) -> None:
        """Remove the file if there is one."""
        self._path.unlink(missing_ok=True)


class _Pickler(pickle.Pickler):
    """Leaves out the workload, which is large and at hand when the simulation goes on."""

    def __init__(self, file: io.BytesIO, workload: Workload) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._workload = workload

    def persistent_id(self, obj: Any) -> str | None:
        return "workload" if obj is self._workload else None


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, workload: Workload) -> None:
        super().__init__(file)
        self._workload = workload

    def persistent_load(self, _pid: Any) -> Workload:
        return self._workload
