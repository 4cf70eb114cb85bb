"""Growth curves from made-up measurements: what is drawn, and that the drawing stands alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))


def result(family: str, nodes: int, seed: int, total_s: float, shortfall_s: float = 0.1) -> dict[str, Any]:
    taken = {"starvation": 0.0, "shortfall": shortfall_s, "inversion": 0.2, "preemption": total_s / 2}
    return {
        "case": f"{family}-{nodes}-s{seed}",
        "group": f"{family}-{nodes}",
        "nodes": nodes,
        "limit_s": 20,
        "total_s": total_s,
        "compile_s": nodes / 10_000,
        "greedy_s": nodes / 20_000,
        "peak_mb": 150 + nodes / 10,
        "tiers": [{"name": name, "seconds": seconds} for name, seconds in taken.items()],
    }


RESULTS = [
    result(family, nodes, seed, nodes / 100 * seed)
    for nodes in (64, 128, 1000)
    for family in ("mixed", "gang-heavy")
    for seed in (1, 2, 3)
]


def test_curves_are_medians_over_the_seeds() -> None:
    from bench.growth import LINES, MEMORY, curves

    found = curves(RESULTS)
    assert list(found) == ["mixed", "gang-heavy"]
    assert list(found["mixed"]) == [*LINES, MEMORY]
    assert found["mixed"]["total"] == {64: 1.28, 128: 2.56, 1000: 20.0}
    assert found["gang-heavy"]["preemption"][128] == 1.28
    assert found["mixed"][MEMORY][1000] == 250


def test_the_drawing_names_every_line_and_brings_its_own_ground() -> None:
    from bench.growth import LINES, curves, draw

    svg = draw(curves(RESULTS), 20)
    root = ElementTree.fromstring(svg)
    texts = {"".join(element.itertext()) for element in root.iter() if element.tag.endswith("text")}
    assert {*LINES, "mixed", "gang-heavy", "limit 20 s", "nodes"} <= texts
    ground = next(element for element in root if element.tag.endswith("rect"))
    assert ground.attrib["fill"] == "#FFFFFF"
    assert ground.attrib["width"] == root.attrib["width"]
    assert "1,000 nodes: 20.0 s" in root.attrib["aria-label"]
    assert "NaN" not in svg


def test_one_size_and_no_time_at_all_can_be_drawn() -> None:
    from bench.growth import curves, draw

    assert "<svg" in draw(curves([result("mixed", 64, 1, 0.5, shortfall_s=0.0)]), 5)


def test_kept_results_are_drawn_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import json

    from bench.growth import main

    kept, drawn = tmp_path / "growth.json", tmp_path / "growth.svg"
    kept.write_text(json.dumps(RESULTS))
    main(["--from", str(kept), "--svg", str(drawn)])
    assert drawn.read_text().startswith("<svg")
    assert "gang-heavy" in capsys.readouterr().out
