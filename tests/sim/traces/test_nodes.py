from __future__ import annotations

from pathlib import Path

from tests.sim.traces.files import issues_of, write

from cpalloc.sim.traces.nodes import count_nodes, read_nodes
from cpalloc.topology.cluster import Cluster


def test_a_number_of_nodes() -> None:
    facts = count_nodes(3, 4)
    assert [(n.name, n.gpus) for n in facts.nodes] == [("n0000", 4), ("n0001", 4), ("n0002", 4)]
    assert issues_of(count_nodes, 0, 4)[0].code == "nodes"


def test_nodes_per_team_belong_to_it(tmp_path: Path) -> None:
    facts = read_nodes(write(tmp_path / "n.csv", ",num", "vcA,2", "vcB,1", "vcC,0"))
    assert facts.team_nodes == {"vcA": ("vcA-00", "vcA-01"), "vcB": ("vcB-00",), "vcC": ()}
    assert {n.gpus for n in facts.nodes} == {8}
    assert "8 assumed" in facts.notes[0]
    assert read_nodes(tmp_path / "n.csv", 4).notes == ()
    assert {n.gpus for n in read_nodes(tmp_path / "n.csv", 4).nodes} == {4}


def test_openb_nodes_keep_their_models_and_those_without_gpus_are_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "n.csv", "sn,cpu_milli,memory_mib,gpu,model", "a,1,1,2,T4", "b,1,1,0,", "c,1,1,8,G2")
    facts = read_nodes(path)
    assert [(n.name, n.gpus, n.gpu_type) for n in facts.nodes] == [("a", 2, "T4"), ("c", 8, "G2")]
    assert facts.notes == ("1 nodes without GPUs left out",)


def test_philly_machines(tmp_path: Path) -> None:
    facts = read_nodes(
        write(tmp_path / "n.csv", "machineId, number of GPUs, single GPU mem", "m0,2, 12GB", "m1,8, 24GB")
    )
    assert [(n.name, n.gpus) for n in facts.nodes] == [("m0", 2), ("m1", 8)]


def test_lingjun_switches_are_levels(tmp_path: Path) -> None:
    rows = ["h0,G6,P10,S1", "h1,G6,P10,S1", "h2,G6,P10,S2", "h3,G6,P12,S1"]
    facts = read_nodes(write(tmp_path / "topo.csv", "host,DSW,PSW,ASW", *rows), 8)
    assert facts.levels == ("pod", "spine", "leaf")
    assert facts.nodes[0].domains == {"pod": "G6", "spine": "G6/P10", "leaf": "G6/P10/S1"}
    # S1 under P10 and S1 under P12 are two switches, so this must be a tree
    assert len({n.domains["leaf"] for n in facts.nodes}) == 3
    Cluster("lingjun", facts.levels, facts.nodes)


def test_cpallocs_own_list(tmp_path: Path) -> None:
    rows = ["n0,8,h100,red,b0,r0", "n1,8,h100,,b0,r1", "n2,4,a100,red,b1,r0"]
    facts = read_nodes(write(tmp_path / "n.csv", "name,gpus,gpu_type,team,block,rack", *rows))
    assert facts.levels == ("block", "rack")
    assert facts.team_nodes == {"red": ("n0", "n2")}
    assert facts.nodes[2].domains == {"block": "b1", "rack": "b1/r0"}
    plain = read_nodes(write(tmp_path / "plain.csv", "name,gpus", "x,8", "y,4"))
    assert plain.levels == ()
    assert [n.gpus for n in plain.nodes] == [8, 4]


def test_bad_lists_of_nodes(tmp_path: Path) -> None:
    bad = write(tmp_path / "n.csv", "name,gpus", "x,0", "x,8", "y,many")
    assert {i.path.rsplit(":", 1)[1] for i in issues_of(read_nodes, bad)} == {"2", "3", "4"}
    unknown = write(tmp_path / "u.csv", "a,b,c", "1,2,3")
    assert issues_of(read_nodes, unknown)[0].code == "columns"
