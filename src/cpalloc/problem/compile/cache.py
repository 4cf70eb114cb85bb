"""What compiling one round can hand on to the next: everything that does not change as long as its objects are there.

Wire models are frozen, so one that is met again is recognised by its identity. What is found under an ``id`` is
compared all the same: a cache that was pickled and read back has other objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from cpalloc.problem.compile.admission import Where, where
from cpalloc.problem.compile.nodes import Hardware, hardware
from cpalloc.problem.compile.stays import NOWHERE, Lies, read_placement
from cpalloc.problem.compile.terms import Asked, Kind, kind_key, read_terms
from cpalloc.schema.request import Cluster as WireCluster
from cpalloc.schema.request import Job, Placement
from cpalloc.topology import Cluster, Topology, to_arrays


@dataclass(slots=True)
class Ground:
    """A cluster as arrays, and what has been worked out about it.

    ``asked_for`` are the resources its jobs name; ``lies`` keeps the placements whose identities are its keys.
    """

    cluster: WireCluster
    asked_for: frozenset[str]
    hw: Hardware
    topology: Topology
    wheres: dict[Kind, Where] = field(default_factory=dict)
    lies: dict[int, tuple[Sequence[Placement], Lies]] = field(default_factory=dict)

    def where(self, kind: Kind) -> Where:
        """Where jobs of a kind can run."""
        if kind not in self.wheres:
            self.wheres[kind] = where(kind.like, self.hw, self.topology)
        return self.wheres[kind]

    def read_places(self, rows: Sequence[Asked]) -> list[Lies]:
        """Where every job lies; only these placements are remembered."""
        before, self.lies = self.lies, {}
        out = []
        for row in rows:
            if row.job.running is None:
                out.append(NOWHERE)
                continue
            placement = row.job.running.placement
            known = before.get(id(placement))
            if known is None or known[0] is not placement:
                known = placement, read_placement(placement, self.hw)
            self.lies[id(placement)] = known
            out.append(known[1])
        return out


class CompileCache:
    """Hand the same one to every :func:`compile_round` of a sequence of rounds; results are what they are without it.

    A cluster, a job and a placement that are the same object as in the last round are not read again. The last round's
    objects are kept alive, no others, and one job of every kind met.
    """

    def __init__(self) -> None:
        self._ground: Ground | None = None
        self._asked: dict[int, Asked] = {}
        self._kinds: dict[tuple[object, ...], Kind] = {}

    def ask(self, jobs: Sequence[Job]) -> list[Asked]:
        """The jobs' terms, in the order given."""
        before = self._asked
        rows = [row if (row := before.get(id(job))) and row.job is job else self._read(job) for job in jobs]
        self._asked = {id(row.job): row for row in rows}
        return rows

    def ground(self, cluster: WireCluster, rows: Sequence[Asked]) -> Ground:
        """The cluster, with a column for every resource that one of its nodes or of the jobs mentions."""
        kinds = {row.kind for row in rows}
        asked_for = frozenset(name for kind in kinds for name in kind.like.resources_per_replica)
        ground = self._ground
        if ground is None or ground.cluster is not cluster or ground.asked_for != asked_for:
            read = Cluster.from_wire(cluster)
            ground = Ground(cluster, asked_for, hardware(read.nodes, asked_for), to_arrays(read)[1])
        self._ground = ground
        return ground

    def _read(self, job: Job) -> Asked:
        key = kind_key(job)
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = Kind(job)
        return Asked(job, kind, read_terms(job))
