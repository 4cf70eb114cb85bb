"""A history in one file, with the workload it is of, so that it can be measured and drawn later from that file alone.

The file is a zip archive: ``header.json`` (what is not a column), ``workload.parquet`` as
:func:`cpalloc.sim.files.write_workload` writes it, and a ``.npy`` file per column. The workload lies inside: a month of
a lab is some hundred kilobytes, and a history without its jobs says nothing.
"""

from __future__ import annotations

import io
import json
import os
import tempfile
import zipfile
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cpalloc.errors import InputError, Issue
from cpalloc.sim.files import read_saved, write_workload
from cpalloc.sim.history import History, Places, Rounds, Runs, Samples
from cpalloc.sim.workload import Workload

SUFFIX = ".cph"
"""What names of such files end in."""

_VERSION = 1
_PARTS: dict[str, type[Any]] = {"runs": Runs, "places": Places, "rounds": Rounds, "samples": Samples}
_HEADER = "header.json"
_WORKLOAD = "workload.parquet"
_COLUMN = ".npy"


def write_history(history: History, path: Path) -> None:
    """Write a history, whole or not at all; the same history always gives the same bytes."""
    header: dict[str, Any] = {"version": _VERSION}
    columns: dict[str, npt.NDArray[Any]] = {}
    for name in (f.name for f in fields(History) if f.name != "workload"):
        value = getattr(history, name)
        if name in _PARTS:
            columns |= {f"{name}.{f.name}": getattr(value, f.name) for f in fields(value)}
        elif isinstance(value, np.ndarray):
            columns[name] = value
        else:
            header[name] = value
    part = path.with_name(f"{path.name}.part")
    with zipfile.ZipFile(part, "w") as archive:
        _add(archive, _HEADER, json.dumps(header).encode())
        _add(archive, _WORKLOAD, _workload_bytes(history.workload))
        for name, column in columns.items():
            buffer = io.BytesIO()
            np.lib.format.write_array(buffer, column, allow_pickle=False)
            _add(archive, name + _COLUMN, buffer.getvalue())
    os.replace(part, path)


def read_history(path: Path) -> History:
    """Read what :func:`write_history` wrote; the result is equal to what was written, workload and all.

    Raises
    ------
    InputError
        When the file is no history, or of a later version.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            header = json.loads(archive.read(_HEADER))
            version = header.pop("version")
            if version != _VERSION:
                message = f"is a history of version {version}; this cpalloc reads version {_VERSION}"
                raise InputError([Issue("version", str(path), message)])
            given: dict[str, Any] = {
                name: tuple(value) if isinstance(value, list) else value for name, value in header.items()
            }
            columns = _read_columns(archive)
            workload = _workload_of(archive.read(_WORKLOAD))
        for part, kind in _PARTS.items():
            given[part] = kind(**{f.name: columns.pop(f"{part}.{f.name}") for f in fields(kind)})
        return History(workload=workload, **given, **columns)
    except (OSError, KeyError, TypeError, ValueError, AttributeError, EOFError, zipfile.BadZipFile) as error:
        message = f"is no history that cpalloc wrote: {error}"
        raise InputError([Issue("file", str(path), message)]) from None


def _read_columns(archive: zipfile.ZipFile) -> dict[str, Any]:
    columns = {}
    for name in archive.namelist():
        if name.endswith(_COLUMN):
            buffer = io.BytesIO(archive.read(name))
            columns[name.removesuffix(_COLUMN)] = np.lib.format.read_array(buffer, allow_pickle=False)
    return columns


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    # without a date of its own, ZipInfo has one that is always the same
    archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)


def _workload_bytes(workload: Workload) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / _WORKLOAD
        write_workload(workload, path)
        return path.read_bytes()


def _workload_of(content: bytes) -> Workload:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / _WORKLOAD
        path.write_bytes(content)
        return read_saved(path)
