"""The running jobs of a synthetic round: packed, aged, protected or not, allocated or borrowed."""

from __future__ import annotations

from typing import Any

from cpalloc.generate.cluster import ClusterPlan
from cpalloc.generate.config import GeneratorConfig
from cpalloc.generate.draws import Dice
from cpalloc.generate.packing import Packer
from cpalloc.generate.sizes import Deck, Shape, size_table
from cpalloc.generate.traits import DAY, HOUR, MINUTE, Draft, Traits, instant

MAX_AGE = 30 * HOUR
"""The oldest running job's age, seconds."""

CHURN = 0.08
"""Share of a pool placed beyond the fill and released again: departures leave the holes a real cluster has."""

_CHECKPOINT_INTERVALS = (10 * MINUTE, 30 * MINUTE, HOUR)

Placement = list[tuple[int, list[int]]]
"""Node index and devices of each replica."""


def running_jobs(config: GeneratorConfig, cluster: ClusterPlan) -> list[Draft]:
    """Fill the cluster with running jobs; their leaves are assigned later."""
    traits = Traits(config, cluster, "running")
    placed = _Filling(config, cluster, traits).fill()
    drafts = [draft for draft, _ in placed]
    for draft, borrows in zip(drafts, _borrowers(config, drafts), strict=True):
        draft.mode = "borrowed" if borrows else "allocated"
    ages = _Ages(config, traits)
    for (draft, placement), protected in zip(placed, _protected(config, drafts), strict=True):
        running = ages.running(draft, protected=protected)
        running["placement"] = [{"node": cluster.names[n], "gpus": gpus} for n, gpus in placement]
        draft.fields["running"] = running
    return drafts


class _Filling:
    """Places gangs pool by pool up to the fill."""

    def __init__(self, config: GeneratorConfig, cluster: ClusterPlan, traits: Traits) -> None:
        self._config, self._cluster, self._traits = config, cluster, traits
        self._packer = Packer(cluster)
        self._departures = Dice(config.seed, "departures")

    def fill(self) -> list[tuple[Draft, Placement]]:
        placed: list[tuple[Draft, Placement]] = []
        for pool in range(len(self._cluster.pools)):
            room = int(self._packer.free[self._cluster.pool == pool].sum())
            target = round(self._config.fill * room)
            placed += self._depart(self._place(pool, min(room, target + round(CHURN * room)) if target else 0), target)
        return placed

    def _place(self, pool: int, limit: int) -> list[tuple[Draft, Placement]]:
        """Place drawn gangs, halved until they fit, until the limit is met or not a single GPU is free."""
        table = size_table(self._config, int((self._cluster.pool == pool).sum()))
        deck = Deck(self._config, table, f"running {self._cluster.pools[pool]}")
        placed: list[tuple[Draft, Placement]] = []
        held = 0
        while held < limit:
            row = self._place_one(deck.draw(), pool, limit - held)
            if row is None:
                break
            placed.append(row)
            held += row[0].shape.size
        return placed

    def _place_one(self, drawn: Shape, pool: int, most: int) -> tuple[Draft, Placement] | None:
        level, cpu = self._traits.required_level(drawn, pool), self._traits.cpus(drawn)
        shape: Shape | None = drawn
        while shape is not None:
            scaled = cpu * shape.gpus // drawn.gpus
            gang_level = level if shape.replicas > 1 else None
            if shape.size <= most:
                placement = self._packer.place(shape, pool, level=gang_level, cpu=scaled)
                if not placement and shape.size == 1:
                    scaled = 0
                    placement = self._packer.place(shape, pool)
                if placement:
                    return self._traits.draft(shape, pool, level=gang_level, cpu=scaled), placement
            shape = shape.smaller()
        return None

    def _depart(self, placed: list[tuple[Draft, Placement]], target: int) -> list[tuple[Draft, Placement]]:
        """Let random jobs leave as long as the fill stays."""
        held = sum(draft.shape.size for draft, _ in placed)
        gone: set[int] = set()
        for i in self._departures.shuffled(len(placed)):
            size = placed[i][0].shape.size
            if held - size >= target:
                held -= size
                gone.add(i)
        return [row for i, row in enumerate(placed) if i not in gone]


