"""What traces lack, filled in by a stated, seeded recipe: estimates, minimum runtimes, checkpoints, funding, topology.

No public trace says how short a run would still have been useful, or whether a job could resume. A recipe makes that
up, says so in the workload's notes, and leaves alone whatever the trace itself knows.

A recipe may use what a user knew when submitting: the size of the job, and an expectation of how long it takes. The
trace has only how long it took in the end, so the expectation is made from that with noise, and for a share of the jobs
(``surprised``) from another job of about the same size: those that fail after a minute were meant to run longer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import ConfigDict, TypeAdapter, ValidationError

from cpalloc.errors import InputError, Issue
from cpalloc.schema import Budget, Cluster, Node
from cpalloc.schema._translate import issues_of
from cpalloc.schema.types import Funding, JobKind
from cpalloc.sim.lab.streams import IntArray, draw_from, stream
from cpalloc.sim.traces.base import Trace, team_weights
from cpalloc.sim.workload import WorkJob, Workload

BoolArray = npt.NDArray[np.bool_]

_MIN_RUNTIMES_S = (300, 600, 900, 1_800, 3_600, 7_200, 14_400, 28_800)
"""What people type: 5 minutes to 8 hours."""

_SHARES_BY = ("equal", "nodes", "work")

_SAYS = {
    "budget": "made-up teams, jobs given to them at random",
    "min_runtime_s": "a part of what the user expects, rounded up to what people type",
    "timeout_s": "what the user expects, for a share of the jobs",
    "kind": "a share of the small jobs is interactive",
    "funding": "a share is borrowed, a share may be either",
    "resumable": "a share of the batch jobs, larger for several nodes",
    "checkpoint_interval_s": "drawn from a few usual ones",
    "restart_cost_s": "a fixed part and one per node",
    "preferred_level": "a share of the jobs on several nodes prefers one domain of the finest level",
    "inflates": "a share, for the policy `priority` only",
    "wants_opt_out": "a share, for the policy `priority` only",
}
"""What the notes say of each field that was filled in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Parameters of a recipe; shares are probabilities per job unless said otherwise.

    Parameters
    ----------
    surprised : float
        Jobs whose user expected the duration of another job of about the same size (the same power of two of GPUs).
    over_median, over_sigma : float
        The expectation is multiplied by a log-normal factor of this median and standard deviation, never below 1:
        people ask for more than they need.
    timeout_share : float
        Jobs that state a timeout: their estimate, or what they really ran where that was longer (nothing cut them off).
    useful_part : tuple of float
        ``min_runtime`` is this part (uniform between both) of the estimate, rounded up to 5, 10, 15, 30 minutes, 1, 2,
        4 or 8 hours.
    debug_estimate_s, debug_gpus : int
        Jobs of at most this estimate and size are debug jobs: ``min_runtime`` of at most 15 minutes. All others have
        at least 30.
    max_min_runtime_s : int
        Longest ``min_runtime``, seconds.
    interactive_share, interactive_gpus, interactive_estimate_s
        Of the other jobs of at most so many GPUs and so long an estimate, this share is interactive.
    borrowed_share : float
        Batch jobs with funding ``borrowed`` (and no ``min_runtime``): sweeps.
    any_share : float
        Of the batch jobs that are not borrowed, those with funding ``any``.
    resumable_single, resumable_multi : float
        Batch jobs on one node, or several, that can resume; interactive and debug jobs cannot.
    checkpoint_s : mapping of int to float
        Weights of checkpoint intervals, seconds.
    restart_s, restart_per_node_s, max_restart_s : int
        Cost of a restart, seconds: a fixed part and one per node.
    prefers_domain : float
        Jobs on several nodes that prefer one domain of the finest level (the rack, where the topology is made up).
    inflates, opts_out : float
        Behaviour under the policy ``priority``.
    budgets : str
        What shares follow: ``nodes`` (each team's nodes; its GPU time where they are not known), ``work`` (its GPU
        time), or ``equal``.
    teams : int
        Where the trace has no teams: so many are made up, and jobs given to them at random, the k-th team getting a
        part proportional to 1/k.
    nodes_per_rack, racks_per_block : int
        Topology where the trace has none: nodes in the order they are listed.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    name: str = "default"
    surprised: float = 0.35
    over_median: float = 2.0
    over_sigma: float = 0.7
    timeout_share: float = 0.5
    useful_part: tuple[float, float] = (0.1, 0.5)
    debug_estimate_s: int = 1_800
    debug_gpus: int = 8
    max_min_runtime_s: int = 28_800
    interactive_share: float = 0.1
    interactive_gpus: int = 2
    interactive_estimate_s: int = 43_200
    borrowed_share: float = 0.2
    any_share: float = 0.3
    resumable_single: float = 0.6
    resumable_multi: float = 0.9
    checkpoint_s: Mapping[int, float] = field(default_factory=lambda: {900: 1.0, 1_800: 2.0, 3_600: 1.0})
    restart_s: int = 60
    restart_per_node_s: int = 15
    max_restart_s: int = 900
    prefers_domain: float = 0.7
    inflates: float = 0.4
    opts_out: float = 0.3
    budgets: str = "nodes"
    teams: int = 8
    nodes_per_rack: int = 8
    racks_per_block: int = 4

    def __post_init__(self) -> None:
        issues = [
            Issue("range", f"recipe.{name}", f"{value} must be between 0 and 1")
            for name, value in asdict(self).items()
            if isinstance(value, float) and name not in ("over_median", "over_sigma") and not 0 <= value <= 1
        ]
        if self.budgets not in _SHARES_BY:
            message = f"`{self.budgets}` must be one of {', '.join(_SHARES_BY)}"
            issues.append(Issue("enum", "recipe.budgets", message))
        low, high = self.useful_part
        if not 0 <= low <= high <= 1:
            issues.append(Issue("range", "recipe.useful_part", "must be two numbers between 0 and 1, the lower first"))
        for name in ("teams", "nodes_per_rack", "racks_per_block"):
            if getattr(self, name) < 1:
                issues.append(Issue("range", f"recipe.{name}", "must be at least 1"))
        if issues:
            raise InputError(issues)


