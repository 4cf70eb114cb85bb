"""Files of made-up rows, and what reading them must say."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from cpalloc.errors import InputError, Issue


def write(path: Path, *lines: str) -> Path:
    """Write lines to a file, gzipped where its name says so."""
    text = "\n".join(lines) + "\n"
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text, encoding="utf-8")
    return path


def issues_of(action: object, *args: object, **kwargs: object) -> tuple[Issue, ...]:
    """What is wrong, where an action must refuse its input."""
    assert callable(action)
    with pytest.raises(InputError) as caught:
        action(*args, **kwargs)
    return caught.value.issues
