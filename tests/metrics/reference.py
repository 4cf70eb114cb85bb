"""The same measures once more, slowly: one GPU at a time, copies by placing them, instants by trying them."""

from __future__ import annotations

from dataclasses import dataclass, field

from cpalloc.problem.problem import US, Action, Decision, JobState, Mode, NodeState, Problem, Shape


@dataclass
class Gpu:
    """One in-service GPU: who holds it."""

    holders: list[int] = field(default_factory=list)


def holders(problem: Problem, decision: Decision) -> dict[int, tuple[str, int]]:
    """Job -> (kind, microseconds of protection left) for every job that holds something."""
    jobs = problem.jobs
    result = {}
    for j in range(len(jobs)):
        action, state = decision.action[j], jobs.state[j]
        if state == JobState.STOPPING:
            result[j] = ("stopping", 0)
        elif action in (Action.KEEP, Action.START):
            if decision.mode[j] == Mode.BORROWED:
                result[j] = ("borrowed", 0)
            elif action == Action.START or decision.promoted[j]:
                result[j] = ("allocated", int(jobs.min_runtime_s[j]) * US)
            else:
                left = int(jobs.protected_until_us[j]) - problem.now_us if jobs.protected[j] else 0
                result[j] = ("allocated", left)
    return result


class Cluster:
    """Every in-service GPU with its holders; exclusive jobs per node."""

    def __init__(self, problem: Problem, decision: Decision) -> None:
        self.problem = problem
        self.kinds = holders(problem, decision)
        self.nodes: list[list[Gpu]] = []
        self.exclusive: list[list[int]] = []
        self.draining_held = 0
        for n in range(len(problem.nodes.names)):
            places = [
                (j, r)
                for j in self.kinds
                for r in (decision.placement[j] if decision.action[j] == Action.START else problem.jobs.placement[j])
                if r.node == n
            ]
            self.exclusive.append([j for j, _ in places if problem.jobs.exclusive[j]])
            self.nodes.append(self._gpus(n, places))

    def _gpus(self, n, places):
        nodes = self.problem.nodes
        if nodes.state[n] == NodeState.DOWN:
            return []
        draining = nodes.state[n] == NodeState.DRAINING
        if nodes.unknown_devices[n]:
            # Counts: fill with whatever is protected longest; what does not fit sits on GPUs out of service.
            order = sorted(places, key=lambda p: (self._priority(p[0]), -self.kinds[p[0]][1], p[0]))
            flat = [j for j, r in order for _ in range(r.gpus)]
            size = int(nodes.gpus[n] if draining else nodes.healthy[n])
            gpus = [Gpu([j]) for j in flat[:size]] + [Gpu() for _ in range(size - len(flat))]
            if len(flat) > size:
                # Stopping jobs cut off here may lie under borrowed ones.
                extra = [j for j in flat[size:] if self.kinds[j][0] == "stopping"]
                borrowed = [g for g in gpus if self.kinds[g.holders[0]][0] == "borrowed"]
                for gpu, j in zip(borrowed, extra, strict=False):
                    gpu.holders.append(j)
        else:
            gpus = []
            for device in range(int(nodes.gpus[n])):
                if draining or nodes.healthy_devices[n] >> device & 1:
                    gpus.append(Gpu([j for j, r in places if r.devices >> device & 1]))
        if draining:
            self.draining_held += sum(1 for g in gpus if g.holders)
            return []
        return gpus

    def _priority(self, j):
        return ["allocated", "borrowed", "stopping"].index(self.kinds[j][0])

    def kind(self, gpu):
        return min((self.kinds[j][0] for j in gpu.holders), default="free")  # alphabetical order is the right one

    def count(self, n, kind):
        return sum(1 for gpu in self.nodes[n] if self.kind(gpu) == kind)

    def usable(self, n):
        return 0 if self.exclusive[n] else self.count(n, "free")

    def usable_with_borrowed(self, n):
        if any(self.kinds[j][0] != "borrowed" for j in self.exclusive[n]):
            return 0
        return sum(1 for gpu in self.nodes[n] if all(self.kinds[j][0] == "borrowed" for j in gpu.holders))

    def available(self, n, at):
        """GPUs of a node that protection does not forbid ``at`` microseconds from now."""
        if any(self.kinds[j][1] > at for j in self.exclusive[n]):
            return 0
        return sum(1 for gpu in self.nodes[n] if all(self.kinds[j][1] <= at for j in gpu.holders))

    def fits(self, shape: Shape, room):
        """Copies placed one replica at a time; ``room[n]`` is what each node offers."""
        copies = 0
        topology, pools = self.problem.topology, self.problem.nodes.pool
        for domain in range(len(topology.names[shape.level])):
            for pool in range(len(self.problem.pool_names)):
                if shape.pool not in (-1, pool):
                    continue
                left = [
                    room[n]
                    for n in range(len(room))
                    if topology.domain_of[shape.level, n] == domain and pools[n] == pool
                ]
                placed = 0
                for i in range(len(left)):
                    while left[i] >= shape.gpus_per_replica:
                        left[i] -= shape.gpus_per_replica
                        placed += 1
                copies += placed // shape.replicas
        return copies

    def placeable(self, shape):
        return self.fits(shape, [self.usable(n) for n in range(len(self.nodes))])

    def free(self, shape):
        pools = self.problem.nodes.pool
        return sum(self.count(n, "free") for n in range(len(self.nodes)) if shape.pool in (-1, pools[n]))

    def time_to_place(self, shape):
        cap = self.problem.policy.max_min_runtime_s
        for at in sorted({0, *(left for _, left in self.kinds.values())}):
            if self.fits(shape, [self.available(n, at) for n in range(len(self.nodes))]):
                seconds = at // US + (at % US > 0)
                return min(cap, seconds)
        return cap

    def largest(self, level, usable):
        """The largest gang found by trying every size of replica and gang in every domain and pool."""
        nodes, topology = self.problem.nodes, self.problem.topology
        best = (0, 0)
        for domain in range(len(topology.names[level])):
            for pool in range(len(self.problem.pool_names)):
                for size in set(nodes.gpus.tolist()):
                    whole = sum(
                        1
                        for n in range(len(self.nodes))
                        if topology.domain_of[level, n] == domain
                        and nodes.pool[n] == pool
                        and nodes.state[n] == NodeState.READY
                        and nodes.gpus[n] == nodes.healthy[n] == size == usable(n)
                    )
                    if whole and (whole * size, -whole) > (best[0], -best[1]):
                        best = (whole * size, whole)
        return best

    def free_at(self, level, domain, decision):
        """Last protection of a job with a replica in the domain."""
        at = 0
        for j, (_, left) in self.kinds.items():
            start = decision.action[j] == Action.START
            for r in decision.placement[j] if start else self.problem.jobs.placement[j]:
                if r.node >= 0 and self.problem.topology.domain_of[level, r.node] == domain:
                    at = max(at, left)
        return self.problem.now_us + at

    def tier(self):
        policy = self.problem.policy
        total = 0
        for s in self.problem.shape_mix:
            stranded = self.free(s) - self.placeable(s) * s.size
            total += s.weight * (stranded * policy.charge_horizon_s + s.size * self.time_to_place(s))
        return total