def recipe_of(document: Mapping[str, Any]) -> Recipe:
    """Read a recipe from a mapping, e.g. a table of a TOML file; what is absent has its default.

    Raises
    ------
    InputError
        Unknown keys and bad values, each naming the key.
    """
    given = {**document}
    if isinstance(given.get("checkpoint_s"), Mapping):  # keys are text in TOML and JSON
        given["checkpoint_s"] = {_whole(key): value for key, value in given["checkpoint_s"].items()}
    try:
        return TypeAdapter(Recipe).validate_python(given)
    except ValidationError as error:
        raise InputError(issues_of(error, given, "recipe")) from None


def _whole(key: object) -> object:
    return int(key) if isinstance(key, str) and key.isdigit() else key


def apply(recipe: Recipe, trace: Trace, seed: int) -> Workload:
    """Fill in what a trace lacks.

    Returns
    -------
    Workload
        Its notes name every field that was filled in, the recipe and the seed; each field has a random stream of its
        own, so that what one trace knows does not change what another part of it gets.
    """
    base = trace.as_workload()
    columns = _columns(recipe, trace, seed)
    filled = {name: values for name, values in columns.items() if name not in trace.known}
    rows = zip(*filled.values(), strict=True) if filled else [()] * len(trace.jobs)
    jobs = [replace(job, **dict(zip(filled, row, strict=True))) for job, row in zip(trace.jobs, rows, strict=True)]
    done = replace(trace, jobs=tuple(_consistent(job) for job in jobs))
    notes = [f"{name}: {_SAYS[name]}; by recipe {recipe.name}, seed {seed}" for name in filled]
    budgets, budget_note = _budgets(recipe, done)
    cluster, cluster_notes = _topology(recipe, base.cluster)
    return replace(
        base,
        jobs=done.jobs,
        budgets=budgets,
        cluster=cluster,
        notes=(*base.notes, *notes, budget_note, *cluster_notes),
    )


def estimates_s(recipe: Recipe, trace: Trace, seed: int) -> IntArray:
    """What the users expect their jobs to take, seconds: their timeouts where the trace has them, else made up."""
    work = np.array([job.work_s for job in trace.jobs], dtype=np.int64)
    size = np.array([job.size.bit_length() for job in trace.jobs])
    rng = stream(seed, "estimate")
    expected = work.copy()
    for group in np.unique(size):
        members = np.flatnonzero(size == group)
        others = work[rng.choice(members, size=len(members))]
        expected[members] = np.where(rng.random(len(members)) < recipe.surprised, others, work[members])
    factor = recipe.over_median * np.exp(recipe.over_sigma * rng.standard_normal(len(work)))
    made_up = np.maximum(300, _rounded_up(np.ceil(expected * np.maximum(1.0, factor)).astype(np.int64)))
    if "timeout_s" not in trace.known:
        return made_up
    stated = np.array([job.timeout_s for job in trace.jobs], dtype=np.int64)
    return np.where(stated >= 0, stated, made_up)


