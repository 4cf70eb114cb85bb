"""What all tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def what_ifs_do_not_stand_back() -> Iterator[None]:
    """Simulations of the service run like anything else: on a busy machine they would wait for the other tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CPALLOC_WHAT_IF_NICENESS", "0")
        yield
