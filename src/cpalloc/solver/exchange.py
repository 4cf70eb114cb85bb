"""Replicas change places so that what is preempted makes room for other budgets (rule 6).

A coarse model gives the room of a victim to some allocated start, be it of the victim's own budget. Mostly a like
replica of another budget stands elsewhere, and the two change places: that costs far less than a finer model.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from cpalloc.models.constraints.preemption import victims
from cpalloc.problem.problem import Decision, Mode, Problem, Replica
from cpalloc.problem.releases import bound_by

At = tuple[int, int]
"""A replica: its job, and its position in the job's placement."""


def give_to_others(problem: Problem, decision: Decision) -> Decision:
    """The decision with replicas exchanged until every victim makes room for another budget, as far as that goes."""
    places = _Places(problem, decision)
    for victim in [v for v in places.victims if not places.served(v)]:
        places.serve(victim)
    if not places.moved:
        return decision
    placement = {j: tuple(sorted(reps, key=lambda r: (r.node, r.devices))) for j, reps in places.placement.items()}
    return replace(decision, placement=placement)


class _Places:
    """Who starts where, and for whom victims make room."""

    def __init__(self, problem: Problem, decision: Decision) -> None:
        self.problem = problem
        self.placement = {j: list(reps) for j, reps in decision.placement.items()}
        self.moved = False
        self._leaf: list[int] = problem.jobs.leaf.tolist()
        self._allocated = {j for j in decision.placement if decision.mode[j] == Mode.ALLOCATED}
        self.victims = victims(problem, decision)
        self._nodes = {v: {r.node for r in problem.jobs.placement[v] if r.node >= 0} for v in self.victims}
        self._on: dict[int, list[At]] = defaultdict(list)
        self._victims_on: dict[int, list[int]] = defaultdict(list)
        for j, reps in self.placement.items():
            for i, rep in enumerate(reps):
                self._on[rep.node].append((j, i))
        for v, nodes in self._nodes.items():
            for n in nodes:
                self._victims_on[n].append(v)

    def served(self, victim: int) -> bool:
        """Whether an allocated replica of another budget starts on a node of a victim."""
        return any(self._helps(at, victim) for n in self._nodes[victim] for at in self._on[n])

    def _helps(self, at: At, victim: int) -> bool:
        return at[0] in self._allocated and self._leaf[at[0]] != self._leaf[victim]

    def serve(self, victim: int) -> None:
        """Exchange replicas on the victim's nodes for like ones of another budget, if no other victim loses by it."""
        for n in sorted(self._nodes[victim]):
            for m in sorted(self._on):
                if m in self._nodes[victim] or self.problem.nodes.pool[m] != self.problem.nodes.pool[n]:
                    continue
                concerned = self._victims_on[n] + self._victims_on[m]
                before = {v for v in concerned if self.served(v)}
                for here, there in self._pairs(n, m, victim):
                    self._swap(here, there)
                    if self.served(victim) and all(self.served(v) for v in before):
                        self.moved = True
                        return
                    self._swap(here, there)

    def _pairs(self, n: int, m: int, victim: int) -> Iterator[tuple[list[At], list[At]]]:
        """Replicas on n and on m, one of them against as many as hold the same GPUs, that may change places."""
        coming = [at for at in self._on[m] if self._helps(at, victim) and self._may_move(at, n)]
        going = [at for at in self._on[n] if self._may_move(at, m)]
        for there in coming:
            for here in going:
                a, b = self._at(here).gpus, self._at(there).gpus
                if a == b:
                    yield [here], [there]
                elif a > b and (several := self._as_many([x for x in coming if x[0] == there[0]], a)):
                    yield [here], several
                elif a < b and (several := self._as_many([x for x in going if x[0] == here[0]], b)):
                    yield several, [there]

    def _as_many(self, among: list[At], gpus: int) -> list[At]:
        """As many replicas of one job as hold some GPUs; none where they do not divide them or are too few."""
        count, rest = divmod(gpus, self._at(among[0]).gpus)
        return among[:count] if rest == 0 and len(among) >= count else []

    def _may_move(self, at: At, to: int) -> bool:
        jobs, topology = self.problem.jobs, self.problem.topology
        job, level = at[0], int(jobs.required_level[at[0]])
        return bool(
            self.problem.eligibility[jobs.eligibility[job], to]
            and topology.domain_of[level, self._at(at).node] == topology.domain_of[level, to]
            and level < len(topology.levels) - 1
            and not jobs.exclusive[job]
            and not jobs.max_per_node[job]
            and not jobs.same_gpu_group[job]
            and not jobs.resources[job].any()
            and not any(to in self.problem.holds[h].nodes for h in self._bound_by(job))
        )

    def _bound_by(self, job: int) -> tuple[int, ...]:
        return bound_by(self.problem, job) if job in self._allocated else ()

    def _at(self, at: At) -> Replica:
        return self.placement[at[0]][at[1]]

    def _swap(self, here: list[At], there: list[At]) -> None:
        """Give each side the node and the devices of the other."""
        n, m = self._at(here[0]).node, self._at(there[0]).node
        from_n, from_m = self._devices(here), self._devices(there)
        for side, old, new, devices in ((here, n, m, from_m), (there, m, n, from_n)):
            for at in side:
                gpus = self._at(at).gpus
                mine, devices = devices[:gpus], devices[gpus:]
                self.placement[at[0]][at[1]] = Replica(new, gpus, sum(mine) if len(mine) == gpus else -1)
                self._on[old].remove(at)
                self._on[new].append(at)

    def _devices(self, side: list[At]) -> list[int]:
        """Single devices as masks, lowest first; empty where one of them is unknown."""
        masks = [self._at(at).devices for at in side]
        if any(mask < 0 for mask in masks):
            return []
        union = sum(masks)
        return [1 << bit for bit in range(union.bit_length()) if union >> bit & 1]
