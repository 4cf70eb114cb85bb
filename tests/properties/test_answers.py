"""What every answer must be, whatever the round."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import cpalloc
from cpalloc.schema import Allocation, parse_round
from properties.rounds import Doc, any_round, applied, deterministic, renamed, shuffled, synthetic, tiny

bounded = settings(
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


def solve(doc: Doc) -> Allocation:
    return cpalloc.solve(parse_round(doc))


def values(answer: Allocation, *, without: tuple[str, ...] = ()) -> dict[str, Any]:
    return {t.name: (t.value, [p.value for p in t.parts]) for t in answer.tiers if t.name not in without}


@settings(bounded, max_examples=60)
@given(any_round())
def test_answers_pass_the_guard_and_the_check(doc: Doc) -> None:
    round_ = parse_round(doc)
    answer = cpalloc.solve(round_)
    assert answer.stop_reason != "guard_failed"
    report = cpalloc.check(round_, answer)
    assert report.violations == ()
    told = {t.name: t.value for t in answer.tiers if t.name != "delay"}
    assert {t.name: t.value for t in report.tiers if t.name in told} == told


@settings(bounded, max_examples=25)
@given(any_round(), st.integers(0, 1000))
def test_the_order_of_lists_changes_nothing(doc: Doc, seed: int) -> None:
    doc = deterministic(doc)
    one, other = solve(doc), solve(shuffled(doc, seed))
    skip = {"request_fingerprint", "warnings"}
    assert one.model_dump_json(exclude=skip) == other.model_dump_json(exclude=skip)


@settings(bounded, max_examples=25)
@given(any_round())
def test_names_change_no_value(doc: Doc) -> None:
    assume(all(r["domain"]["level"] != "node" for r in doc.get("previous", {}).get("reservations", ())))
    one, other = solve(doc), solve(renamed(doc))
    assume(one.status == other.status == "optimal")
    assert values(one) == values(other)


def settled(doc: Doc) -> Doc:
    """The round without what makes the next one differ on purpose: a bound on preemptions a round, odd orders of tiers,
    promises that were made up."""
    policy = {k: v for k, v in doc.get("policy", {}).items() if k not in ("max_preempted_gpus", "tiers")}
    return {**doc, "policy": policy, "previous": {"reservations": []}}


@settings(bounded, max_examples=60)
@given(st.one_of(tiny(), tiny(), synthetic()))
def test_an_answer_applied_is_at_rest(doc: Doc) -> None:
    doc = settled(doc)
    answer = solve(doc)
    assume(answer.status == "optimal")
    again = solve(applied(doc, answer))
    stopping = {d.job for d in answer.decisions if d.action in ("preempt", "lost")}
    moved = {(d.job, str(d.action)) for d in again.decisions if d.action in ("start", "preempt")}
    assert {(job, action) for job, action in moved if not (action == "preempt" and job in stopping)} == set()
