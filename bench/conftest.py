"""Options of the drivers: which sizes, families and seeds."""

from __future__ import annotations

import os

import pytest

from bench.cases import VARIANTS, Case, case, cases, smoke
from bench.ranges import numbers, words

DEFAULTS = {"sizes": "64,256", "families": "mixed,gang-heavy", "seeds": "1", "time-limit": "20"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Each option has an environment variable: ``BENCH_SIZES`` and so on."""
    group = parser.getgroup("cases")
    for name, default in DEFAULTS.items():
        value = os.environ.get("BENCH_" + name.replace("-", "_").upper(), default)
        group.addoption(f"--bench-{name}", default=value, help=f"by default {default}")
    group.addoption("--bench-smoke", action="store_true", help="the smallest case only, once")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """``--benchmark-only`` is meant: it overrides the ``--benchmark-disable`` of the ordinary suite."""
    if getattr(config.option, "benchmark_only", False):
        config.option.benchmark_enable = True


def chosen(config: pytest.Config) -> list[Case]:
    """Cases the options ask for."""
    if config.getoption("--bench-smoke"):
        return [smoke()]
    options = {name: config.getoption(f"--bench-{name}") for name in DEFAULTS}
    limit = int(options["time-limit"])
    found = list(cases(words(options["families"]), numbers(options["sizes"]), numbers(options["seeds"]), limit))
    extras = [v for v in VARIANTS if v not in words(options["families"])]
    smallest = min(numbers(options["sizes"]))
    return found + [case(variant, smallest, 1, limit) for variant in extras]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrise by case; all phases of a case follow one another and share what was prepared."""
    if "prepared" in metafunc.fixturenames:
        found = chosen(metafunc.config)
        metafunc.parametrize("prepared", found, ids=[c.name for c in found], indirect=True, scope="module")
