"""Solve a small round from Python: ``python examples/quickstart.py``.

Four nodes in two racks. ``training`` is owed three quarters of the cluster and has had half of that; ``research`` has
had a little more than its quarter and fills every node but half of one, mostly with borrowed work.
"""

from __future__ import annotations

from pathlib import Path

from cpalloc import Allocation, Round, check, parse_round, solve

HERE = Path(__file__).parent


def main() -> None:
    """Read the round, solve it, look at the answer from several sides."""
    # A round is one JSON document: nodes, budgets, jobs, and optionally policy and options. Anything wrong with it as a
    # whole raises InputError, with every issue and not only the first.
    round_ = parse_round((HERE / "small.json").read_bytes())

    # One call. There is always an answer: when time runs out it is the best decision found.
    answer = solve(round_)

    print_decisions(answer)
    print_budgets(answer)
    print_proofs(answer)
    check_it(round_, answer)
    forbid_preemption(round_)


def print_decisions(answer: Allocation) -> None:
    """What happens to every job; exactly one decision each, sorted by job id."""
    print(f"{answer.status} ({answer.stop_reason})")
    for d in answer.decisions:
        where = ", ".join(sorted({place.node for place in d.placement or ()}))
        line = f"  {d.job:9} {d.action:8} {d.mode or '':10} {where}"
        if d.action == "preempt":
            # `lost_gpu_seconds` is work since the last checkpoint; `beneficiaries` are the starts it makes room for.
            line += f"{(d.lost_gpu_seconds or 0) / 3600:.1f} GPU-hours lost, for {', '.join(d.beneficiaries or ())}"
        if d.action == "wait" and d.reason is not None:
            # The code is for programs, the message for the job's owner.
            line += f"{d.reason.code}: {d.reason.message}"
        print(line.rstrip())


def print_budgets(answer: Allocation) -> None:
    """Who is owed what: `ratio` is charged over owed in the window, the lower the better the claim."""
    print("budgets")
    for b in answer.budgets:
        ratio = "infinite" if b.ratio is None else f"{b.ratio:.2f}"
        print(
            f"  {b.name:9} share {b.share:.0%}, ratio {ratio}: "
            f"{b.granted_gpus} of {b.entitled_gpus} entitled GPUs granted, {b.borrowed_gpus} borrowed"
        )


def print_proofs(answer: Allocation) -> None:
    """Tier by tier, most important first: the value reached, and the bound nobody can be below."""
    print("proofs")
    for tier in answer.tiers:
        print(f"  {tier.name:13} value {tier.value}, settled at {tier.best}, proven bound {tier.bound}: {tier.status}")


def check_it(round_: Round, answer: Allocation) -> None:
    """Check an answer, from wherever it came, by code that does not use the solver."""
    # Answers are frozen models; change a copy: move `pretrain` to a node that is taken.
    decisions = {d.job: d for d in answer.decisions}
    start = decisions["pretrain"]
    assert start.placement is not None
    moved = tuple(place.model_copy(update={"node": "r1n0"}) for place in start.placement)
    decisions["pretrain"] = start.model_copy(update={"placement": moved})
    tampered = answer.model_copy(update={"decisions": tuple(decisions.values())})
    print("check")
    print(f"  as answered: {len(check(round_, answer).violations)} rules broken")
    for violation in check(round_, tampered).violations:
        print(f"  tampered: {violation.constraint}: {violation.message}")


def forbid_preemption(round_: Round) -> None:
    """Ask what if: the same round under another policy."""
    policy = round_.policy.model_copy(update={"max_preempted_gpus": 0})
    answer = solve(round_.model_copy(update={"policy": policy}))
    waiting = [d for d in answer.decisions if d.action == "wait"]
    print("without preemptions")
    for d in waiting:
        print(f"  {d.job} waits" + ("" if d.starts_by is None else f", and starts by {d.starts_by:%H:%M}"))


if __name__ == "__main__":
    main()
