"""How rows of other people's tables are understood, and what is assumed where they are silent."""

from __future__ import annotations

import pytest

from stoker.planning.cluster import Latent, Recompute, predict, workload_of
from stoker.planning.cluster.rows import CannotBeModelled, Case, case_of
from stoker.planning.cluster.workload import FULL, NONE
from tests.planning.cluster.cases import h100
from tests.planning.test_memory import recipe_of

ROW = {
    **dict.fromkeys(
        ("id", "source", "url_or_path", "params_b", "experts", "topk", "interconnect", "sp", "vpp"), ""
    ),
    **dict.fromkeys(("schedule", "ep", "notes", "use", "layout_complete", "pretrain"), ""),
    **{"model_name": "llama3-8b", "year": "2025", "layers": "32", "hidden": "4096", "ffn": "14336", "heads": "32"},
    **{"kv_heads": "8", "vocab": "128256", "seq_len": "8192", "gpu": "H100-80GB", "gpus_total": "64"},
    **{"gpus_per_node": "8", "tp": "1", "pp": "1", "cp": "1", "dp_kind": "fsdp", "dp": "64", "micro_batch": "1"},
    **{"global_batch_seqs": "128", "recompute": "none", "precision": "bf16"},
}


def understood(**changes: str) -> Case:
    return case_of({**ROW, **changes})


@pytest.mark.parametrize(
    ("kind", "stage"),
    [
        ("ddp", 0),
        ("zero1", 1),
        ("ZeRO-2", 2),
        ("zero3", 3),
        ("fsdp2", 3),
        ("hsdp", 3),
        ("distributed optimizer", 1),
    ],
)
def test_kinds_of_data_parallelism(kind: str, stage: int) -> None:
    assert understood(dp_kind=kind).workload.parallelism.zero_stage == stage


@pytest.mark.parametrize(
    ("schedule", "vpp", "name", "stages"),
    [
        ("", "", "1f1b", 1),
        ("1f1b", "1", "1f1b", 1),
        ("interleaved-1f1b", "4", "interleaved_1f1b", 4),
        ("interleaved", "", "interleaved_1f1b", 8),
        ("GPipe", "", "gpipe", 1),
        ("ZB-1p", "", "interleaved_zero_bubble", 1),
        ("ZB-2p", "", "zb_h2", 1),
        ("ZB-V", "", "zbv", 2),
        ("DualPipe", "", "dualpipe_v", 2),
    ],
)
def test_names_of_schedules(schedule: str, vpp: str, name: str, stages: int) -> None:
    found = understood(pp="4", dp="16", schedule=schedule, vpp=vpp, dp_kind="zero1").workload.parallelism
    assert (found.schedule, found.stages_per_rank) == (name, stages)


@pytest.mark.parametrize(
    ("precision", "gpu", "meant"),
    [
        ("amp_bf16", "H100", "bf16"),
        ("fp16", "V100-32GB", "fp16"),
        ("FP8-CS", "H100", "fp8"),
        ("mxfp8", "B200", "fp8"),
        ("fp8", "A100", "bf16"),
        ("nvfp4", "GB200", "fp4"),
        ("nvfp4", "H100", "bf16"),
        ("int8", "TPU v7x", "fp8"),
    ],
)
def test_precisions(precision: str, gpu: str, meant: str) -> None:
    assert understood(precision=precision, gpu=gpu).workload.precision == meant


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("none", NONE),
        ("full", FULL),
        ("every 4", Recompute(0.25)),
        ("1/3", Recompute(1 / 3)),
        ("0.5", Recompute(0.5)),
        ("selective op", Recompute(0.0, frozenset({"attention", "pointwise"}))),
        ("selective", Recompute(0.0, frozenset({"attention"}))),
    ],
)
def test_words_for_recomputation(text: str, meant: Recompute) -> None:
    assert understood(recompute=text).workload.recompute == meant


def test_graphs_are_read_from_notes() -> None:
    assert understood(notes="with CUDA graphs").workload.cuda_graphs
    assert not understood(notes="").workload.cuda_graphs


def test_networks_are_read_from_words() -> None:
    def of(text: str) -> float:
        return understood(interconnect=text).cluster.nic_gbps

    assert of("") == 50
    assert of("Selene: NVLink3 + 8x200Gb HDR IB") == 25
    assert of("1600 Gbps RoCE/node") == 25
    assert of("NVLink + 4 Omni-Path 100Gb/s links per node") == 6.25
    assert understood(gpu="GB200", gpus_per_node="4", interconnect="NVL72").cluster.link_domain == 72


def test_what_a_row_leaves_open_is_assumed_and_said() -> None:
    case = understood(recompute="", micro_batch="", heads="", dp_kind="")
    said = " ".join(case.assumptions)
    for word in ("recomputation", "micro-batch", "heads", "ZeRO stage 1"):
        assert word in said


def test_a_deepseek_row_means_latent_attention_and_shared_experts() -> None:
    case = understood(
        model_name="deepseek-v3", layers="61", hidden="7168", ffn="2048", heads="128", kv_heads="128",
        experts="256", topk="8", ep="64", gpu="H800", gpus_total="2048", dp="128", pp="16", dp_kind="zero1",
        schedule="dualpipe", global_batch_seqs="15360", seq_len="4096", precision="fp8", recompute="",
    )  # fmt: skip
    model = case.workload.architecture
    assert model.latent == Latent(1536, 512, 128, 64, 128)
    assert model.experts is not None
    assert (model.experts.shared_ffn_hidden_size, model.experts.first_dense_layers) == (2048, 3)
    rate = predict(case.workload, case.cluster, case.software).tokens_per_second_per_accelerator
    assert rate == pytest.approx(1543, rel=0.25)  # 2.664M H800 hours for 14.8T tokens (arXiv:2412.19437, table 1)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"pretrain": "no"}, "not pretraining"),
        ({"hidden": ""}, "no hidden"),
        ({"notes": "54 mamba2 layers"}, "no transformer's"),
        ({"gpu": "Q9000"}, "Q9000"),
    ],
)
def test_what_cannot_be_modelled_says_why(changes: dict[str, str], reason: str) -> None:
    with pytest.raises(CannotBeModelled, match=reason):
        understood(**changes)


def test_a_recipe_is_a_workload() -> None:
    model = {"hidden_size": 512, "layers": 4, "heads": 8, "kv_heads": 2, "ffn_hidden_size": 1024}
    recipe = recipe_of(model, precision="bf16")
    found = workload_of(recipe, 8192)
    assert found.architecture.kv_heads == 2
    assert found.architecture.vocabulary_size == 8192
    assert found.sequence_length == recipe.training.sequence_length
    assert found.parallelism.world_size == 1
    assert predict(found, h100()).seconds.total > 0
