"""Clusters that are described, and the table of accelerators."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoker.errors import BadInput
from stoker.planning.cluster import accelerator_named, cluster_of, read_cluster

FIGURES = {"bf16_tflops": 500, "memory_gb": 64, "memory_gbps": 2000, "link_gbps_per_direction": 200}


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("A100", "A100-SXM-80GB"),
        ("A100-40GB", "A100-SXM-40GB"),
        ("V100-32GB", "V100-SXM3-32GB"),
        ("H100 SXM5 80GB", "H100-SXM-80GB"),
        ("NVIDIA H100 80GB HBM3", "H100-SXM-80GB"),
        ("H100-96GB-500W (Grand Teton)", "H100-96GB-500W"),
        ("H100-PCIe", "H100-PCIe"),
        ("H200", "H200-SXM"),
        ("H100-PCIe-80GB", "H100-PCIe"),
        ("H100-NVL-94GB", "H100-NVL"),
        ("H200-NVL", "H200-NVL"),
        ("A100 80GB PCIe", "A100-PCIe-80GB"),
        ("A100-40G", "A100-SXM-40GB"),
        ("V100-SXM2-32GB", "V100-SXM2-32GB"),
        ("V100-PCIe-32GB", "V100-PCIe-32GB"),
        ("8xA100", "A100-SXM-80GB"),
        ("H100x8", "H100-SXM-80GB"),
        ("GH200-96GB", "GH200-96GB"),
        ("B200-192GB", "B200-SXM"),
        ("GB200-192GB", "GB200"),
        ("B300-270GB", "B300-SXM"),
        ("Gaudi 2", "Gaudi2"),
        ("HL-225", "Gaudi2"),
        ("RTX4090", "RTX 4090"),
        ("RTX 3090", "RTX 3090"),
        ("MI250X (GCD)", "MI250X"),
        ("Trillium", "TPU v6e"),
        ("Ironwood", "TPU v7x"),
        ("v5litepod-256", "TPU v5e"),
        ("TPU v5 lite", "TPU v5e"),
        ("H800", "H800-SXM"),
        ("A800-80GB", "A800-SXM-80GB"),
        ("B200", "B200-SXM"),
        ("GB200", "GB200"),
        ("MI300X-192GB", "MI300X"),
        ("TPU v5e", "TPU v5e"),
        ("tpu-v5p", "TPU v5p"),
    ],
)
def test_an_accelerator_is_found_by_what_people_call_it(said: str, meant: str) -> None:
    assert accelerator_named(said).name == meant


def test_every_accelerator_of_the_table_can_be_planned_for() -> None:
    for name in ("GB300", "B300", "MI325X", "MI355X", "Gaudi2", "L40S", "RTX 4090", "TPU v4", "TPU v6e", "TPU v7x"):
        assert cluster_of({"accelerator": name}).accelerator.source


@pytest.mark.parametrize(
    ("name", "per_node", "domain"),
    [("A100", 4, 4), ("A100", 16, 8), ("V100-32GB", 8, 8), ("GH200", 4, 4), ("GH200", 1, 1), ("GB200", 4, 72)],
)
def test_links_end_with_the_node_unless_they_join_a_rack(name: str, per_node: int, domain: int) -> None:
    assert cluster_of({"accelerator": name, "nodes": 2, "accelerators_per_node": per_node}).link_domain == domain


def test_an_unknown_accelerator_is_described_by_its_four_figures() -> None:
    cluster = cluster_of({"accelerator": {"name": "X1", **FIGURES}, "nodes": 4, "accelerators_per_node": 16})
    assert cluster.accelerators == 64
    assert cluster.link_domain == 16


@pytest.mark.parametrize("missing", sorted(FIGURES))
def test_a_missing_figure_is_named(missing: str) -> None:
    figures = {name: value for name, value in FIGURES.items() if name != missing}
    with pytest.raises(BadInput, match=missing):
        cluster_of({"accelerator": figures})


@pytest.mark.parametrize("field", ["nodes", "accelerators_per_node"])
def test_a_cluster_without_accelerators_is_refused(field: str) -> None:
    with pytest.raises(BadInput, match=f"{field}.*1 or more"):
        cluster_of({"accelerator": "H100", field: 0})


def test_an_unknown_name_asks_for_the_four_figures() -> None:
    with pytest.raises(BadInput, match="bf16_tflops, memory_gb, memory_gbps, link_gbps_per_direction"):
        cluster_of({"accelerator": "H1000"})


def test_a_cluster_is_read_from_yaml(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("accelerator: GB200\nnodes: 18\noversubscription: 2\n")
    cluster = read_cluster(path)
    assert (cluster.accelerators, cluster.link_domain, cluster.nic_gbps) == (72, 72, 50)


@pytest.mark.parametrize("text", ["", "- a list\n", "accelerator: [\n", "accelerator: H100\ngpus: 8\n"])
def test_a_file_that_describes_no_cluster_is_refused_by_its_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(text)
    with pytest.raises(BadInput, match=r"cluster\.yaml"):
        read_cluster(path)


def test_a_missing_file_is_refused_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"none\.yaml"):
        read_cluster(tmp_path / "none.yaml")
