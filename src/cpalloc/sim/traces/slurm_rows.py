"""Records of Slurm's accounting, one a run of a job."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from cpalloc.errors import InputError, Issue
from cpalloc.sim.traces.slurm_cells import NEVER, NO_LIMIT, parse_gpus, parse_instant, parse_limit, parse_seconds
from cpalloc.sim.traces.table import Table

NO_ACCOUNT = "no-account"

_NEEDED = (("JobIDRaw", "JobID"), ("Submit",), ("State",), ("ElapsedRaw", "Elapsed"), ("AllocTRES", "ReqTRES"))
_INTERACTIVE_NAMES = frozenset({"interactive", "bash", "sh", "zsh", "jupyter", "jupyter-notebook", "jupyter-lab"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A run of a job; ``nodes`` 0: not given; ``limit_s`` -1: none; ``start`` :data:`NEVER`: it did not start."""

    id: str
    account: str
    user: str
    submitted: datetime
    start: datetime
    state: str
    elapsed_s: int
    limit_s: int
    gpus: int
    gpu_type: str | None
    nodes: int
    interactive: bool

    @property
    def ran(self) -> bool:
        """Whether it ever ran; without a start, a time it took says so."""
        return self.start != NEVER or self.elapsed_s > 0


def read_records(table: Table) -> list[Record]:
    """All records but steps.

    Raises
    ------
    InputError
        Missing fields, or bad cells with file and line.
    """
    _need(table)
    id_column = _there(table, _NEEDED[0])
    table = table.where(["." not in name for name in table.texts(id_column, empty="")])
    ids = table.texts(id_column)
    count = len(ids)
    accounts, users = _texts(table, "Account", NO_ACCOUNT), _texts(table, "User", "")
    names, states = _texts(table, "JobName", ""), _texts(table, "State", "")
    submitted = table.values("Submit", parse_instant, NEVER)
    start = table.values("Start", parse_instant, NEVER, empty=NEVER) if table.has("Start") else [NEVER] * count
    elapsed = table.values(_there(table, _NEEDED[3]), parse_seconds, 0, empty=0)
    limits = _limits(table)
    alloc, requested = _gpus(table, "AllocTRES"), _gpus(table, "ReqTRES")
    nodes = table.integers("NNodes", empty=0) if table.has("NNodes") else [0] * count
    for row, at in enumerate(submitted):
        if at == NEVER:
            table.complain(row, "Submit", "is unknown")
    table.finish()
    return [
        Record(
            id=ids[i],
            account=accounts[i],
            user=users[i],
            submitted=submitted[i],
            start=start[i],
            state=states[i].split(" ")[0],
            elapsed_s=elapsed[i],
            limit_s=limits[i],
            gpus=(alloc[i] if alloc[i][0] else requested[i])[0],
            gpu_type=(alloc[i] if alloc[i][0] else requested[i])[1],
            nodes=nodes[i],
            interactive=names[i].lower() in _INTERACTIVE_NAMES,
        )
        for i in range(count)
    ]


def _need(table: Table) -> None:
    issues = [
        Issue("columns", str(table.path), f"lacks {' and '.join(names)}; ask sacct for {names[0]} with --format")
        for names in _NEEDED
        if not any(table.has(name) for name in names)
    ]
    if issues:
        raise InputError(issues)


def _there(table: Table, names: tuple[str, ...]) -> str:
    return next(name for name in names if table.has(name))


def _texts(table: Table, column: str, empty: str) -> list[str]:
    return table.texts(column, empty=empty) if table.has(column) else [empty] * len(table)


def _limits(table: Table) -> list[int]:
    for column in ("Timelimit", "TimelimitRaw"):
        if table.has(column):
            return table.values(column, parse_limit, NO_LIMIT, empty=NO_LIMIT)
    return [NO_LIMIT] * len(table)


def _gpus(table: Table, column: str) -> list[tuple[int, str | None]]:
    none: tuple[int, str | None] = (0, None)
    return table.values(column, parse_gpus, none, empty=none) if table.has(column) else [none] * len(table)
