"""The benchmarks still run: every phase and a row of the table on the smallest case, nothing timed."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from bench.phases import Prepared

ROOT = Path(__file__).resolve().parent.parent
PHASES = ("parse", "compile", "greedy", "build", "realise", "solve", "check", "explain", "decode", "whole", "http")


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))


@pytest.fixture(scope="module")
def prepared() -> Iterator[Prepared]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT))
        from bench.cases import smoke
        from bench.phases import Prepared
    case = Prepared(smoke())
    yield case
    case.close()


def test_phases_are_those_of_the_registry() -> None:
    from bench.phases import PHASES as REGISTERED

    assert tuple(REGISTERED) == PHASES


@pytest.mark.parametrize("phase", PHASES)
def test_every_phase_runs(prepared: Prepared, phase: str) -> None:
    from bench.phases import PHASES as REGISTERED

    REGISTERED[phase](prepared)


def test_an_answer_over_http_is_the_answer(prepared: Prepared) -> None:
    from bench.phases import http, whole

    direct, served = json.loads(whole(prepared)), json.loads(http(prepared))
    assert served["request_fingerprint"] == direct["request_fingerprint"]
    assert [t["name"] for t in served["tiers"]] == [t["name"] for t in direct["tiers"]]


def test_usual_rounds_are_measured() -> None:
    from bench.usual import Queue, measured, phases_table

    from cpalloc.engine import Solver

    queue = Queue("mixed", 16, 1, limit_s=1, events=4)
    before = queue.document["now"]
    took = list(measured(queue, 2, Solver()))
    assert len(took) == 2
    assert queue.document["now"] > before
    assert phases_table("", took).row_count == len(took[0].phases) + 2


def test_equal_cases_give_equal_rounds() -> None:
    from bench.cases import case
    from bench.phases import Prepared

    assert Prepared(case("mixed", 16, 1)).text == Prepared(case("mixed", 16, 1)).text


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT))
        from bench.cases import smoke
        from bench.measure import measure
    return measure(smoke())


def test_tables_have_a_row_for_every_tier(result: dict[str, Any]) -> None:
    from bench.render import every_tier, report

    names = [tier["name"] for tier in result["tiers"]]
    assert names
    assert all(len(t["value"]) == len(t["greedy"]) for t in result["tiers"])
    text = report([result, result], full=True)
    assert every_tier([result]).count("\n") == len(names) + 2
    assert all(name in text for name in names)
    assert "inf" not in text
    assert "nan" not in text


def test_never_worse_than_the_greedy(result: dict[str, Any]) -> None:
    from bench.render import against_greedy

    assert against_greedy(result) <= 0


@pytest.mark.parametrize(
    ("family", "best", "bound", "total_s", "peak_mb", "verdicts"),
    [
        ("mixed", 105, 100, 31.5, 999, ["met", "no target", "met"]),
        ("mixed", 106, 100, 30.0, 100, ["**missed**", "no target", "met"]),
        ("gang-heavy", 106, 100, 31.6, 100, ["met", "no target", "**missed**"]),
        ("gang-heavy", 0, 0, 30.0, 1000, ["met", "no target", "**missed**"]),
        ("gang-heavy", 1, None, 30.0, 100, ["**missed**", "no target", "met"]),
    ],
)
def test_what_is_asked_of_large_rounds(
    family: str, best: int, bound: int | None, total_s: float, peak_mb: float, verdicts: list[str]
) -> None:
    from bench.targets import _large

    tiers = [{"name": name, "best": best, "bound": bound} for name in ("shortfall", "preemption")]
    result = {"group": f"{family}-10000", "nodes": 10_000, "limit_s": 30, "total_s": total_s, "peak_mb": peak_mb}
    assert [verdict for _, _, verdict in _large([{**result, "tiers": tiers}])] == verdicts
    assert _large([]) == []


def _asked(nodes: int, limit_s: int, at: int = 0) -> Any:
    from bench.musts import MUST

    return [must for must in MUST if (must.nodes, must.limit_s) == (nodes, limit_s)][at]


def _measured(family: str, nodes: int, limit_s: int, **changed: Any) -> dict[str, Any]:
    tier = {"value": [5], "best": 5, "bound": 5, "greedy": [6], "slack": 0, "status": "optimal"}
    names = ("starvation", "shortfall", "preemption")
    tiers = [{**tier, "name": name} | changed.pop(name, {}) for name in names]
    measured = {"group": f"{family}-{nodes}", "nodes": nodes, "limit_s": limit_s, "peak_mb": 999, "tiers": tiers}
    return {**measured, "total_s": 1.0, "parse_s": 0.2, "compile_s": 0.3, "greedy_s": 2.0, **changed}


@pytest.mark.parametrize(
    ("must", "family", "changed", "met"),
    [
        (_asked(64, 20), "mixed", {}, True),
        (_asked(64, 20), "mixed", {"total_s": 1.01}, False),
        (_asked(64, 20), "mixed", {"preemption": {"status": "feasible"}}, False),
        (_asked(256, 20), "mixed", {"total_s": 3.0}, True),
        (_asked(1000, 3), "gang-heavy", {"shortfall": {"best": 100, "bound": 99}}, True),
        (_asked(1000, 3), "gang-heavy", {"shortfall": {"best": 100, "bound": 98}}, False),
        (_asked(1000, 3), "gang-heavy", {"preemption": {"best": 100, "bound": 0}}, True),
        (_asked(1000, 6), "mixed", {"preemption": {"best": 100, "bound": 98}}, False),
        (_asked(1000, 10), "gang-heavy", {"preemption": {"best": 100, "bound": 95}}, True),
        (_asked(1000, 10), "gang-heavy", {"preemption": {"best": 100, "bound": None}}, False),
        (_asked(10_000, 6), "mixed", {"total_s": 6.5}, True),
        (_asked(10_000, 6), "mixed", {"total_s": 6.51}, False),
        (_asked(10_000, 6), "mixed", {"shortfall": {"bound": None}}, False),
        (_asked(10_000, 6), "mixed", {"shortfall": {"best": 7}, "starvation": {"best": 6}}, False),
        (_asked(10_000, 6), "mixed", {"shortfall": {"best": 7}, "starvation": {"best": 5}}, True),
        (_asked(10_000, 6), "mixed", {"starvation": {"best": 7}}, False),
        (_asked(10_000, 6, 1), "mixed", {}, True),
        (_asked(10_000, 6, 1), "mixed", {"greedy_s": 2.01}, False),
        (_asked(10_000, 15), "mixed", {"shortfall": {"best": 100, "bound": 95}}, True),
        (_asked(10_000, 15), "mixed", {"peak_mb": 1000}, False),
        (_asked(10_000, 30), "gang-heavy", {"shortfall": {"best": 100, "bound": 90}}, True),
        (_asked(20_000, 30), "mixed", {"total_s": 31.7}, True),
        (_asked(20_000, 30), "mixed", {"total_s": 31.8}, False),
        (
            _asked(20_000, 30),
            "mixed",
            {"starvation": {"value": [6]}, "shortfall": {"value": [6]}, "preemption": {"value": [6]}},
            False,
        ),
        (_asked(20_000, 30), "mixed", {"preemption": {"bound": None}}, False),
    ],
)
def test_what_is_asked_at_every_size(must: Any, family: str, changed: dict[str, Any], met: bool) -> None:
    result = _measured(family, must.nodes, must.limit_s, **changed)
    assert must.good(result) is met
    assert must.row([result])[2] == ("met so far" if met else "**missed**")
    assert must.row([_measured("other", must.nodes, must.limit_s)])[1:] == ("not measured", "–")


def test_so_many_seeds_of_ten_have_to_meet_it() -> None:
    must = _asked(256, 20)
    good, bad = (_measured("mixed", 256, 20, total_s=total_s) for total_s in (1.0, 4.0))
    assert must.row([good] * 8 + [bad] * 2)[2] == "met so far"
    assert must.row([good] * 7 + [bad] * 3)[2] == "**missed**"
    large = [_measured("gang-heavy", 256, 20)] * 10
    assert must.row([good] * 8 + [bad] * 2 + large)[2] == "met"
    assert must.row([good] * 8 + [bad] + large)[2] == "met so far"
    others = [_measured("gang-heavy", 256, 20, total_s=4.0)]
    asked, figures, verdict = must.row([good, *others])
    assert asked.endswith("8 of ten")
    assert figures.startswith("mixed 1 of 1 (")
    assert "gang-heavy 0 of 1 (" in figures
    assert verdict == "**missed**"


def test_what_was_measured_is_not_measured_again(tmp_path: Path) -> None:
    from bench.musts import measure, orders

    wanted = orders([_asked(10_000, 6), _asked(10_000, 6, 1), _asked(10_000, 15)], (1, 2))
    assert [(o["family"], o["limit_s"], o["seed"]) for o in wanted] == [
        *(("mixed", 6, 1), ("mixed", 6, 2), ("gang-heavy", 6, 1), ("gang-heavy", 6, 2)),
        *(("mixed", 15, 1), ("mixed", 15, 2)),
    ]
    kept = {"{family}-{nodes}-s{seed} at {limit_s} s".format(**order): {"of": order["seed"]} for order in wanted}
    file, ticks = tmp_path / "kept.json", list[str]()
    file.write_text(json.dumps(kept))
    assert [r["of"] for r in measure(wanted, file, ticks.append)] == [1, 2, 1, 2, 1, 2]
    assert ticks == list(kept)


def test_blocks_of_a_document_are_replaced(tmp_path: Path) -> None:
    from bench.document import plans, replaced

    begin, end = "<!-- bench one: --sizes 64 --seeds 1-2 -->\n", "<!-- /bench -->\n"
    text = f"a\n{begin}old\n{end}b\n<!-- bench targets: -->\n{end}<!-- bench musts: -->\n{end}"
    assert list(plans(text)) == ["one"]
    assert plans(text)["one"].sizes == (64,)
    fresh = replaced(text, "one", "new")
    assert "old" not in fresh
    assert replaced(fresh, "one", "new") == fresh
    assert fresh.startswith(f"a\n{begin}\nnew\n\n{end}b\n")


def test_highs_agrees_with_cp_sat_on_the_models_of_a_round() -> None:
    from bench.searches import VARIANTS, Kept, keeping, with_cp_sat, with_highs

    from cpalloc.engine import solve_round
    from cpalloc.generate import GeneratorConfig, generate_doc
    from cpalloc.schema import parse_round

    kept: list[Kept] = []
    for seed in (1, 2, 3):
        document = generate_doc(GeneratorConfig(nodes=12, seed=seed))
        document["options"] = {"deterministic": True, "deterministic_limit": 2}
        with keeping(kept, f"s{seed}", 0.0):
            solve_round(parse_round(json.dumps(document)))
    compared = 0
    for model in kept:
        highs, cp_sat = with_highs(model, 20), with_cp_sat(model, VARIANTS["as it is"], 20)
        if highs.proved and cp_sat.proved:
            compared += 1
            assert highs.value == cp_sat.value, model.label
    assert compared >= 10


def test_rounds_of_a_simulation_are_captured_and_solved_again(tmp_path: Path) -> None:
    from bench import captured

    kept = tmp_path / "rounds.jsonl.xz"
    captured.capture(kept, (1,), 0.03, skip_days=0.0, greedy_days=0.0, keep=4)
    rounds = captured.read(kept)
    assert 4 <= len(rounds) <= 6
    assert captured.solved(rounds).row_count == 10  # the round and nine tiers


def test_rounds_of_public_traces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from bench.public import main

    pods = (
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"
    )
    rows = [f"p{i},1000,1,{1 + i % 2},{1000 if i % 2 else 500},,LS,Running,{i},{9000 + i},{i}" for i in range(40)]
    (tmp_path / "deeper").mkdir()
    for name, lines in {
        "deeper/openb_pod_list_default.csv.gz": [pods, *rows],
        "openb_node_list_gpu_node.csv.gz": [
            "sn,cpu_milli,memory_mib,gpu,model",
            *(f"n{i},1,1,4,P100" for i in range(8)),
        ],
        "jobs_crux.csv": [
            "job_id,arrival_s,gpu_num,duration_s",
            *(f"{i},{60 * i},{(8, 4, 16)[i % 3]},9" for i in range(30)),
        ],
        "topo.csv": ["host,DSW,PSW,ASW", *(f"h{i},G1,P{i // 4},S{i // 2}" for i in range(8))],
    }.items():
        text = ("\n".join(lines) + "\n").encode()
        (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    main(["--data", str(tmp_path), "--limit", "5"])
    out = capsys.readouterr().out
    assert "openb: 8 nodes, 32 GPUs" in out
    assert "lingjun: 8 nodes, 64 GPUs" in out
    assert out.count("shortfall") == 2
