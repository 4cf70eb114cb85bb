"""From the configuration of a lab to a workload."""

from __future__ import annotations

from cpalloc.schema import Budget, Cluster, Node
from cpalloc.sim.lab.config import LabCluster, LabConfig
from cpalloc.sim.lab.faults import make_events
from cpalloc.sim.lab.jobs import leaf_name, make_jobs
from cpalloc.sim.workload import Provenance, Workload


def make_lab(config: LabConfig, seed: int) -> Workload:
    """Draw a workload from the lab's distributions.

    Parameters
    ----------
    seed : int
        At least 0. Equal seeds give equal workloads, others another workload of the same kind. Jobs, activity,
        failures and drains have random streams of their own.

    Returns
    -------
    Workload
        Constructed; its jobs are submitted in the first ``config.days`` days. The last notes say what came out.
    """
    jobs = make_jobs(config, seed)
    nodes = lab_nodes(config.cluster)
    capacity_s = config.cluster.nodes * config.cluster.gpus_per_node * config.days * 86_400
    offered_s = sum(job.size * job.work_s for job in jobs)
    return Workload(
        name=config.name,
        provenance=Provenance.CONSTRUCTED,
        epoch=config.start,
        cluster=Cluster(name=config.name, levels=("block", "rack"), nodes=nodes),
        budgets=lab_budgets(config),
        jobs=jobs,
        node_events=make_events(config, [n.name for n in nodes], seed),
        notes=(
            f"constructed lab {config.name}, seed {seed}: {config.days} days, nothing of it is measured",
            f"{len(jobs):,} jobs, offered GPU time {offered_s / capacity_s:.3f} of capacity",
        ),
    )


def lab_nodes(cluster: LabCluster) -> tuple[Node, ...]:
    """Nodes ``n000`` … in racks in blocks."""
    width = len(str(cluster.nodes - 1))
    per_block = cluster.nodes_per_rack * cluster.racks_per_block
    return tuple(
        Node(
            name=f"n{i:0{width}}",
            gpu_type=cluster.gpu_type,
            gpus=cluster.gpus_per_node,
            domains={"block": f"b{i // per_block}", "rack": f"r{i // cluster.nodes_per_rack:02}"},
        )
        for i in range(cluster.nodes)
    )


def lab_budgets(config: LabConfig) -> tuple[Budget, ...]:
    """Programmes, and their teams as leaves ``programme/team``."""
    programmes = tuple(Budget(name=p.name, weight=p.weight) for p in config.programmes)
    teams = tuple(Budget(name=leaf_name(t), parent=t.programme, weight=t.weight) for t in config.teams)
    return programmes + teams
