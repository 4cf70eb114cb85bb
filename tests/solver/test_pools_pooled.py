"""Beyond some size starts are no longer told apart by pool: another model, the same answer."""

from __future__ import annotations

import json

import pytest

from cpalloc.engine import solve_round
from cpalloc.generate import GeneratorConfig, generate_doc
from cpalloc.models import variables
from cpalloc.schema import parse_round


def solved(seed: int) -> list[tuple[str, list[tuple[int, bool]]]]:
    doc = generate_doc(GeneratorConfig(nodes=10, seed=seed, family="mixed"))
    doc["options"] = {**doc.get("options", {}), "deterministic": True, "time_limit": 60}
    found = solve_round(parse_round(json.dumps(doc)))
    assert not found.broken
    return [(t.name, [(p.best, p.proved(0)) for p in t.parts]) for t in found.solution.tiers]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_same_tiers_are_reached_whether_pools_are_told_apart_or_not(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    apart = solved(seed)
    monkeypatch.setattr(variables, "MOST_NODES_BY_POOL", 0)
    compared = 0
    for (name, one), (_, other) in zip(apart, solved(seed), strict=True):
        if name == "delay":
            break  # who is blocked depends on which of several equal decisions came before
        for (best, proved), (again, proved_again) in zip(one, other, strict=True):
            if proved and proved_again:
                assert best == again, name
                compared += 1
    assert compared >= 6
