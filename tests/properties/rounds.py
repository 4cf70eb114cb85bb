"""Rounds for the properties: synthetic ones of a few nodes in every family, and the tiny nasty ones."""

from __future__ import annotations

import copy
from random import Random
from typing import Any

from hypothesis import strategies as st

from cpalloc.generate import GeneratorConfig, generate_doc
from cpalloc.schema import Allocation
from reference.tiny_rounds import tiny_doc

Doc = dict[str, Any]


@st.composite
def synthetic(draw: st.DrawFn) -> Doc:
    """A generated round of 4-16 nodes."""
    config = GeneratorConfig(
        nodes=draw(st.integers(4, 16)),
        seed=draw(st.integers(0, 10_000)),
        family=draw(st.sampled_from(["mixed", "gang-heavy"])),
        nodes_per_rack=draw(st.sampled_from([2, 4])),
        racks_per_block=2,
        budgets=draw(st.integers(1, 6)),
        demand=draw(st.sampled_from([0.8, 1.5, 2.5])),
        fill=draw(st.sampled_from([0.5, 0.8, 0.95])),
        odd_sizes=draw(st.sampled_from([0.0, 0.3])),
        cpu_bound=draw(st.sampled_from([0.0, 0.3])),
        draining=draw(st.sampled_from([0.01, 0.1])),
        unhealthy=draw(st.sampled_from([0.002, 0.05])),
        time_limit=20,
    )
    return with_one_worker(generate_doc(config))


@st.composite
def tiny(draw: st.DrawFn) -> Doc:
    """A tiny round, with reservations."""
    return tiny_doc(draw(st.integers(0, 100_000)), reservations=draw(st.booleans()))


def any_round() -> st.SearchStrategy[Doc]:
    """Either kind."""
    return st.one_of(tiny(), tiny(), synthetic())


def with_one_worker(doc: Doc) -> Doc:
    """The same round, solved by one worker."""
    return {**doc, "options": {**doc.get("options", {}), "workers": 1}}


def deterministic(doc: Doc, limit: int = 20) -> Doc:
    """The same round with repeatable bytes asked for."""
    return {**doc, "options": {**doc["options"], "deterministic": True, "deterministic_limit": limit}}


def shuffled(doc: Doc, seed: int) -> Doc:
    """The same round with its lists in another order, but for placements: kept jobs are answered as they were asked."""
    rng, out = Random(seed), copy.deepcopy(doc)
    for rows in (out["cluster"]["nodes"], out["budgets"], out["jobs"], *_inner_lists(out)):
        rng.shuffle(rows)
    return out


def _inner_lists(doc: Doc) -> list[list[Any]]:
    rows = [n[key] for n in doc["cluster"]["nodes"] for key in ("unhealthy_gpus", "gpu_groups") if n.get(key)]
    for job in doc["jobs"]:
        rows += [job[key] for key in ("gpu_types", "exclude_nodes") if job.get(key)]
    return rows


def renamed(doc: Doc) -> Doc:
    """The same round under names that sort alike."""
    out = copy.deepcopy(doc)
    for node in out["cluster"]["nodes"]:
        node["name"] = f"node-{node['name']}-x"
    for budget in out["budgets"]:
        budget["name"] = f"b.{budget['name']}"
        if budget.get("parent") is not None:
            budget["parent"] = f"b.{budget['parent']}"
    for job in out["jobs"]:
        job["id"], job["budget"] = f"job:{job['id']}", f"b.{job['budget']}"
        job["exclude_nodes"] = [f"node-{n}-x" for n in job.get("exclude_nodes", ())]
        for place in job.get("running", {}).get("placement", ()):
            place["node"] = f"node-{place['node']}-x"
    for row in out.get("previous", {}).get("reservations", ()):
        row["job"], row["nodes"] = f"job:{row['job']}", [f"node-{n}-x" for n in row["nodes"]]
    return out


def applied(doc: Doc, answer: Allocation) -> Doc:
    """The round after an answer was carried out at the same instant; what ends is on its way out."""
    out, by = copy.deepcopy(doc), {d.job: d for d in answer.decisions}
    jobs = []
    for job in out["jobs"]:
        decision = by[job["id"]]
        if decision.action == "start":
            places = [p.model_dump(mode="json") for p in decision.placement or ()]
            times = {"started_at": out["now"], "placed_at": out["now"]}
            job["running"] = {"mode": str(decision.mode), "placement": places, **times}
            if decision.mode == "allocated":
                job["running"]["allocated_since"] = out["now"]
        elif decision.action in ("preempt", "lost"):
            job["running"]["stopping"] = True
        elif decision.promoted:
            job["running"] |= {"mode": "allocated", "allocated_since": out["now"]}
        jobs.append(job)
    out["jobs"] = jobs
    out["previous"] = {"reservations": [r.model_dump(mode="json") for r in answer.reservations]}
    return out