def _columns(recipe: Recipe, trace: Trace, seed: int) -> dict[str, list[object]]:
    """All fields a recipe can fill in, one value a job."""
    count = len(trace.jobs)
    gpus = np.array([job.size for job in trace.jobs], dtype=np.int64)
    nodes = np.array([job.replicas for job in trace.jobs], dtype=np.int64)
    work = np.array([job.work_s for job in trace.jobs], dtype=np.int64)
    estimate = estimates_s(recipe, trace, seed)

    def happens(name: str, share: float | npt.NDArray[np.float64]) -> BoolArray:
        hit: BoolArray = stream(seed, name).random(count) < share
        return hit

    debug = (gpus <= recipe.debug_gpus) & (estimate <= recipe.debug_estimate_s)
    short = (gpus <= recipe.interactive_gpus) & (estimate <= recipe.interactive_estimate_s)
    interactive = happens("interactive", recipe.interactive_share) & short & ~debug
    if "kind" in trace.known:
        interactive = np.array([job.kind is JobKind.INTERACTIVE for job in trace.jobs])
    batch = ~debug & ~interactive
    borrowed = happens("borrowed", recipe.borrowed_share) & batch
    wants_any = happens("any", recipe.any_share) & batch & ~borrowed
    resumable = happens("resumable", np.where(nodes > 1, recipe.resumable_multi, recipe.resumable_single)) & batch
    restart = np.minimum(recipe.max_restart_s, recipe.restart_s + recipe.restart_per_node_s * nodes)
    intervals = draw_from(stream(seed, "checkpoint"), recipe.checkpoint_s, count)
    timeout = np.where(happens("timeout", recipe.timeout_share), np.maximum(estimate, _rounded_up(work)), -1)
    finest = trace.facts.levels[-1] if trace.facts.levels else "rack"
    return {
        "budget": _made_up_teams(recipe, count, seed),
        "min_runtime_s": np.where(borrowed, 0, _min_runtime_s(recipe, debug, estimate, seed)).tolist(),
        "timeout_s": timeout.tolist(),
        "kind": [JobKind.INTERACTIVE if i else JobKind.BATCH for i in interactive],
        "funding": [
            Funding.BORROWED if b else Funding.ANY if a else None for b, a in zip(borrowed, wants_any, strict=True)
        ],
        "resumable": resumable.tolist(),
        "checkpoint_interval_s": list(intervals),
        "restart_cost_s": restart.tolist(),
        "preferred_level": [finest if p else None for p in happens("domain", recipe.prefers_domain) & (nodes > 1)],
        "inflates": happens("inflates", recipe.inflates).tolist(),
        "wants_opt_out": happens("opts out", recipe.opts_out).tolist(),
    }


def _min_runtime_s(recipe: Recipe, debug: BoolArray, estimate: IntArray, seed: int) -> IntArray:
    part = stream(seed, "useful part").uniform(*recipe.useful_part, size=len(estimate))
    steps = np.array(_MIN_RUNTIMES_S)
    at = np.minimum(np.searchsorted(steps, np.ceil(estimate * part)), len(steps) - 1)
    rounded = np.where(debug, np.minimum(steps[at], 900), np.maximum(steps[at], 1_800))
    limited: IntArray = np.minimum(rounded, recipe.max_min_runtime_s)
    return limited


def _rounded_up(seconds: IntArray) -> IntArray:
    """To five minutes, above an hour to hours."""
    step = np.where(seconds > 3_600, 3_600, 300)
    rounded: IntArray = -(-seconds // step) * step
    return rounded


def _consistent(job: WorkJob) -> WorkJob:
    """What does not resume has neither checkpoints nor a cost of restarting."""
    return job if job.resumable else replace(job, checkpoint_interval_s=0, restart_cost_s=0)


def _made_up_teams(recipe: Recipe, count: int, seed: int) -> list[object]:
    parts = {f"team{k:02}": 1 / k for k in range(1, recipe.teams + 1)}
    return [*draw_from(stream(seed, "teams"), parts, count)]


def _budgets(recipe: Recipe, trace: Trace) -> tuple[tuple[Budget, ...], str]:
    """One leaf a team."""
    by_nodes = recipe.budgets == "nodes" and bool(trace.facts.team_nodes)
    facts = trace.facts if by_nodes else replace(trace.facts, team_nodes={})
    weights = team_weights(replace(trace, facts=facts))
    if recipe.budgets == "equal":
        weights = dict.fromkeys(weights, 1)
        return tuple(Budget(name=n, weight=w) for n, w in weights.items()), "budgets: equal shares of the teams"
    what = "nodes" if by_nodes else "GPU time in the trace"
    return tuple(Budget(name=n, weight=w) for n, w in weights.items()), f"budgets: shares by each team's {what}"


def _topology(recipe: Recipe, cluster: Cluster) -> tuple[Cluster, tuple[str, ...]]:
    """Racks and blocks of nodes in the order they are listed, where there is no topology."""
    if cluster.levels:
        return cluster, ()
    per_block = recipe.nodes_per_rack * recipe.racks_per_block
    nodes = tuple(
        Node.model_validate(
            {**dict(node), "domains": {"block": f"b{i // per_block:02}", "rack": f"r{i // recipe.nodes_per_rack:03}"}}
        )
        for i, node in enumerate(cluster.nodes)
    )
    note = (
        f"topology: racks of {recipe.nodes_per_rack} nodes, blocks of {recipe.racks_per_block} racks, "
        f"by recipe {recipe.name}"
    )
    return Cluster(name=cluster.name, levels=("block", "rack"), nodes=nodes), (note,)
