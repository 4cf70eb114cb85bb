"""A simulated state as a round of the allocator: the same document a scheduler would send.

Nothing is decided here. Policies that go through the allocator see exactly what a site's scheduler could tell it: no
work that is still to come, and of each budget's queue only the window that the caller hands in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, TypeVar

from pydantic import BaseModel

from cpalloc.problem.problem import Mode
from cpalloc.schema import Round
from cpalloc.schema import request as wire
from cpalloc.schema.answer import ReservationRow
from cpalloc.schema.types import NodeState as WireNodeState
from cpalloc.schema.types import RunMode
from cpalloc.sim.columns import NODE_STATES
from cpalloc.sim.state import NodePlaces, State
from cpalloc.sim.workload import WorkJob

_WIRE_STATES = {inside: outside for outside, inside in NODE_STATES.items()}

M = TypeVar("M", bound=BaseModel)


class _Run(NamedTuple):
    """What the row of a running job follows from."""

    places: NodePlaces
    started_s: int
    mode: Mode
    allocated_since_s: int
    checkpointed_s: int


class RoundMaker:
    """Makes rounds of one simulation; what does not change between them is made once.

    Parameters
    ----------
    options
        How long and how the solver may work on each round.
    """

    def __init__(self, options: wire.Options) -> None:
        self._options = options
        self._pending: dict[int, wire.Job] = {}
        self._running: dict[int, tuple[_Run, wire.Job]] = {}
        self._cluster: tuple[list[object], wire.Cluster] | None = None

    def make(
        self, state: State, queue: Iterable[int], reservations: Sequence[ReservationRow]
    ) -> tuple[Round, dict[str, int]]:
        """The round at ``state.now_s``, and the index of every job in it by its id.

        Parameters
        ----------
        queue
            Pending jobs to tell about; running jobs are told about all.
        reservations
            Promises of the last answer.
        """
        jobs, waiting = state.workload.jobs, list(queue)
        rows = [*(self._pending_row(state, job) for job in waiting), *self._running_rows(state)]
        round_ = Round.model_construct(
            schema_version=1,
            now=self._instant(state, state.now_s),
            cluster=self._cluster_of(state),
            budgets=_budgets(state),
            jobs=tuple(rows),
            finished=(),
            previous=wire.Previous.model_construct(reservations=tuple(reservations)),
            policy=state.config.site,
            options=self._options,
        )
        return round_, {jobs[job].id: job for job in (*waiting, *state.running)}

    @staticmethod
    def _instant(state: State, at_s: int) -> datetime:
        return state.workload.epoch + timedelta(seconds=at_s)

    def _instant_or_none(self, state: State, at_s: int) -> datetime | None:
        return None if at_s < 0 else self._instant(state, at_s)

    def _pending_row(self, state: State, job: int) -> wire.Job:
        if job not in self._pending:
            self._pending[job] = _pending(state, state.workload.jobs[job], job)
        return self._pending[job]

    def _running_rows(self, state: State) -> list[wire.Job]:
        """Rows of the running jobs; those that have not changed since the last round are the same objects."""
        before, self._running = self._running, {}
        for job in state.running:
            run = _Run(
                state.places[job],
                state.started_s[job],
                state.mode[job],
                state.allocated_since_s[job],
                state.checkpointed_s(job),
            )
            known = before.get(job)
            if known is None or known[0] != run:
                stays = known is not None and known[0].places is run.places
                placement = known[1].running.placement if known and stays and known[1].running else None
                known = run, self._running_row(state, job, run, placement)
            self._running[job] = known
        return [row for _, row in self._running.values()]

    def _running_row(self, state: State, job: int, run: _Run, placement: tuple[wire.Placement, ...] | None) -> wire.Job:
        names, each = state.nodes.names, state.jobs.gpus_per_replica[job]
        if placement is None:
            placement = tuple(
                wire.Placement.model_construct(node=names[node], gpus=devices)
                for node, mask in run.places
                for devices in _replicas(mask, each)
            )
        started_at = self._instant(state, run.started_s)
        running = wire.Running.model_construct(
            mode=RunMode.ALLOCATED if run.mode is Mode.ALLOCATED else RunMode.BORROWED,
            placed_at=started_at,
            started_at=started_at,
            allocated_since=self._instant_or_none(state, run.allocated_since_s),
            checkpointed_at=self._instant_or_none(state, run.checkpointed_s),
            placement=placement,
            stopping=False,
            utilisation=None,
        )
        return _changed(self._pending_row(state, job), running=running)

    def _cluster_of(self, state: State) -> wire.Cluster:
        known: list[object] = list(state.node_state)
        if self._cluster is None or self._cluster[0] != known:
            cluster = state.workload.cluster
            inside = dict(zip(state.nodes.names, state.node_state, strict=True))
            nodes = tuple(
                node
                if (now := _WIRE_STATES.get(inside[node.name], WireNodeState.READY)) is node.state
                else _changed(node, state=now)
                for node in cluster.nodes
            )
            self._cluster = known, _changed(cluster, nodes=nodes)
        return self._cluster[1]


def _pending(state: State, job: WorkJob, index: int) -> wire.Job:
    return wire.Job(
        id=job.id,
        budget=job.budget,
        submitted_at=state.workload.epoch + timedelta(seconds=job.submitted_s),
        replicas=job.replicas,
        gpus_per_replica=job.gpus_per_replica,
        priority=job.priority,
        kind=job.kind,
        gpu_types=job.gpu_types,
        topology=wire.Topology(required=job.required_level, preferred=job.preferred_level),
        min_runtime=state.jobs.min_runtime_s[index],
        resumable=job.resumable,
        funding=job.funding,
        timeout=None if job.timeout_s < 0 else job.timeout_s,
        restart_cost=job.restart_cost_s,
    )


def _budgets(state: State) -> tuple[wire.Budget, ...]:
    """The present tree with what its leaves were charged and are owed over the window.

    A leaf that is in the tree no more while its jobs still run stays for as long, without a weight.
    """
    ledger, now_s = state.ledger, state.now_s
    leaf_of = {name: i for i, name in enumerate(ledger.leaf_names)}
    parents, named = {b.parent for b in state.budgets}, {b.name for b in state.budgets}
    used = {ledger.leaf_names[state.jobs.leaf[job]] for job in state.running}
    gone = tuple(wire.Budget(name=name, weight=0) for name in sorted(used - named))
    return tuple(
        b
        if b.name in parents
        else _changed(
            b,
            charged_gpu_seconds=ledger.charged(leaf_of[b.name], now_s),
            owed_gpu_seconds=ledger.owed(leaf_of[b.name], now_s),
        )
        for b in (*state.budgets, *gone)
    )


def _replicas(mask: int, each: int) -> list[tuple[int, ...]]:
    """The devices of a node split into replicas of ``each`` GPUs, lowest first."""
    devices = [i for i in range(mask.bit_length()) if mask >> i & 1]
    return [tuple(devices[i : i + each]) for i in range(0, len(devices), each)]


def _changed(model: M, **values: object) -> M:
    return model.model_copy(update=values)
