"""Slurm accounting: what ``sacct --parsable2`` (or ``--parsable``) prints, whatever fields it was asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cpalloc.schema import Node
from cpalloc.schema.types import JobKind
from cpalloc.sim.traces.base import GPU_TYPE, ClusterFacts, Trace
from cpalloc.sim.traces.build import Columns, build_trace, left_out
from cpalloc.sim.traces.nodes import GPUS_PER_NODE, count_nodes
from cpalloc.sim.traces.shapes import gang_of
from cpalloc.sim.traces.slurm_rows import Record, read_records
from cpalloc.sim.traces.source import Format, Source
from cpalloc.topology.naming import as_id


def read(source: Source) -> Trace:
    """Read what ``sacct`` printed, fields in any order.

    Needed are JobIDRaw or JobID, Submit, State, ElapsedRaw or Elapsed, and AllocTRES or ReqTRES; used where they are
    there: User, Account, NNodes, Start, Timelimit or TimelimitRaw, JobName. The account is the team; Priority, a number
    that changes while a job waits, is not used. Steps (``123.batch``) are passed over, every task of an array is a job,
    and the runs of a requeued job (``--duplicates``) are one job with the work of all of them. Jobs without GPUs and
    jobs that never started are counted and left out; those still running bring what they have run so far.

    Where the caller does not say how large the cluster was, each GPU type has as many nodes as held its GPUs at the
    busiest instant.

    Raises
    ------
    InputError
        Missing fields, or bad cells with file and line.
    """
    records = read_records(source.table)
    jobs = _merged(records)
    with_gpus = [job for job in jobs if job.gpus > 0]
    ran = [job for job in with_gpus if job.ran]
    facts = _cluster(source, ran, [r for r in records if r.gpus > 0 and r.ran])
    per_node = source.gpus_of_a_node(facts)
    more: dict[str, Sequence[object]] = {"user": [job.user for job in ran]}
    if any(source.table.has(name) for name in ("Timelimit", "TimelimitRaw")):
        more["timeout_s"] = [job.limit_s for job in ran]
    if source.table.has("JobName"):
        more["kind"] = [JobKind.INTERACTIVE if job.interactive else JobKind.BATCH for job in ran]
    types = {as_id(job.gpu_type) for job in ran if job.gpu_type}
    if types and types <= {node.gpu_type for node in facts.nodes}:
        more["gpu_types"] = [(as_id(job.gpu_type),) if job.gpu_type else None for job in ran]
    columns = Columns(
        ids=[as_id(job.id) for job in ran],
        submitted=[job.submitted for job in ran],
        gangs=[(job.nodes, -(-job.gpus // job.nodes)) if job.nodes else gang_of(job.gpus, per_node) for job in ran],
        work_s=[job.elapsed_s for job in ran],
        teams=[as_id(job.account) for job in ran],
        more=more,
    )
    uneven = sum(job.nodes > 0 and job.gpus % job.nodes > 0 for job in ran)
    running = sum(job.state == "RUNNING" for job in ran)
    notes = (
        *left_out(len(jobs) - len(with_gpus), "jobs without GPUs"),
        *left_out(len(with_gpus) - len(ran), "jobs that never started"),
        *(
            (f"{len(records) - len(jobs):,} further runs of requeued jobs added to them",)
            if len(jobs) < len(records)
            else ()
        ),
        *((f"{running:,} jobs were still running: their work so far",) if running else ()),
        *((f"{uneven:,} jobs do not divide evenly over their nodes: rounded up",) if uneven else ()),
        "times taken as UTC",
    )
    return build_trace(source, "Slurm", columns, facts, notes)


def _merged(records: list[Record]) -> list[Record]:
    """One record a job: the first submission, the work of all runs, and how the last one ended."""
    jobs: dict[str, Record] = {}
    for record in sorted(records, key=lambda r: (r.submitted, r.start)):
        before = jobs.get(record.id)
        if before is not None:
            elapsed_s = before.elapsed_s + record.elapsed_s
            record = replace(record, submitted=before.submitted, start=before.start, elapsed_s=elapsed_s)
        jobs[record.id] = record
    return list(jobs.values())


def _cluster(source: Source, jobs: list[Record], runs: list[Record]) -> ClusterFacts:
    """The caller's nodes, else the busiest instant's."""
    if source.nodes is not None or not source.table.has("Start") or not runs:
        return source.cluster()
    nodes: list[Node] = []
    notes: list[str] = []
    for gpu_type in sorted({run.gpu_type or "" for run in runs}):
        of_type = [run for run in runs if (run.gpu_type or "") == gpu_type]
        each = source.gpus_per_node or max(
            (-(-job.gpus // job.nodes) for job in of_type if job.nodes),
            default=GPUS_PER_NODE,
        )
        count = max(-(-_busiest(of_type) // each), *(job.nodes for job in of_type))
        name = as_id(gpu_type or GPU_TYPE)
        nodes += [
            node.model_copy(update={"name": f"{name}-{node.name}"}) for node in count_nodes(count, each, name).nodes
        ]
        notes.append(f"{count:,} nodes of {each} {name}: what the busiest instant of the trace takes")
    return ClusterFacts(nodes=tuple(nodes), notes=tuple(notes))


def _busiest(runs: list[Record]) -> int:
    """Most GPUs held at any instant."""
    changes = [(run.start.timestamp(), run.gpus) for run in runs]
    changes += [(run.start.timestamp() + run.elapsed_s, -run.gpus) for run in runs]
    held, most = 0, 0
    for _, change in sorted(changes):  # ends before starts
        held += change
        most = max(most, held)
    return most


SLURM = Format(
    "slurm",
    (frozenset({"JobIDRaw", "Submit", "State"}), frozenset({"JobID", "Submit", "State"})),
    read,
)