class _Ages:
    """Draws since when jobs run, and writes it down."""

    def __init__(self, config: GeneratorConfig, traits: Traits) -> None:
        self._config, self._traits = config, traits
        seed = config.seed
        self._age = Dice(seed, "age")
        self._promoted, self._starting = Dice(seed, "promoted"), Dice(seed, "starting")
        self._checkpoint, self._queue = Dice(seed, "checkpoint"), Dice(seed, "queued")
        self._borrowed, self._utilisation = Dice(seed, "borrowed kind"), Dice(seed, "utilisation")

    def running(self, draft: Draft, *, protected: bool) -> dict[str, Any]:
        """The ``running`` of the wire format but for the placement; sets what follows from the age on the draft."""
        if draft.mode == "borrowed":
            self._borrowed_terms(draft)
            started, since = self._age.between(2 * MINUTE, _oldest(draft)), None
        else:
            if self._starting.chance(self._config.starting):
                return self._not_up_yet(draft)
            started, since = self._allocated(draft, protected)
            draft.accrued_gpu_seconds = draft.shape.size * (started if since is None else since)
        if draft.min_runtime:
            draft.fields["min_runtime"] = draft.min_runtime
        self._traits.set_timeout(draft, elapsed=started)
        placed = started + self._age.between(20, 180)
        draft.submitted_ago = placed + self._waited()
        running: dict[str, Any] = {"mode": draft.mode, "placed_at": self._at(placed), "started_at": self._at(started)}
        if since is not None:
            running["allocated_since"] = self._at(since)
        interval, last = self._checkpoint.pick(_CHECKPOINT_INTERVALS), self._checkpoint.between(0, HOUR)
        if "resumable" in draft.fields and started > interval:
            running["checkpointed_at"] = self._at(last % interval)
        running["utilisation"] = self._utilisation.between(30, 99) / 100
        return running

    def _borrowed_terms(self, draft: Draft) -> None:
        """Most have no minimum runtime; some wait for their budget's claim to reach them; some only ever borrow."""
        choice = self._borrowed.between(0, 99)
        if choice < 60:
            draft.min_runtime = 0
        else:
            draft.fields["funding"] = "any" if choice < 90 else "borrowed"

    def _allocated(self, draft: Draft, protected: bool) -> tuple[int, int | None]:
        """Age since the start, and since the promotion if there was one."""
        least = draft.min_runtime
        age = self._age.between(2 * MINUTE, least - 1) if protected else self._age.between(least, _oldest(draft))
        promoted = self._promoted.chance(self._config.promoted)
        if not promoted or age + 10 * MINUTE > _oldest(draft):
            return age, None
        draft.fields["funding"] = "any"
        return self._promoted.between(age + 10 * MINUTE, _oldest(draft)), age

    def _not_up_yet(self, draft: Draft) -> dict[str, Any]:
        draft.fields["min_runtime"] = draft.min_runtime
        self._traits.set_timeout(draft, elapsed=0)
        placed = self._starting.between(10, 4 * MINUTE)
        draft.accrued_gpu_seconds = draft.shape.size * placed
        draft.submitted_ago = placed + self._waited()
        return {"mode": draft.mode, "placed_at": self._at(placed), "started_at": None}

    def _waited(self) -> int:
        return self._queue.between(0, self._queue.pick((5 * MINUTE, HOUR, 6 * HOUR, DAY)))

    def _at(self, ago: int) -> str:
        return instant(self._config, ago)


def _oldest(draft: Draft) -> int:
    """Largest age a job can have: those that came with a timeout have not reached it."""
    timeout: int = draft.fields.get("timeout", MAX_AGE + 1)
    return timeout - 1


def _borrowers(config: GeneratorConfig, drafts: list[Draft]) -> list[bool]:
    """Random jobs up to the borrowed share of the held GPUs."""
    most = round(config.borrowed * sum(d.shape.size for d in drafts))
    borrows = [False] * len(drafts)
    for i in Dice(config.seed, "borrowers").shuffled(len(drafts)):
        if drafts[i].shape.size <= most:
            most -= drafts[i].shape.size
            borrows[i] = True
    return borrows


def _protected(config: GeneratorConfig, drafts: list[Draft]) -> list[bool]:
    """Pick the allocated jobs to be young by their share, spread evenly over the sizes."""
    dice = Dice(config.seed, "protected")
    order = [i for i in dice.shuffled(len(drafts)) if drafts[i].mode == "allocated"]
    order.sort(key=lambda i: -drafts[i].shape.size)
    step, at = round(config.protected * 10**6), dice.between(0, 10**6 - 1)
    protected = [False] * len(drafts)
    for k, i in enumerate(order):
        protected[i] = (at + (k + 1) * step) // 10**6 > (at + k * step) // 10**6
    return protected
