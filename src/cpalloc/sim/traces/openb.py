"""Alibaba openb, cluster-trace-gpu-v2023 (ATC'23): pods that may take a part of a GPU."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cpalloc.sim.traces.base import Trace
from cpalloc.sim.traces.build import Columns, build_trace, left_out
from cpalloc.sim.traces.source import Format, Source
from cpalloc.topology.naming import as_id

_COLUMNS = ("name", "num_gpu", "gpu_milli", "creation_time", "deletion_time", "scheduled_time")

_ZERO = datetime(2023, 1, 1, tzinfo=UTC)
"""Where second 0 of the trace is put; its real start is not known."""


def read(source: Source) -> Trace:
    """Read openb pods; there are no teams. Work is from being scheduled to being deleted.

    Parts of a GPU are rounded up to a whole one. Pods without GPUs, and those that were never scheduled (whose work
    nobody knows), are counted and left out. ``gpu_spec`` holds where the list of nodes has such models.

    Raises
    ------
    InputError
        Bad cells, with file and line.
    """
    table = source.table
    table.need(_COLUMNS)
    ids = [as_id(i) for i in table.texts("name")]
    table.unique("name", ids)
    gpus, milli = table.integers("num_gpu"), table.integers("gpu_milli")
    created, deleted = table.integers("creation_time"), table.integers("deletion_time")
    scheduled = table.integers("scheduled_time", empty=-1)
    for row, (begin, end) in enumerate(zip(scheduled, deleted, strict=True)):
        if begin > end:
            table.complain(row, "deletion_time", f"{end} is before scheduled_time {begin}")
    specs = table.texts("gpu_spec", empty="") if table.has("gpu_spec") else [""] * len(ids)
    table.finish()

    facts = source.cluster()
    models = {node.gpu_type for node in facts.nodes}
    known_specs = all(model in models for spec in set(specs) for model in spec.split("|") if model)
    keep = [g > 0 and s >= 0 for g, s in zip(gpus, scheduled, strict=True)]
    columns = Columns(
        ids=ids,
        submitted=[_ZERO + timedelta(seconds=s) for s in created],
        gangs=[(1, g) for g in gpus],
        work_s=[max(0, end - begin) for begin, end in zip(scheduled, deleted, strict=True)],
        more={"gpu_types": [tuple(filter(None, spec.split("|"))) or None for spec in specs]} if known_specs else {},
        keep=keep,
    )
    parts = [m for g, m, k in zip(gpus, milli, keep, strict=True) if k and g == 1 and m < 1_000]
    never = sum(g > 0 and s < 0 for g, s in zip(gpus, scheduled, strict=True))
    notes = (
        *left_out(gpus.count(0), "pods without GPUs"),
        *left_out(never, "pods that were never scheduled"),
        f"{len(parts):,} pods take part of a GPU ({sum(parts) / 1_000:,.0f} GPUs in all): rounded up to whole GPUs",
        f"the trace does not say when it begins: {_ZERO:%Y-%m-%d} assumed",
    )
    if not known_specs:
        notes += (f"gpu_spec of {sum(map(bool, specs)):,} pods is left out: the nodes have no such models",)
    return build_trace(source, "openb", columns, facts, notes)


OPENB = Format("openb", (frozenset(_COLUMNS),), read)
