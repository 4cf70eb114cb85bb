"""Who must start before whom, where nobody may be passed over.

Once ``inversion`` is limited, a start brings others with it: everybody in its budget and mode who is ranked better and
would fit in its very place (:func:`cpalloc.models.places.takes_place_of`) starts as well, unless being passed over
costs no more than the limit. What all of them need is known before any model.
"""

from __future__ import annotations

import numpy as np

from cpalloc.models.objectives.inversion import weight
from cpalloc.models.places import Places
from cpalloc.problem.problem import BoolArray, IntArray, Problem

MOST_AHEAD = 256
"""Best-ranked jobs of a budget that are counted; those after them need not be, it is only that less is ruled out."""


class Turns:
    """Sums over those whom starts bring with them.

    Parameters
    ----------
    job, allocated
        Possible starts of waiting jobs, shape (R,) each: every mode in which each of them may start.
    limit
        The most that ``inversion`` may be.
    """

    def __init__(self, problem: Problem, job: IntArray, allocated: BoolArray, limit: int) -> None:
        jobs, places = problem.jobs, problem.once("places", lambda: Places(problem))
        by_turn = np.lexsort((jobs.order[job], jobs.leaf[job], allocated))
        queue = 2 * jobs.leaf[job] + allocated
        ends = np.flatnonzero(np.diff(queue[by_turn])) + 1
        terms, of_terms = np.unique(np.array(places.terms, dtype=np.int64)[job], return_inverse=True)
        fits = places.anywhere(terms)
        dear = np.array([weight(problem, j) > limit for j in job.tolist()], dtype=np.bool_)
        counts = dear & ~places.alone[job]
        better, worse = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
        for rows in np.split(by_turn, ends):
            first = rows[counts[rows]][:MOST_AHEAD]
            brings = fits[np.ix_(of_terms[first], of_terms[rows])]
            brings &= jobs.order[job[first]][:, None] < jobs.order[job[rows]]
            i, j = np.nonzero(brings)
            better.append(first[i])
            worse.append(rows[j])
        self._better, self._worse = np.concatenate(better), np.concatenate(worse)
        self._pools = _pools(problem)[jobs.eligibility[job]]
        self._alike: BoolArray = (self._pools[self._better] == self._pools[self._worse]).all(axis=1)
        self._pool_of: IntArray = problem.nodes.pool

    def ahead(self, values: IntArray) -> IntArray:
        """The sum of ``values``, shape (R,), over the others that each start brings with it, shape (R,)."""
        return self._sum(self._better, self._worse, values)

    def ahead_in_pools(self, values: IntArray) -> IntArray:
        """The same over those of them that have nowhere to go but the start's own pools."""
        return self._sum(self._better[self._alike], self._worse[self._alike], values)

    def there(self, values: IntArray) -> IntArray:
        """The sum of ``values``, shape (N,), over the nodes of each start's pools, shape (R,)."""
        by_pool = np.bincount(self._pool_of, weights=values, minlength=self._pools.shape[1])
        return (self._pools @ by_pool).astype(np.int64)

    def _sum(self, better: IntArray, worse: IntArray, values: IntArray) -> IntArray:
        return np.bincount(worse, weights=values[better], minlength=len(self._pools)).astype(np.int64)


def _pools(problem: Problem) -> BoolArray:
    """The pools in which each eligibility class allows a node, shape (E, P)."""
    columns = [problem.eligibility[:, problem.nodes.pool == p].any(axis=1) for p in range(len(problem.pool_names))]
    return np.column_stack(columns) if columns else np.ones((len(problem.eligibility), 1), dtype=np.bool_)
