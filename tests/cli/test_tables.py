"""The tables: what they say, and that they fit."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from cpalloc.api.openapi import example
from cpalloc.cli.condense import condense
from cpalloc.cli.context import Context, context_of
from cpalloc.cli.tables import print_allocation, print_report
from cpalloc.schema import CheckReport, parse_allocation
from cpalloc.schema.examples import load


def printed(
    document: dict[str, Any], *, width: int = 120, context: Context | None = None, show_all: bool = False
) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    known = context_of(load("small")) if context is None else context
    print_allocation(console, parse_allocation(document), known, show_all=show_all)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def decision(job: str, action: str, **fields: Any) -> dict[str, Any]:
    return {"job": job, "action": action, **fields}


def waiting(count: int) -> list[dict[str, Any]]:
    reason = {"code": "capacity", "message": "needs [bold]16[/bold] nodes :smile:", "blockers": [], "missing_gpus": 8}
    return [decision(f"w-{i:03}", "wait", position=i, reason=reason) for i in range(count)]


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["n1"], "n1"),
        (["n9", "n10", "n11"], "n[9-11]"),
        (["n001", "n002", "n003", "n005"], "n[001-003,005]"),
        (["n01", "n001"], "n001 n01"),
        (["a1b", "a2b", "a2c"], "a[1-2]b a2c"),
        (["r0/n1", "r0/n2", "r10/n1", "r2/n1"], "r0/n[1-2] r2/n1 r10/n1"),
        (["login", "login"], "login"),
        (["7", "8"], "[7-8]"),
        (["²"], "²"),
    ],
)
def test_names_are_condensed(names: list[str], text: str) -> None:
    assert condense(names) == text


def test_what_is_left_out_is_counted() -> None:
    assert condense([f"r{r}/n{n}" for r in range(5) for n in range(4)], most=2) == "r0/n[0-3] r1/n[0-3] +12"


def test_the_packaged_answer() -> None:
    text = printed(example("allocation"))
    for part in ("occupancy 80.6%: 25 of 31 GPUs", "6 jobs on 4 nodes: 2 start, 2 kept, 1 preempted, 1 wait",
                 "Starts (2)", "pretrain-9", "16 (2×8)", "r0n1 r1n0", "r[0-1]", "16:00",
                 "Preemptions (1, 4.0 GPU-hours lost)", "Waiting (1)", "sweep-2", "claim: needs",
                 "Budgets (GPUs)", "language/pretraining", "Proofs", "fragmentation", "largest gang now"):  # fmt: skip
        assert part in text


@pytest.mark.parametrize("width", [80, 100, 160])
@pytest.mark.parametrize("show_all", [False, True])
def test_no_line_is_wider_than_asked(width: int, show_all: bool) -> None:
    document = {**example("allocation"), "decisions": example("allocation")["decisions"] + waiting(30)}
    document["warnings"] = [{"code": "node_missing", "path": f"jobs[{i}]", "message": "gone " * 30} for i in range(9)]
    lines = printed(document, width=width, show_all=show_all).splitlines()
    assert max(map(len, lines)) <= width
    # a heading that is cut or a row that falls apart would show here
    assert any(line.split()[:3] == ["#", "job", "budget"] for line in lines)
    assert any(line.startswith("language/pretraining") and line.split()[1] == "50.0%" for line in lines)


def test_long_tables_are_cut_and_say_so() -> None:
    document = {**example("allocation"), "decisions": waiting(103)}
    text = printed(document)
    assert "Waiting (103)" in text
    assert "… and 93 more (use --all)" in text
    assert "w-009" in text
    assert "w-010" not in text
    everything = printed(document, show_all=True)
    assert "w-102" in everything
    assert "use --all" not in everything


def test_text_is_never_markup() -> None:
    assert "needs [bold]16[/bold] nodes :smile:" in printed({**example("allocation"), "decisions": waiting(1)})


def test_every_action_without_a_word_of_the_round() -> None:
    where = [{"node": f"n{i:03}", "gpus": 8} for i in range(1, 17)]
    document = {
        **example("allocation"),
        "decisions": [
            decision("a", "start", mode="allocated", placement=where, protected_until="2026-11-30T14:00:00Z"),
            decision("b", "keep", mode="allocated", promoted=True, placement=where[:1],
                     protected_until="2026-11-29T11:00:00Z"),
            decision("c", "preempt", requeue=False, lost_gpu_seconds=0, beneficiaries=[], forced="drain"),
            decision("d", "lost", requeue=True),
            decision("e", "wait"),
        ],
        "reservations": [
            {"job": "e", "domain": {"level": "cluster", "name": "cluster"}, "nodes": ["n001", "n002"],
             "starts_by": "2026-11-29T13:00:00Z"},
            {"job": "f", "domain": {"level": "rack", "name": "r1"}, "nodes": [], "starts_by": "2026-11-29T13:00:00Z",
             "broken": {"code": "node_lost", "message": "n009 is down"}},
        ],
    }  # fmt: skip
    text = printed(document, context=Context())
    for part in ("n[001-016]", "128", "Nov 30 14:00", "no longer", "forced: drain", "Lost", "n[001-002]",
                 "broken (node_lost): n009 is down", "rack r1", "Promoted"):  # fmt: skip
        assert part in text


def test_a_graph_has_no_domains_here() -> None:
    graph = {"cluster": {"name": "x", "graph": {"nodes": [], "edges": []}}, "jobs": []}
    assert context_of(graph) == Context()


def test_domains_are_named_on_a_level_that_is_short() -> None:
    nodes = [{"name": f"n{i}", "domains": {"block": f"b{i // 8}", "rack": f"r{i}"}} for i in range(16)]
    context = context_of({"cluster": {"levels": ["block", "rack"], "nodes": nodes}})
    assert context.domains_of(["n0", "n1"]) == ["r0", "r1"]
    assert context.domains_of([f"n{i}" for i in range(16)]) == ["b0", "b1"]
    assert context.domains_of(["elsewhere"]) == []


def test_a_report() -> None:
    console = Console(file=io.StringIO(), width=100, color_system=None)
    print_report(console, CheckReport.model_validate(example("report")))
    assert isinstance(console.file, io.StringIO)
    assert "no rule is broken" in console.file.getvalue()
    assert "starvation" in console.file.getvalue()
