"""The naive model is one of the same round: it proves what cpalloc proves, and what it decides breaks no rule."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cpalloc.generate import GeneratorConfig, generate_doc
from cpalloc.models.objectives import OBJECTIVES
from cpalloc.problem.compile import compile_round
from cpalloc.problem.problem import Problem
from cpalloc.schema import parse_round
from cpalloc.solver.values import violations
from reference.brute_force import Chain, Search
from reference.tiny_rounds import tiny_doc

if TYPE_CHECKING:
    from bench.rivals import Outcome

ROOT = Path(__file__).resolve().parent.parent
CHUNKS, ROUNDS = 4, 80


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))


def cut_down(document: dict[str, Any]) -> Problem:
    """A problem whose tiers are those of the naive model, in the order and with the slack of the round."""
    from bench.naive import TIERS

    tiers = [t for t in document["policy"]["tiers"] if (t if isinstance(t, str) else t["name"]) in TIERS]
    policy = {**document["policy"], "tiers": tiers}
    return compile_round(parse_round({**document, "policy": policy})).problem


def values(outcome: Outcome) -> list[int | None]:
    return [reached.value for reached in outcome.tiers]


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_naive_model_proves_what_cpalloc_and_brute_force_prove(chunk: int) -> None:
    from bench.rivals import ask, by_cpalloc, by_highs, by_naive

    telling = 0
    for seed in range(chunk, ROUNDS, CHUNKS):
        problem = cut_down(tiny_doc(seed))
        naive, ours, highs = by_naive(problem), by_cpalloc(problem), by_highs(problem)
        assert all(reached.proved for reached in naive.tiers), seed
        assert all(reached.bound == reached.value for reached in naive.tiers), seed
        chain, least = Chain(Search(problem)), []
        for tier, slack in ask(problem):
            least.append(chain.least(tier.name, 0))
            chain.keep(tier.name, 0, least[-1] + slack)
        assert values(naive) == least, seed
        if all(reached.proved for reached in ours.tiers):
            assert values(ours) == least, seed
        assert values(highs) <= least, seed  # a relaxation, in strict order
        telling += max(least) > 0
    assert telling >= ROUNDS // CHUNKS // 4


@pytest.mark.parametrize(("family", "seed"), [("mixed", 1), ("gang-heavy", 1), ("mixed", 2)])
def test_naive_decisions_of_generated_rounds_break_no_rule(family: str, seed: int) -> None:
    from bench.baselines import cut_down as asked
    from bench.rivals import by_cpalloc, by_naive

    document = asked(generate_doc(GeneratorConfig(nodes=12, seed=seed, family=family, time_limit=60)))
    problem = compile_round(parse_round(document)).problem
    naive, ours = by_naive(problem), by_cpalloc(problem)
    assert naive.decision is not None
    assert violations(problem, naive.decision) == []
    last = naive.tiers[-1]
    assert OBJECTIVES[last.tier].evaluate(problem, naive.decision)[0] == last.value
    assert all(reached.proved for reached in (*naive.tiers, *ours.tiers))
    assert values(naive) == values(ours)


def test_decisions_name_devices_of_one_group() -> None:
    """Two groups of two GPUs that are not next to each other: each replica of two gets one of them whole."""
    from bench.rivals import by_naive

    node = {"name": "n0", "gpu_type": "h100", "gpus": 4, "gpu_groups": [[0, 2], [1, 3]]}
    terms = {"budget": "x", "submitted_at": "2026-11-29T11:00:00Z", "min_runtime": 3600}
    shape = {"replicas": 1, "gpus_per_replica": 2, "same_gpu_group": True}
    document = {
        "schema_version": 1,
        "now": "2026-11-29T12:00:00Z",
        "cluster": {"name": "tiny", "levels": [], "nodes": [node]},
        "budgets": [{"name": "x", "weight": 1, "charged_gpu_seconds": 0, "owed_gpu_seconds": 10**6}],
        "jobs": [{"id": name, **terms, **shape} for name in "ab"],
        "policy": {"tiers": ["starvation", "shortfall", "preemption"], "reservations": 0},
    }
    naive = by_naive(compile_round(parse_round(document)).problem)
    assert naive.decision is not None
    masks = sorted(replica.devices for placed in naive.decision.placement.values() for replica in placed)
    assert masks == [0b0101, 0b1010]


def test_the_table_compares_values_until_an_earlier_tier_differs() -> None:
    from bench.render import report

    def outcome(solver: str, *tiers: tuple[str, int | None, float]) -> dict[str, Any]:
        rows = [{"name": n, "value": v, "bound": v, "proved": v is not None, "seconds": s} for n, v, s in tiers]
        return {"solver": solver, "variables": 5, "total_s": 1 + sum(s for *_, s in tiers), "tiers": rows}

    result = {
        "case": "mixed-16-s1",
        "group": "mixed-16",
        "limit_s": 3,
        "asked": ["starvation", "shortfall", "preemption"],
        "baselines": [
            outcome("cpalloc", ("starvation", 10, 1.0), ("shortfall", 5, 1.0), ("preemption", 100, 2.0)),
            outcome("other", ("starvation", 10, 2.0), ("shortfall", 6, 3.0), ("preemption", 80, 3.0)),
            outcome("lost", ("starvation", None, 3.0)),
        ],
    }
    text = report([result])
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| mixed")]
    assert [(row[1], *row[3:]) for row in rows[:3]] == [
        ("cpalloc", "3 of 3", "1 of 1", "5.00", "5.00"),
        ("other", "3 of 3", "0 of 1", "9.00", "9.00"),
        ("lost", "0 of 3", "0 of 1", "4.00", "4.00"),
    ]
    assert [(row[1], row[3], row[8], row[9]) for row in rows[6:]] == [
        ("other", "starvation", "1.00", "2.0"),
        ("other", "shortfall", "1.20", "3.0"),
        ("other", "preemption", "–", "1.5"),
        ("lost", "starvation", "–", "3.0"),
    ]
    assert "`inversion`" in text
    assert "left out" in text


def test_baselines_are_a_block_of_a_document() -> None:
    from bench.document import plans

    text = "<!-- bench rivals: --baselines --sizes 16 --seeds 1 -->\n<!-- /bench -->"
    assert plans(text)["rivals"].measure == "baselines"
    assert plans(text)["rivals"].orders()[0]["measure"] == "baselines"


def test_a_measured_case_has_every_rival() -> None:
    from bench.baselines import ASKED, measure_baselines
    from bench.cases import smoke

    result = measure_baselines(smoke().with_limit(20))
    assert json.loads(json.dumps(result)) == result
    assert [row["solver"] for row in result["baselines"]] == ["cpalloc", "greedy", "naive CP-SAT", "HiGHS"]
    assert all([tier["name"] for tier in row["tiers"]] == list(ASKED) for row in result["baselines"])


def test_unknown_families_are_refused_by_name() -> None:
    import argparse

    from bench.runner import families

    assert families("mixed,many-budgets") == ("mixed", "many-budgets")
    with pytest.raises(argparse.ArgumentTypeError, match="no family mixd; there are mixed, "):
        families("mixed,mixd")


def test_every_variant_makes_a_round() -> None:
    from bench.cases import VARIANTS, case

    for variant in VARIANTS:
        round_ = parse_round(generate_doc(case(variant, 24, 1).config))
        assert round_.jobs, variant
