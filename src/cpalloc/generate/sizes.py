"""Gang sizes: heavy-tailed, from one GPU to many whole nodes."""

from __future__ import annotations

from dataclasses import dataclass

from cpalloc.generate.config import Family, GeneratorConfig
from cpalloc.generate.draws import Dice

ODD_GPUS = (3, 5, 6)
"""GPUs per replica that do not divide one another."""

MAX_MIXED_REPLICAS = 64
"""Most nodes of a gang of the mixed family."""

# Points of the GPUs (not of the jobs) that each size gets. One-node sizes from the whole node down; gangs of 2, 4, 8 …
_ONE_NODE = {Family.MIXED: (210, 64, 26, 13), Family.GANG_HEAVY: (130, 58, 36, 28)}
_GANGS = {
    Family.MIXED: (130, 140, 130, 110, 80, 60),
    Family.GANG_HEAVY: (100, 140, 160, 160, 130, 110, 90, 70, 50),
}
_SCALE = 10**6
_CARDS = 64


@dataclass(frozen=True, slots=True)
class Shape:
    """A gang: ``replicas`` of ``gpus`` GPUs each."""

    replicas: int
    gpus: int

    @property
    def size(self) -> int:
        """GPUs of the gang."""
        return self.replicas * self.gpus

    def smaller(self) -> Shape | None:
        """Half the replicas, else the next smaller power of two of GPUs; None below one GPU."""
        if self.replicas > 1:
            return Shape(self.replicas // 2, self.gpus)
        return Shape(1, 1 << (self.gpus - 1).bit_length() - 1) if self.gpus > 1 else None


@dataclass(frozen=True, slots=True)
class SizeTable:
    """Shapes and how often a job has them: GPU points over the size, so that every size class holds its GPUs.

    ``odd`` are the odd GPUs per replica that a node has.
    """

    shapes: tuple[Shape, ...]
    weights: tuple[int, ...]
    odd: tuple[int, ...]

    def small(self, dice: Dice) -> Shape:
        """Draw a one-node shape, the smallest most often."""
        singles = [s for s in self.shapes if s.replicas == 1]
        return dice.pick(singles, [len(singles) - i for i in range(len(singles))])

    def at_most(self, gpus: int) -> Shape:
        """The largest shape of at most so many GPUs."""
        return max((s for s in self.shapes if s.size <= gpus), key=lambda s: s.size)


class Deck:
    """Draws shapes from a shuffled deck: the few large gangs of a small round come about as often as they should."""

    def __init__(self, config: GeneratorConfig, table: SizeTable, name: str) -> None:
        self.table = table
        self._odd_share = config.odd_sizes
        self._dice, self._odd = Dice(config.seed, f"{name} size"), Dice(config.seed, f"{name} odd size")
        self._cards: list[Shape] = []

    def draw(self) -> Shape:
        """Draw a shape; a dice of its own decides whether its replicas get an odd number of GPUs."""
        while not self._cards:
            self._cards = self._shuffled()
        shape = self._cards.pop()
        odd = self._odd.chance(self._odd_share)
        return Shape(shape.replicas, self._odd.pick(self.table.odd)) if odd and self.table.odd else shape

    def _shuffled(self) -> list[Shape]:
        total = sum(self.table.weights)
        cards: list[Shape] = []
        for shape, weight in zip(self.table.shapes, self.table.weights, strict=True):
            count, rest = divmod(weight * _CARDS, total)
            cards += [shape] * (count + (self._dice.between(0, total - 1) < rest))
        return [cards[i] for i in self._dice.shuffled(len(cards))]


def size_table(config: GeneratorConfig, pool_nodes: int) -> SizeTable:
    """Sizes for jobs of one pool.

    Parameters
    ----------
    config : GeneratorConfig
    pool_nodes : int
        Nodes of the pool. Gangs take at most a quarter of them (and at most 64 nodes in the mixed family); two nodes
        where a quarter is less and the pool has two.
    """
    family = Family(config.family)
    whole = config.gpus_per_node
    gpus = [whole] + [1 << e for e in reversed(range((whole - 1).bit_length()))]
    one_node, gangs = _ONE_NODE[family], _GANGS[family]
    rows = [(Shape(1, g), one_node[min(i, len(one_node) - 1)]) for i, g in enumerate(gpus)][::-1]
    limit = min(pool_nodes, max(2, pool_nodes // 4))
    if family is Family.MIXED:
        limit = min(limit, MAX_MIXED_REPLICAS)
    exponents = range(1, limit.bit_length())
    rows += [(Shape(1 << e, whole), gangs[min(e - 1, len(gangs) - 1)]) for e in exponents]
    return SizeTable(
        shapes=tuple(s for s, _ in rows),
        weights=tuple(points * _SCALE // s.size for s, points in rows),
        odd=tuple(g for g in ODD_GPUS if g < whole),
    )
