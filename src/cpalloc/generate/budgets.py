"""The funding tree of a synthetic round: programmes and their projects, and what they have been charged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cpalloc.generate.config import GeneratorConfig
from cpalloc.generate.draws import Dice
from cpalloc.generate.traits import Draft

WINDOW = 604_800
"""Default window of the policy, seconds."""

_PROGRAMMES = ("language", "vision", "robotics", "science", "agents", "climate", "speech", "biology")
_MAX_PROGRAMMES = 12
_PROGRAMME_WEIGHTS = (10, 15, 20, 25, 30, 40)
_PROJECT_WEIGHTS = (5, 10, 15, 20, 30, 50)

_RATIOS = (300, 353, 415, 489, 575, 677, 797, 938, 1104, 1299, 1529, 1800)
"""Ratios in thousandths from 0.3 to 1.8, each 6^(1/11) times the last: few over their share, most under it."""


@dataclass(slots=True)
class Leaf:
    """A leaf budget; amounts in GPU-seconds. ``activity`` scales how much it queues."""

    name: str
    weight: int
    owed: int
    charged: int
    activity: int
    accrued: int = 0


@dataclass(frozen=True, slots=True)
class Programme:
    """A top-level budget and the leaves below it."""

    name: str
    weight: int
    leaves: tuple[Leaf, ...]


@dataclass(frozen=True, slots=True)
class BudgetPlan:
    """The tree; ``leaves`` in tree order."""

    programmes: tuple[Programme, ...]
    leaves: tuple[Leaf, ...]

    def wire(self, config: GeneratorConfig, drafts: Sequence[Draft], in_service: int) -> list[dict[str, Any]]:
        """The ``budgets`` of the wire format; a few leaves are capped, never below what they hold."""
        caps = _caps(self, config, drafts, in_service)
        rows: list[dict[str, Any]] = []
        index = 0
        for programme in self.programmes:
            rows.append({"name": programme.name, "weight": programme.weight})
            for leaf in programme.leaves:
                row: dict[str, Any] = {"name": leaf.name, "parent": programme.name, "weight": leaf.weight}
                row["charged_gpu_seconds"] = leaf.charged
                row.update(caps.get(index, {}))
                rows.append(row)
                index += 1
        return rows


def plan_budgets(config: GeneratorConfig, in_service: int) -> BudgetPlan:
    """Grow the tree and charge its leaves between 0.3 and 1.8 times what they are owed."""
    dice = Dice(config.seed, "budget tree")
    sizes = _projects(dice, config.budgets)
    weights = [dice.pick(_PROGRAMME_WEIGHTS) for _ in sizes]
    ratios = _spread_ratios(config)
    programmes: list[Programme] = []
    for i, (projects, weight) in enumerate(zip(sizes, weights, strict=True)):
        name = _PROGRAMMES[i] if i < len(_PROGRAMMES) else f"programme{i:02}"
        below = [dice.pick(_PROJECT_WEIGHTS) for _ in range(projects)]
        leaves: list[Leaf] = []
        for p, w in enumerate(below):
            owed = in_service * WINDOW * weight * w // (sum(weights) * sum(below))
            charged = owed * ratios.pop() // 1_000
            leaves.append(Leaf(f"{name}/p{p:02}", w, owed, charged, dice.pick((1, 4, 6, 8, 12))))
        programmes.append(Programme(name, weight, tuple(leaves)))
    return BudgetPlan(tuple(programmes), tuple(leaf for p in programmes for leaf in p.leaves))


def assign_running(config: GeneratorConfig, plan: BudgetPlan, drafts: Sequence[Draft]) -> None:
    """Give running jobs to leaves so that none has been charged less than its running jobs have accrued.

    Allocated jobs go, the longest account first, to leaves by what is left of their charges: who was charged much runs
    much. Borrowed ones go by share.
    """
    dice = Dice(config.seed, "running budget")
    order = sorted(range(len(drafts)), key=lambda i: (-drafts[i].accrued_gpu_seconds, i))
    for i in order:
        draft = drafts[i]
        if draft.mode == "borrowed":
            draft.leaf = dice.pick(range(len(plan.leaves)), [leaf.owed for leaf in plan.leaves])
            continue
        left = [leaf.charged - leaf.accrued for leaf in plan.leaves]
        able = [x if x >= draft.accrued_gpu_seconds else 0 for x in left]
        draft.leaf = dice.pick(range(len(left)), able) if any(able) else left.index(max(left))
        leaf = plan.leaves[draft.leaf]
        leaf.accrued += draft.accrued_gpu_seconds
        leaf.charged = max(leaf.charged, leaf.accrued)


def _projects(dice: Dice, leaves: int) -> list[int]:
    """How many projects each programme has; at least one."""
    programmes = min(_MAX_PROGRAMMES, max(1, (leaves + 2) // 4))
    sizes = [1] * programmes
    for _ in range(leaves - programmes):
        sizes[dice.between(0, programmes - 1)] += 1
    return sizes


def _spread_ratios(config: GeneratorConfig) -> list[int]:
    """Ratios in thousandths, spread over the whole range, in random order."""
    dice = Dice(config.seed, "budget ratios")
    last = len(_RATIOS) - 1
    gaps = max(1, config.budgets - 1)
    spread: list[int] = []
    for i in dice.shuffled(config.budgets):
        step, rest = divmod(i * last, gaps)
        above = _RATIOS[min(step + 1, last)]
        ratio = _RATIOS[step] + (above - _RATIOS[step]) * rest // gaps
        spread.append(ratio + dice.between(-20, 20))
    return spread


def _caps(
    plan: BudgetPlan, config: GeneratorConfig, drafts: Sequence[Draft], in_service: int
) -> dict[int, dict[str, int]]:
    dice = Dice(config.seed, "budget caps")
    num = len(plan.leaves)
    held = {mode: [0] * num for mode in ("allocated", "borrowed")}
    for draft in drafts:
        if draft.mode is not None:
            held[draft.mode][draft.leaf] += draft.shape.size
    total = sum(leaf.owed for leaf in plan.leaves)
    caps: dict[int, dict[str, int]] = {}
    for i, leaf in enumerate(dice.shuffled(num)[: dice.amount(config.capped_budgets, num)]):
        mode, key, percent = (
            ("allocated", "max_gpus", dice.between(110, 250))
            if i % 2 == 0
            else ("borrowed", "max_borrowed_gpus", dice.between(25, 75))
        )
        cap = max(held[mode][leaf], in_service * plan.leaves[leaf].owed * percent // (100 * max(1, total)))
        caps[leaf] = {key: -(-cap // config.gpus_per_node) * config.gpus_per_node}
    return caps
