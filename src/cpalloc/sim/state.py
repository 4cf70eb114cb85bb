"""The state of a simulated cluster: what a policy sees. Only the simulator changes it."""

from __future__ import annotations

from enum import IntEnum
from fractions import Fraction

from cpalloc.problem.problem import Mode, NodeState
from cpalloc.schema import Budget
from cpalloc.sim.check import all_leaves, check_workload, leaf_shares
from cpalloc.sim.columns import JobColumns, NodeColumns, job_columns, node_columns
from cpalloc.sim.config import SimConfig
from cpalloc.sim.ledger import Ledger
from cpalloc.sim.workload import Workload

NodePlaces = tuple[tuple[int, int], ...]
"""Where a job lies: (node index, device bitmask) per node."""


class JobStatus(IntEnum):
    """Where a job stands."""

    NOT_SUBMITTED = 0
    PENDING = 1
    RUNNING = 2
    LEFT = 3


class State:
    """A cluster at an instant. Policies read it and must not change it.

    Everything per job is a list indexed like ``workload.jobs``, everything per node one indexed like ``nodes.names``
    (which is by name). ``-1`` stands for no instant.

    Attributes
    ----------
    now_s : int
        The present instant.
    workload, config
        What is simulated, and how; ``config.site`` has the numbers of the site's policy.
    nodes, jobs : NodeColumns, JobColumns
        What never changes.
    node_state : list of NodeState
    free_devices, free_gpus : list of int
        Healthy, unheld GPUs of ready nodes, as bitmask and number; 0 on others: what starts may use.
    held_devices : list of int
        GPUs held by jobs, whatever the node's state.
    node_jobs : list of dict
        Jobs on each node (the keys).
    in_service_gpus, idle_gpus : int
        Healthy GPUs of ready nodes; those of them that are free.
    status : list of JobStatus
    mode : list of Mode
        NONE unless running.
    started_s, allocated_since_s, protected_until_s : list of int
        Of the present run; -1 for jobs that don't run, and where there is none.
    starts : list of int
        How often a job has been started.
    saved_s : list of int
        Work that is safe: what a start would go on from.
    restart_s : list of int
        Seconds of the present run that go into restarting, from its start.
    restart_left_s : list of int
        Seconds of a restart that a suspended job was still in the middle of.
    places : list of NodePlaces
        Empty for jobs that don't run.
    pending, running : dict
        The jobs (the keys), in the order in which they became so.
    pending_gpus, allocated_gpus, borrowed_gpus : int
        Sums over pending jobs, and over running jobs by mode.
    ledger : Ledger
        Its leaves are those of all funding trees of the workload, sorted by name.
    budgets, budgets_version
        The present funding tree, and how often it has changed.
    """

    __slots__ = (
        "allocated_gpus",
        "allocated_since_s",
        "borrowed_gpus",
        "budgets",
        "budgets_version",
        "config",
        "free_devices",
        "free_gpus",
        "held_devices",
        "idle_gpus",
        "in_service_gpus",
        "jobs",
        "ledger",
        "mode",
        "node_jobs",
        "node_state",
        "nodes",
        "now_s",
        "pending",
        "pending_gpus",
        "places",
        "protected_until_s",
        "restart_left_s",
        "restart_s",
        "running",
        "saved_s",
        "started_s",
        "starts",
        "status",
        "workload",
    )

    def __init__(self, workload: Workload, config: SimConfig) -> None:
        """Lay out the empty cluster; InputError lists everything wrong with the workload."""
        cluster = check_workload(workload, config.start_s)
        leaves = all_leaves(workload)
        leaf_of = {name: i for i, name in enumerate(leaves)}
        self.now_s = config.start_s
        self.workload = workload
        self.config = config
        self.nodes: NodeColumns = node_columns(cluster)
        self.jobs: JobColumns = job_columns(workload.jobs, self.nodes, leaf_of, config.site.max_min_runtime)

        self.node_state: list[NodeState] = list(self.nodes.state)
        ready = [s is NodeState.READY for s in self.node_state]
        self.free_devices = [h if r else 0 for h, r in zip(self.nodes.healthy, ready, strict=True)]
        self.free_gpus = [mask.bit_count() for mask in self.free_devices]
        self.held_devices = [0] * len(self.nodes)
        self.node_jobs: list[dict[int, None]] = [{} for _ in self.nodes.names]
        self.in_service_gpus = self.idle_gpus = sum(self.free_gpus)

        size = len(self.jobs)
        self.status: list[JobStatus] = [JobStatus.NOT_SUBMITTED] * size
        self.mode: list[Mode] = [Mode.NONE] * size
        self.started_s = [-1] * size
        self.allocated_since_s = [-1] * size
        self.protected_until_s = [-1] * size
        self.starts = [0] * size
        self.saved_s = [0] * size
        self.restart_s = [0] * size
        self.restart_left_s = [0] * size
        self.places: list[NodePlaces] = [()] * size
        self.pending: dict[int, None] = {}
        self.running: dict[int, None] = {}
        self.pending_gpus = self.allocated_gpus = self.borrowed_gpus = 0

        self.budgets: tuple[Budget, ...] = workload.budgets
        self.budgets_version = 0
        self.ledger = Ledger(
            leaves,
            config.start_s,
            config.site.window,
            self.in_service_gpus,
            self._shares(leaves, workload.budgets),
            prior_s=config.site.charge_horizon if config.prior_s is None else config.prior_s,
        )

    # What a policy may ask.

    def is_protected(self, job: int) -> bool:
        """Whether the job runs allocated and is younger than its minimum runtime."""
        return self.protected_until_s[job] > self.now_s

    def progress_s(self, job: int) -> int:
        """Work done by now, safe or not."""
        if self.status[job] is not JobStatus.RUNNING:
            return self.saved_s[job]
        return self.saved_s[job] + max(0, self.now_s - self.started_s[job] - self.restart_s[job])

    def remaining_work_s(self, job: int) -> int:
        """Work still to do: what only an oracle knows."""
        return self.jobs.work_s[job] - self.progress_s(job)

    def next_restart_s(self, job: int) -> int:
        """Seconds a pending job would spend on restarting: none if it has never run."""
        return self.jobs.restart_cost_s[job] + self.restart_left_s[job] if self.starts[job] else 0

    def needed_s(self, job: int) -> int:
        """Seconds the job still has to hold its GPUs, restarts included: what only an oracle knows."""
        jobs = self.jobs
        if self.status[job] is JobStatus.RUNNING:
            needed = self.finish_s(job) - self.now_s
            left = self.started_s[job] + jobs.timeout_s[job] - self.now_s
        else:
            needed = self.next_restart_s(job) + jobs.work_s[job] - self.saved_s[job]
            left = jobs.timeout_s[job]
        return needed if jobs.timeout_s[job] < 0 else min(needed, left)

    def finish_s(self, job: int) -> int:
        """Instant at which the work of a running job is done if nothing stops it."""
        return self.started_s[job] + self.restart_s[job] + self.jobs.work_s[job] - self.saved_s[job]

    def checkpointed_s(self, job: int) -> int:
        """Instant of the last checkpoint of the present run, -1 if there is none: progress is safe up to it."""
        if not self.jobs.resumable[job] or self.status[job] is not JobStatus.RUNNING:
            return -1
        up_s = self.started_s[job] + self.restart_s[job]
        every_s = self.jobs.checkpoint_interval_s[job]
        worked_s = self.now_s - up_s
        if worked_s < max(every_s, 0):
            return -1
        return self.now_s - worked_s % every_s if every_s else self.now_s

    def lost_s(self, job: int) -> int:
        """Seconds of its present run a job would lose if it was stopped now (policy section 4)."""
        if self.status[job] is not JobStatus.RUNNING:
            return 0
        return self.now_s - max(self.started_s[job], self.checkpointed_s(job))

    def lost_gpu_s(self, job: int) -> int:
        """GPUs × lost work if it was stopped now, in GPU-seconds."""
        return self.jobs.size[job] * self.lost_s(job)

    def preempt_cost(self, job: int) -> int:
        """GPUs × (lost work + restart cost), in GPU-seconds (policy section 4)."""
        return self.jobs.size[job] * (self.lost_s(job) + self.jobs.restart_cost_s[job])

    def safe_s(self, job: int) -> int:
        """Work that would be safe if the job was stopped now."""
        at_s = self.checkpointed_s(job)
        if at_s < 0:
            return self.saved_s[job]
        return self.saved_s[job] + at_s - self.started_s[job] - self.restart_s[job]

    def restarting_s(self, job: int) -> int:
        """Seconds until a running job is done with restarting."""
        return max(0, self.started_s[job] + self.restart_s[job] - self.now_s)

    # What the simulator does.

    def submit(self, job: int) -> None:
        """Put a job into the queue, for the first time or again."""
        self.status[job] = JobStatus.PENDING
        self.pending[job] = None
        self.pending_gpus += self.jobs.size[job]

    def refuse(self, job: int) -> None:
        """Let a job leave without ever having been in the queue."""
        self.status[job] = JobStatus.LEFT

    def start(self, job: int, mode: Mode, places: NodePlaces, protected_until_s: int) -> None:
        """Start a pending job."""
        size = self.jobs.size[job]
        del self.pending[job]
        self.pending_gpus -= size
        self.running[job] = None
        self.status[job] = JobStatus.RUNNING
        self.restart_s[job] = self.next_restart_s(job)
        self.starts[job] += 1
        self.started_s[job] = self.now_s
        self.places[job] = places
        self.idle_gpus -= size
        for node, devices in places:
            self.held_devices[node] |= devices
            self.node_jobs[node][job] = None
            self._count_free(node)
        self._set_mode(job, mode, protected_until_s)

    def promote(self, job: int, protected_until_s: int) -> None:
        """Let a borrowed job go on allocated, with a new window of protection."""
        self.borrowed_gpus -= self.jobs.size[job]
        self._set_mode(job, Mode.ALLOCATED, protected_until_s)

    def stop(self, job: int, saved_s: int, restart_left_s: int = 0) -> None:
        """End the present run of a job; ``saved_s`` of its work is safe. It has left unless it is submitted again."""
        size = self.jobs.size[job]
        del self.running[job]
        self.status[job] = JobStatus.LEFT
        self.saved_s[job] = saved_s
        self.restart_left_s[job] = restart_left_s
        if self.mode[job] is Mode.ALLOCATED:
            self.allocated_gpus -= size
            self.ledger.charge(self.jobs.leaf[job], self.now_s, -size)
        else:
            self.borrowed_gpus -= size
        self.mode[job] = Mode.NONE
        self.started_s[job] = self.allocated_since_s[job] = self.protected_until_s[job] = -1
        self.restart_s[job] = 0
        for node, devices in self.places[job]:
            self.held_devices[node] &= ~devices
            del self.node_jobs[node][job]
            self.idle_gpus -= self.free_gpus[node]
            self._count_free(node)
            self.idle_gpus += self.free_gpus[node]
        self.places[job] = ()

    def set_node_state(self, node: int, state: NodeState) -> None:
        """Take a node out of service or put it back; what runs on it is not looked at."""
        healthy = self.nodes.healthy[node].bit_count()
        served = healthy if self.node_state[node] is NodeState.READY else 0
        serves = healthy if state is NodeState.READY else 0
        self.node_state[node] = state
        self.idle_gpus -= self.free_gpus[node]
        self._count_free(node)
        self.idle_gpus += self.free_gpus[node]
        self.in_service_gpus += serves - served
        if serves != served:
            self.ledger.serve(self.now_s, serves - served)

    def set_budgets(self, budgets: tuple[Budget, ...]) -> None:
        """Replace the funding tree; charges stay with their leaves."""
        self.budgets = budgets
        self.budgets_version += 1
        self.ledger.share_out(self.now_s, self._shares(self.ledger.leaf_names, budgets))

    def _set_mode(self, job: int, mode: Mode, protected_until_s: int) -> None:
        self.mode[job] = mode
        if mode is Mode.ALLOCATED:
            self.allocated_gpus += self.jobs.size[job]
            self.allocated_since_s[job] = self.now_s
            self.protected_until_s[job] = protected_until_s
            self.ledger.charge(self.jobs.leaf[job], self.now_s, self.jobs.size[job])
        else:
            self.borrowed_gpus += self.jobs.size[job]

    def _count_free(self, node: int) -> None:
        ready = self.node_state[node] is NodeState.READY
        free = self.nodes.healthy[node] & ~self.held_devices[node] if ready else 0
        self.free_devices[node] = free
        self.free_gpus[node] = free.bit_count()

    @staticmethod
    def _shares(leaves: tuple[str, ...], budgets: tuple[Budget, ...]) -> list[Fraction]:
        share = leaf_shares(budgets)
        return [share.get(leaf, Fraction(0)) for leaf in leaves]
