"""The pending jobs of a synthetic round: what demand is left, heavy-tailed, with inflated priorities."""

from __future__ import annotations

from cpalloc.generate.cluster import ClusterPlan
from cpalloc.generate.config import GeneratorConfig
from cpalloc.generate.draws import Dice
from cpalloc.generate.sizes import Deck, Shape, size_table
from cpalloc.generate.traits import DAY, HOUR, Draft, Traits

MISFITS_FROM = 256
"""Nodes from which a round has jobs that can never start."""

_SWEEP_JOBS = (4, 6, 8, 12)
_MEAN_SWEEP = 7.5


def pending_jobs(config: GeneratorConfig, cluster: ClusterPlan, *, gpus: int, activity: list[int]) -> list[Draft]:
    """Queue jobs of ``gpus`` GPUs in all.

    Parameters
    ----------
    config : GeneratorConfig
    cluster : ClusterPlan
    gpus : int
        GPUs to be asked for; met exactly where sizes are powers of two.
    activity : list of int
        How much each leaf queues, relative to the others.
    """
    queue = _Queue(config, cluster, activity)
    drafts: list[Draft] = []
    while gpus > 0:
        new = queue.next(gpus)
        drafts += new
        gpus -= sum(draft.shape.size for draft in new)
    if config.nodes >= MISFITS_FROM:
        _spoil(config, drafts)
    return drafts


class _Queue:
    """Draws one submission after another."""

    def __init__(self, config: GeneratorConfig, cluster: ClusterPlan, activity: list[int]) -> None:
        self._config, self._activity = config, activity
        self._traits = Traits(config, cluster, "pending")
        nodes = [int((cluster.pool == p).sum()) for p in range(len(cluster.pools))]
        self._decks = [
            Deck(config, size_table(config, n), f"pending {name}") for n, name in zip(nodes, cluster.pools, strict=True)
        ]
        self._pools = [cluster.in_service_of(p) for p in range(len(cluster.pools))]
        seed = config.seed
        self._pool, self._leaf = Dice(seed, "pending pool"), Dice(seed, "pending budget")
        self._sweep, self._sweep_sizes = Dice(seed, "sweep"), Dice(seed, "sweep size")
        self._submitted, self._any = Dice(seed, "submitted"), Dice(seed, "any funding")

    def next(self, most: int) -> list[Draft]:
        """A job, or the jobs of a sweep, of at most ``most`` GPUs."""
        pool = self._pool.pick(range(len(self._pools)), self._pools)
        # A sweep is several jobs: with q the chance of one and n its jobs, the share of jobs is qn / (qn + 1 - q).
        share = self._config.sweeps
        if self._sweep.chance(share / (_MEAN_SWEEP - (_MEAN_SWEEP - 1) * share)):
            drafts = self._sweep_jobs(pool, most)
        else:
            drafts = [self._job(self._fitting(self._decks[pool].draw(), pool, most), pool)]
        leaf = self._leaf.pick(range(len(self._activity)), self._activity)
        # Most of a queue is recent: the better half of two draws.
        ago = min(self._submitted.between(30, 2 * DAY), self._submitted.between(30, 2 * DAY))
        for draft in drafts:
            draft.leaf, draft.submitted_ago = leaf, ago
        return drafts

    def _job(self, shape: Shape, pool: int) -> Draft:
        traits = self._traits
        draft = traits.draft(shape, pool, level=traits.required_level(shape, pool), cpu=traits.cpus(shape))
        draft.fields["min_runtime"] = draft.min_runtime
        if self._any.chance(self._config.any_funding):
            draft.fields["funding"] = "any"
        traits.set_timeout(draft, elapsed=0)
        return draft

    def _fitting(self, drawn: Shape, pool: int, most: int) -> Shape:
        """The drawn shape, or the largest that the demand still has room for."""
        return drawn if drawn.size <= most else self._decks[pool].table.at_most(most)

    def _sweep_jobs(self, pool: int, most: int) -> list[Draft]:
        """Equal small borrowed jobs without a minimum runtime."""
        shape = self._fitting(self._decks[pool].table.small(self._sweep_sizes), pool, most)
        count = min(self._sweep.pick(_SWEEP_JOBS), most // shape.size)
        first = self._traits.draft(shape, pool, level=None, cpu=self._traits.cpus(shape))
        first.min_runtime = 0
        first.fields.pop("kind", None)
        self._traits.set_timeout(first, elapsed=0)
        return [Draft(shape, pool, fields=dict(first.fields)) for _ in range(count)]


def _spoil(config: GeneratorConfig, drafts: list[Draft]) -> None:
    """Make a few jobs impossible or inadmissible, each in a way that concerns nobody else."""
    dice = Dice(config.seed, "misfits")
    for i in dice.shuffled(len(drafts))[: round(config.misfits * len(drafts))]:
        fields = drafts[i].fields
        match dice.between(0, 2):
            case 0:
                fields["node_selector"] = {"zone": "moon"}
            case 1:
                fields["gpu_types"] = ["mi300x"]
            case _:
                fields["min_runtime"] = 12 * HOUR
                fields.pop("timeout", None)
