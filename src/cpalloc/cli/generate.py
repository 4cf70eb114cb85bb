"""``cpalloc generate``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cpalloc.cli.failures import told
from cpalloc.cli.files import write


class FamilyName(StrEnum):
    """The generator's families; written again here so that ``--help`` need not load it."""

    MIXED = "mixed"
    GANG_HEAVY = "gang-heavy"


def _share(text: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(min=0, max=1, help=text, rich_help_panel="Shares, 0 to 1")
    return option


def generate(
    nodes: Annotated[int, typer.Option(min=1, help="Nodes of the cluster.")] = 64,
    seed: Annotated[int, typer.Option(min=0, help="Another seed, another round of the same kind.")] = 0,
    family: Annotated[FamilyName, typer.Option(help="Many small jobs, or mostly large gangs.")] = FamilyName.MIXED,
    gpus_per_node: Annotated[int, typer.Option(min=1, help="GPUs of a node.")] = 8,
    gpu_type: Annotated[
        list[str] | None, typer.Option(help="One pool each, largest first; repeat it. By default the family's.")
    ] = None,
    nodes_per_rack: Annotated[int, typer.Option(min=1, help="Nodes of a rack.")] = 8,
    racks_per_block: Annotated[int, typer.Option(min=1, help="Racks of a block.")] = 8,
    demand: Annotated[
        float, typer.Option(min=0, max=100, help="GPUs of all jobs, running and pending, over GPUs in service.")
    ] = 2.5,
    budgets: Annotated[int, typer.Option(min=1, help="Leaves of the funding tree.")] = 15,
    time_limit: Annotated[int, typer.Option(min=1, help="options.time_limit of the round, in seconds.")] = 5,
    fill: Annotated[float, _share("GPUs held over healthy GPUs.")] = 0.95,
    borrowed: Annotated[float, _share("Running GPUs that are borrowed.")] = 0.25,
    protected: Annotated[float, _share("Running allocated jobs still protected.")] = 0.5,
    resumable: Annotated[float, _share("Jobs that resume.")] = 0.7,
    required_topology: Annotated[float, _share("Gangs that require a domain.")] = 0.3,
    preferred_rack: Annotated[float, _share("Gangs that prefer a rack.")] = 0.4,
    draining: Annotated[float, _share("Nodes that drain.")] = 0.01,
    down: Annotated[float, _share("Nodes that are down.")] = 0.005,
    unhealthy: Annotated[float, _share("GPUs that are out of service.")] = 0.002,
    capped_budgets: Annotated[float, _share("Leaves with a cap.")] = 0.15,
    misfits: Annotated[float, _share("Pending jobs that can never start; from 256 nodes.")] = 0.005,
    odd_sizes: Annotated[float, _share("Jobs with replicas of 3, 5 or 6 GPUs.")] = 0.0,
    cpu_bound: Annotated[float, _share("Nodes with few CPUs, and jobs that ask for some.")] = 0.0,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write to a file instead of stdout.")] = None,
    indent: Annotated[int | None, typer.Option(min=0, max=8, help="Spaces to indent by; one line without.")] = None,
) -> None:
    """Generate a synthetic round: realistic, self-consistent, and the same for the same options."""
    with told(as_json=False):
        import json

        from cpalloc.generate import GeneratorConfig, generate_doc

        config = GeneratorConfig(
            nodes=nodes,
            seed=seed,
            family=family,
            gpus_per_node=gpus_per_node,
            gpu_types=tuple(gpu_type) if gpu_type else None,
            nodes_per_rack=nodes_per_rack,
            racks_per_block=racks_per_block,
            demand=demand,
            budgets=budgets,
            time_limit=time_limit,
            fill=fill,
            borrowed=borrowed,
            protected=protected,
            resumable=resumable,
            required_topology=required_topology,
            preferred_rack=preferred_rack,
            draining=draining,
            down=down,
            unhealthy=unhealthy,
            capped_budgets=capped_budgets,
            misfits=misfits,
            odd_sizes=odd_sizes,
            cpu_bound=cpu_bound,
        )
        write(json.dumps(generate_doc(config), indent=indent) + "\n", output)
