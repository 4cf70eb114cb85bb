"""Whose place a job takes: where it would fit, were the other one not there."""

from __future__ import annotations

import numpy as np

from cpalloc.problem.problem import BoolArray, IntArray, Problem


def takes_place_of(problem: Problem, covers: BoolArray, job: int, other: int, pool: int) -> bool:
    """Whether a job fits wherever ``other`` runs in a pool: no more GPUs, resources or replicas, no tighter terms."""
    jobs = problem.jobs
    if jobs.exclusive[job] or jobs.max_per_node[job] or jobs.same_gpu_group[job]:
        return False
    per_slot = int(jobs.gpus_per_replica[other]) // int(jobs.gpus_per_replica[job])
    for need, have in zip(jobs.resources[job].tolist(), jobs.resources[other].tolist(), strict=True):
        if need:
            per_slot = min(per_slot, have // need)
    if per_slot * int(jobs.replicas[other]) < int(jobs.replicas[job]):
        return False
    if jobs.required_level[job] > jobs.required_level[other]:
        return False
    return bool(covers[jobs.eligibility[job], jobs.eligibility[other], pool])


class Places:
    """Which jobs take whose place (:func:`takes_place_of`), worked out at once for all others of a job.

    Attributes
    ----------
    terms : list of int
        What is looked at in a job whose place is taken, by job: equal for those that are the same to everybody.
    alone : BoolArray, shape (J,)
        Jobs that take nobody's place, as more than room for their replicas counts.
    """

    def __init__(self, problem: Problem) -> None:
        jobs = problem.jobs
        alike = np.column_stack(
            (jobs.gpus_per_replica, jobs.replicas, jobs.required_level, jobs.eligibility, jobs.resources)
        )
        self._rows, numbers = np.unique(alike, axis=0, return_inverse=True)
        self.terms: list[int] = numbers.ravel().tolist()
        self.alone: BoolArray = jobs.exclusive | (jobs.max_per_node > 0) | jobs.same_gpu_group
        self._covers = eligibility_covers(problem)
        self._pools: dict[int, list[tuple[int, ...]]] = {}

    def alike(self, job: int) -> tuple[int, bool]:
        """What is looked at in a job that takes a place: equal for those that fit in the same places."""
        return self.terms[job], bool(self.alone[job])

    def pools(self, job: int, other: int) -> tuple[int, ...]:
        """Pools in which a job fits wherever another one runs."""
        if self.alone[job]:
            return ()
        return self._of(self.terms[job])[self.terms[other]]

    def covers(self, job: int, other: int, pool: int) -> bool:
        """Whether a job may use every node of a pool that another one may."""
        return bool(self._covers[self._rule(job), self._rule(other), pool])

    def replicas(self, job: int, other: int) -> int:
        """Replicas of a job that fit in the place of a replica of another one."""
        if self.alone[job]:
            return 0
        g, *needs = self._rows[self.terms[job]][[0, *range(4, self._rows.shape[1])]].tolist()
        gpus, *have = self._rows[self.terms[other]][[0, *range(4, self._rows.shape[1])]].tolist()
        return int(min([gpus // g, *(there // need for need, there in zip(needs, have, strict=True) if need)]))

    def _rule(self, job: int) -> int:
        return int(self._rows[self.terms[job]][3])

    def anywhere(self, terms: IntArray) -> BoolArray:
        """Whether jobs of each of some terms fit wherever those of each other run, in whatever pool; shape (T, T)."""
        width, columns = len(self._covers[0, 0]), terms.tolist()
        rows = [[len(row[other]) == width for other in columns] for row in map(self._of, columns)]
        return np.array(rows, dtype=np.bool_).reshape(len(columns), len(columns))

    def _of(self, terms: int) -> list[tuple[int, ...]]:
        if terms not in self._pools:
            self._pools[terms] = self._pools_of(terms)
        return self._pools[terms]

    def _pools_of(self, terms: int) -> list[tuple[int, ...]]:
        """By the terms of the other job."""
        g, replicas, level, eligibility, *needs = self._rows[terms].tolist()
        gpus, others, levels, rules, *have = self._rows.T
        per_slot = gpus // g
        for need, column in zip(needs, have, strict=True):
            per_slot = np.minimum(per_slot, column // need) if need else per_slot
        fits = (per_slot * others >= replicas) & (levels >= level)
        sets: dict[bytes, tuple[int, ...]] = {}
        rows = self._covers[eligibility, rules] & fits[:, None]
        for row in np.unique(rows, axis=0):
            sets[row.tobytes()] = tuple(np.flatnonzero(row).tolist())
        return [sets[row.tobytes()] for row in rows]


def eligibility_covers(problem: Problem) -> BoolArray:
    """Whether eligibility class e allows every node of a pool p that class f allows; shape (E, E, P)."""
    rows, width = problem.eligibility, len(problem.pool_names)
    out = np.ones((len(rows), len(rows), width), dtype=np.bool_)
    for pool in range(width):
        inside = rows[:, problem.nodes.pool == pool].astype(np.int64)
        out[:, :, pool] = (1 - inside) @ inside.T == 0
    return out
