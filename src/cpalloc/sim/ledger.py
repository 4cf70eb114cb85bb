"""What budgets are charged and owed over a sliding window, exactly, with memory bounded by the window (policy 1)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from fractions import Fraction


class Meter:
    """GPU-seconds of a number of GPUs that changes in steps: A(t) is their integral since the start, linear in between.

    Instants must not go back. Only the steps of the last ``window_s`` seconds are kept.
    """

    __slots__ = ("_steps", "_window_s", "level")

    def __init__(self, start_s: int, window_s: int, level: int) -> None:
        self.level = level
        self._window_s = window_s
        self._steps = deque([(start_s, 0, level)])
        """(instant, A at it, GPUs from it on); the first reaches back to the beginning of time."""

    def step(self, at_s: int, gpus: int) -> None:
        """From ``at_s`` on, ``gpus`` more (or fewer)."""
        self.level += gpus
        steps = self._steps
        last_s, total, level = steps[-1]
        if last_s == at_s:
            steps[-1] = (at_s, total, self.level)
            return
        steps.append((at_s, total + level * (at_s - last_s), self.level))
        self._forget(at_s - self._window_s)

    def total(self, at_s: int) -> int:
        """GPU-seconds from the start to ``at_s``, which is not before the last step."""
        last_s, total, level = self._steps[-1]
        return total + level * (at_s - last_s)

    def in_window(self, at_s: int) -> int:
        """GPU-seconds in the window that ends at ``at_s``."""
        begin_s = at_s - self._window_s
        self._forget(begin_s)
        first_s, total, level = self._steps[0]
        return self.total(at_s) - total - level * (begin_s - first_s)

    def _forget(self, begin_s: int) -> None:
        steps = self._steps
        while len(steps) > 1 and steps[1][0] <= begin_s:
            steps.popleft()


class _Era:
    """A time with one set of shares: GPU-seconds in service are metered per era, as they are owed by its shares."""

    __slots__ = ("meter", "shares")

    def __init__(self, shares: Sequence[Fraction], meter: Meter) -> None:
        self.shares = list(shares)
        self.meter = meter


class Ledger:
    """Charged and owed per leaf over the window.

    Before the start nothing was charged, while the cluster was in service as it is at the start, under the shares of
    the start, for ``prior_s`` seconds (None: a whole window): every leaf begins with ratio 0.

    Parameters
    ----------
    leaf_names : sequence of str
        All leaves that will ever be; ``shares`` follow their order.
    start_s, window_s : int
    in_service_gpus : int
        At the start.
    shares : sequence of Fraction
        Of the leaves at the start, 0 for those that are not there yet.
    """

    __slots__ = ("_charged", "_eras", "_window_s", "leaf_names")

    def __init__(
        self,
        leaf_names: Sequence[str],
        start_s: int,
        window_s: int,
        in_service_gpus: int,
        shares: Sequence[Fraction],
        *,
        prior_s: int | None = None,
    ) -> None:
        self.leaf_names = tuple(leaf_names)
        self._window_s = window_s
        self._charged = [Meter(start_s - 1, window_s, 0) for _ in leaf_names]
        served = Meter(start_s - (window_s if prior_s is None else prior_s) - 1, window_s, 0)
        served.step(start_s - (window_s if prior_s is None else prior_s), in_service_gpus)
        self._eras = deque([_Era(shares, served)])

    @property
    def shares(self) -> list[Fraction]:
        """Present share of every leaf."""
        return self._eras[-1].shares

    def charge(self, leaf: int, at_s: int, gpus: int) -> None:
        """From ``at_s`` on, ``gpus`` more (or fewer) of the leaf are allocated."""
        self._charged[leaf].step(at_s, gpus)

    def serve(self, at_s: int, gpus: int) -> None:
        """From ``at_s`` on, ``gpus`` more (or fewer) are in service."""
        self._eras[-1].meter.step(at_s, gpus)

    def share_out(self, at_s: int, shares: Sequence[Fraction]) -> None:
        """From ``at_s`` on, leaves have other shares."""
        present = self._eras[-1].meter
        in_service = present.level
        present.step(at_s, -in_service)
        while len(self._eras) > 1 and not self._eras[0].meter.in_window(at_s):
            self._eras.popleft()
        meter = Meter(at_s - 1, self._window_s, 0)
        meter.step(at_s, in_service)
        self._eras.append(_Era(shares, meter))

    def allocated_gpus(self, leaf: int) -> int:
        """GPUs the leaf is being charged for."""
        return self._charged[leaf].level

    def charged(self, leaf: int, now_s: int) -> int:
        """GPU-seconds of allocated time in the window that ends at ``now_s``."""
        return self._charged[leaf].in_window(now_s)

    def charged_ever(self, leaf: int, now_s: int) -> int:
        """GPU-seconds of allocated time since the start."""
        return self._charged[leaf].total(now_s)

    def owed(self, leaf: int, now_s: int) -> int:
        """Share × in-service GPU-seconds in the window that ends at ``now_s``, floored."""
        amount = sum((era.shares[leaf] * era.meter.in_window(now_s) for era in self._eras), Fraction(0))
        return amount.numerator // amount.denominator

    def all_charged(self, now_s: int) -> list[int]:
        """:meth:`charged` of every leaf."""
        return [meter.in_window(now_s) for meter in self._charged]

    def all_owed(self, now_s: int) -> list[int]:
        """:meth:`owed` of every leaf."""
        if len(self._eras) == 1:
            era = self._eras[0]
            gpu_s = era.meter.in_window(now_s)
            return [share.numerator * gpu_s // share.denominator for share in era.shares]
        return [self.owed(leaf, now_s) for leaf in range(len(self.leaf_names))]

    def ratio(self, leaf: int, now_s: int) -> Fraction | None:
        """Charged / owed; None stands for infinite, where nothing is owed."""
        owed = self.owed(leaf, now_s)
        return Fraction(self.charged(leaf, now_s), owed) if owed else None
