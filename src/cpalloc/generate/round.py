"""A whole synthetic round."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cpalloc.generate.budgets import BudgetPlan, assign_running, plan_budgets
from cpalloc.generate.cluster import plan_cluster
from cpalloc.generate.config import GeneratorConfig
from cpalloc.generate.pending import pending_jobs
from cpalloc.generate.running import running_jobs
from cpalloc.generate.traits import Draft, instant

if TYPE_CHECKING:
    from cpalloc.schema import Round


def generate_doc(config: GeneratorConfig | None = None) -> dict[str, Any]:
    """Generate a round as a wire document.

    Parameters
    ----------
    config : GeneratorConfig, optional
        The knobs; 64 mixed nodes by default.

    Returns
    -------
    dict
        A valid request in wire format version 1; equal configurations give equal documents on any platform.

    Examples
    --------
    >>> doc = generate_doc(GeneratorConfig(nodes=8, seed=3))
    >>> len(doc["cluster"]["nodes"]), doc["now"]
    (8, '2026-11-29T12:00:00Z')
    """
    config = config or GeneratorConfig()
    cluster = plan_cluster(config)
    plan = plan_budgets(config, cluster.in_service)
    running = running_jobs(config, cluster)
    assign_running(config, plan, running)
    held = sum(draft.shape.size for draft in running)
    wanted = round(config.demand * cluster.in_service) - held
    activity = [leaf.owed * leaf.activity for leaf in plan.leaves]
    pending = pending_jobs(config, cluster, gpus=wanted, activity=activity)
    return {
        "schema_version": 1,
        "now": instant(config, 0),
        "cluster": cluster.wire(),
        "budgets": plan.wire(config, running, cluster.in_service),
        "jobs": _jobs(config, plan, running + pending),
        "options": {"time_limit": config.time_limit},
    }


def generate(config: GeneratorConfig | None = None) -> Round:
    """Generate a round as a model, checked as any request is; see :func:`generate_doc`."""
    from cpalloc.schema.validate import parse_round

    return parse_round(generate_doc(config))


def _jobs(config: GeneratorConfig, plan: BudgetPlan, drafts: list[Draft]) -> list[dict[str, Any]]:
    """Number the jobs in the order of their submission."""
    order = sorted(range(len(drafts)), key=lambda i: (-drafts[i].submitted_ago, i))
    width = len(str(len(drafts)))
    return [
        {
            "id": f"j-{number:0{width}}",
            "budget": plan.leaves[drafts[i].leaf].name,
            "submitted_at": instant(config, drafts[i].submitted_ago),
            **drafts[i].fields,
        }
        for number, i in enumerate(order)
    ]
