"""A document whose tables can be measured again.

A block is what lies between ``<!-- bench NAME: OPTIONS -->`` and ``<!-- /bench -->``; the options are those of
``python -m bench.table`` that make a plan. The block named ``targets`` has none: it judges the results of the others.
Nor has ``musts``, which ``python -m bench.musts`` writes.
"""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Collection
from pathlib import Path

from bench.render import Result, report
from bench.runner import Plan, plan_of, plan_options, progress, run
from bench.targets import targets

BLOCK = re.compile(r"(<!-- bench (?P<name>[\w-]+):(?P<options>[^>]*?)-->\n).*?(<!-- /bench -->)", re.DOTALL)
TARGETS, MUSTS = "targets", "musts"


def plans(text: str) -> dict[str, Plan]:
    """Plans of a document's blocks, by name.

    Examples
    --------
    >>> text = "<!-- bench small: --sizes 64 --seeds 1-2 -->\\n<!-- /bench -->"
    >>> plans(text)["small"].seeds
    (1, 2)
    """
    parser = argparse.ArgumentParser(add_help=False)
    plan_options(parser)
    return {
        found["name"]: plan_of(parser.parse_args(shlex.split(found["options"])))
        for found in BLOCK.finditer(text)
        if found["name"] not in (TARGETS, MUSTS)
    }


def replaced(text: str, name: str, body: str) -> str:
    """A document with the inside of one block replaced."""

    def fresh(found: re.Match[str]) -> str:
        return f"{found[1]}\n{body.strip()}\n\n{found[4]}" if found["name"] == name else found[0]

    return BLOCK.sub(fresh, text)


def update(path: Path, only: Collection[str] | None = None) -> list[Result]:
    """Measure the blocks of a document and write each as soon as it is done.

    Parameters
    ----------
    only
        Names of the blocks to measure; all of them, and the targets, by default.

    Raises
    ------
    ValueError
        When there is no block of a name.
    """
    found = plans(path.read_text(encoding="utf-8"))
    missing = set(only or ()) - set(found)
    if missing:
        raise ValueError(f"no block {', '.join(sorted(missing))} in {path}; there are {', '.join(found)}")
    wanted = {name: plan for name, plan in found.items() if not only or name in only}
    results: list[Result] = []
    with progress(list(wanted.values())) as tick:
        for name, plan in wanted.items():
            fresh = run(plan, tick)
            results += fresh
            write_block(path, name, report(fresh))
    if not only:
        write_block(path, TARGETS, targets(results))
    return results


def write_block(path: Path, name: str, body: str) -> None:
    """Replace one block, reading again first: somebody may have edited the rest meanwhile."""
    path.write_text(replaced(path.read_text(encoding="utf-8"), name, body), encoding="utf-8")
