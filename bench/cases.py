"""The cases: a name and the knobs of the generator that make its round."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from cpalloc.generate.config import Family, GeneratorConfig

FAMILIES = tuple(family.value for family in Family)
SIZES = (64, 256, 1000)
"""Nodes."""

SEEDS = (1, 2, 3, 4, 5)

SMOKE_NODES = 16
"""Nodes of the smallest case, for tests that only ask whether everything still runs."""


@dataclass(frozen=True, slots=True)
class Case:
    """A synthetic round; equal cases give equal documents."""

    name: str
    config: GeneratorConfig

    def with_limit(self, time_limit_s: int) -> Case:
        """Make the same round with another time limit (whole seconds, at least 1)."""
        return replace(self, config=replace(self.config, time_limit=time_limit_s))

    @property
    def group(self) -> str:
        """What is summarised together: the name without its seed."""
        return self.name.rpartition("-s")[0]


VARIANTS = {
    **{family: {"family": family} for family in FAMILIES},
    "odd-sizes": {"family": "mixed", "odd_sizes": 0.3},
    "cpu-bound": {"family": "mixed", "cpu_bound": 0.3},
    "many-budgets": {"family": "mixed", "budgets": 60, "capped_budgets": 0.5},
    "three-types": {"family": "mixed", "gpu_types": ("h100", "a100", "b200")},
    "many-racks": {"family": "gang-heavy", "nodes_per_rack": 4, "racks_per_block": 4, "required_topology": 0.9},
    "lending": {"family": "mixed", "borrowed": 0.6, "any_funding": 0.5, "promoted": 0.3},
    "failing": {"family": "mixed", "draining": 0.08, "down": 0.05, "unhealthy": 0.03},
}
"""Knobs of every kind of case. One more line here is one more family for tables and drivers."""


def case(variant: str, nodes: int, seed: int, time_limit_s: int = 20) -> Case:
    """Look a case up, whatever its size and seed.

    Raises
    ------
    KeyError
        When there is no such variant.
    """
    config = GeneratorConfig(nodes=nodes, seed=seed, time_limit=time_limit_s, **VARIANTS[variant])  # type: ignore[arg-type]
    return Case(f"{variant}-{nodes}-s{seed}", config)


def cases(
    variants: Iterable[str] = FAMILIES,
    sizes: Iterable[int] = SIZES,
    seeds: Iterable[int] = SEEDS,
    time_limit_s: int = 20,
) -> Iterator[Case]:
    """Every combination, smallest first."""
    variants, seeds = tuple(variants), tuple(seeds)
    for nodes in sizes:
        for variant in variants:
            for seed in seeds:
                yield case(variant, nodes, seed, time_limit_s)


def smoke() -> Case:
    """Make the smallest case."""
    return case("mixed", SMOKE_NODES, 1, time_limit_s=1)
