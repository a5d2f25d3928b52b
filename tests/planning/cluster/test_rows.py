"""How rows of other people's tables are understood, and what is assumed where they are silent."""

from __future__ import annotations

import csv

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.planning.cluster import Latent, Recompute, predict, workload_of
from stoker.planning.cluster.evaluation import judge
from stoker.planning.cluster.measurements import Measurement
from stoker.planning.cluster.rows import CannotBeModelled, Case, case_of
from stoker.planning.cluster.workload import FULL, NONE
from tests.planning.cluster.cases import MEASUREMENTS, h100
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
with MEASUREMENTS.open(encoding="utf-8") as _file:
    _REAL = list(csv.DictReader(_file))[::60]


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
        ("fully sharded", 3),
        ("stage3", 3),
        ("gemini", 3),
        ("hybrid sharding", 3),
        ("sharding stage1", 1),
        ("not stated", 1),
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
        ("1F1B-I", "", "interleaved_1f1b", 8),
        ("VPP", "2", "interleaved_1f1b", 2),
        ("looped BFS", "", "interleaved_1f1b", 8),
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
        ("mixed fp16/fp32", "A100", "fp16"),
        ("bf16-mixed", "H100", "bf16"),
        ("tf32", "A100", "tf32"),
        ("fp32", "A100", "fp32"),
        ("mixed", "V100-32GB", "fp16"),
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
        *(
            (text, NONE)
            for text in ("No AC", "0", "0%", "disabled", "not used", "none (flash attention)", "every 0")
        ),
        ("50%", Recompute(0.5)),
        ("1 of 2 layers", Recompute(0.5)),
        ("every other layer", Recompute(0.5)),
        ("8 layers", Recompute(0.25)),
        ("SAC", Recompute(0.0, frozenset({"attention", "pointwise"}))),
        (
            "save_out_proj",
            Recompute(0.0, frozenset({"attention", "attention_projections", "feed_forward", "pointwise"})),
        ),
        ("layernorm", Recompute(0.0, frozenset({"pointwise"}))),
        ("rmsnorm+mla up-proj", Recompute(0.0, frozenset({"pointwise"}))),
        ("core_attn, mlp", Recompute(0.0, frozenset({"attention", "feed_forward"}))),
        ("full, uniform, 1 layer", FULL),
        ("block", FULL),
    ],
)
def test_words_for_recomputation(text: str, meant: Recompute) -> None:
    assert understood(recompute=text).workload.recompute == meant


@pytest.mark.parametrize("text", ["unknown", "n/a", "?", "not stated", "custom", "3/0", "of a new kind"])
def test_words_that_say_nothing_of_recomputation_leave_it_open(text: str) -> None:
    assert any("recomputation" in one for one in understood(recompute=text).assumptions)


@pytest.mark.parametrize(
    ("text", "share"), [("selective op", 1 / 3), ("selective layer", 0.5), ("selective 4", 0.25)]
)
def test_torchtitan_means_its_own_by_selective(text: str, share: float) -> None:
    assert understood(recompute=text, source="torchtitan").workload.recompute.layers == pytest.approx(share)


@pytest.mark.parametrize(
    ("notes", "graphs", "mtp"),
    [("with CUDA graphs", True, 0), ("no CUDA graphs", False, 0), ("", False, 0), ("MTP", False, 1)]
    + [(notes, False, 0) for notes in ("MTP off", "no MTP", "w/o MTP", "hybrid sharding (HSDP); no mamba kernels")],
)
def test_notes_say_what_is_there_and_what_is_not(notes: str, graphs: bool, mtp: int) -> None:
    found = understood(notes=notes).workload
    assert (found.cuda_graphs, found.architecture.mtp_depth) == (graphs, mtp)


@pytest.mark.parametrize(
    ("changes", "size"),
    [
        ({"notes": "head_dim=64"}, 64),
        ({"notes": "head_dim 256"}, 256),
        ({"model_name": "qwen3-0.6b"}, 128),
        ({}, 128),
    ],
)
def test_sizes_of_heads(changes: dict[str, str], size: int) -> None:
    assert understood(**changes).workload.architecture.size_of_head == size


def test_networks_are_read_from_words() -> None:
    def of(text: str) -> float:
        return understood(interconnect=text).cluster.nic_gbps

    assert of("") == 50
    assert of("Selene: NVLink3 + 8x200Gb HDR IB") == 25
    assert of("1600 Gbps RoCE/node") == 25
    assert of("NVLink + 4 Omni-Path 100Gb/s links per node") == 6.25
    assert of("NVLink + 4x100Gb RoCE per node") == 6.25
    assert of("4x HDR200 IB") == 12.5
    assert of("3.2 Tbps EFA") == of("8 x 400G RoCE") == of("8×400Gb/s") == of("400 Gb/s per GPU") == 50
    assert of("NVLink 900 GB/s + 25 GB/s Slingshot") == 25
    assert of("InfiniBand NDR") == 50
    assert understood(gpu="A100", interconnect="400Gbps").cluster.nic_gbps == 6.25, "the node's, of 8 ports of 200"
    assert understood(gpu="GB200", gpus_per_node="4", interconnect="NVL72").cluster.link_domain == 72


def test_without_nvlink_a_node_talks_over_pcie() -> None:
    cluster = understood(gpu="A100", interconnect="PCIe 4.0 x16 + 2x100Gb IB").cluster
    assert (cluster.accelerator.link_gbps_per_direction, cluster.link_domain) == (32, 8)


def test_fsdp_with_a_pipeline_sums_gradients_once_a_step() -> None:
    """Llama 3 405B on 8,192 H100: 430 TFLOP/s each (arXiv:2407.21783, table 4)."""
    case = understood(
        model_name="llama3-405b", layers="126", hidden="16384", ffn="53248", heads="128", tp="8", pp="16", sp="yes",
        gpus_total="8192", dp="64", global_batch_seqs="2048", schedule="interleaved", year="2024",
    )  # fmt: skip
    assert case.workload.parallelism.zero_stage == 1
    found = predict(case.workload, case.cluster, case.software)
    assert found.seconds.dp < 0.1 * found.seconds.total
    assert case.workload.parallelism.dp_shard == 64


def test_experts_as_wide_as_a_dense_block_would_be_are_known_by_the_models_size() -> None:
    case = understood(
        model_name="qwen3-30b-a3b", layers="48", hidden="2048", ffn="6144", heads="32", kv_heads="4",
        vocab="151936", experts="128", topk="8", params_b="30.5B",
    )  # fmt: skip
    moe = case.workload.architecture.experts
    assert moe is not None
    assert moe.ffn_hidden_size == pytest.approx(768, abs=64)


def test_before_fused_attention_scores_were_written_out() -> None:
    assert understood(year="2021").workload.attention_kernel == "unfused"
    assert understood(gpu="V100-32GB").workload.attention_kernel == "unfused"
    assert understood(year="2024-12").workload.attention_kernel == "flash"


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *(("year", "2024-12"), ("params_b", "8B"), ("params_b", "671/37"), ("interconnect", "NVL0")),
        *(("notes", "zero1 group 0"), ("micro_batch", "0.5"), ("global_batch_seqs", "976.56"), ("vpp", "0")),
        *(("ep", "0"), ("experts", "0"), ("dp", "0"), ("gpus_total", "16,384"), ("vocab", "128k"), ("sp", "seq")),
        *(("sp", "true"), ("pretrain", "Yes"), ("gpus_total", "")),
    ],
)
def test_an_odd_cell_is_understood(column: str, value: str) -> None:
    assert predict(understood(**{column: value}).workload, h100()).seconds.total > 0


_ODD = st.one_of(
    st.sampled_from(
        ["", "0", "-1", "0/0", "1/0", "NaN", "inf", "1e999", "n/a", "?", "8B", "16,384", "2x8", "∞", "x x"]
    ),
    st.text(max_size=12),
    st.integers(-10, 10**9).map(str),
    st.floats(0, 1e6).map(str),
)


@given(st.data())
def test_whatever_a_cell_holds_a_row_is_predicted_or_listed_with_a_reason(data: st.DataObject) -> None:
    row = dict(data.draw(st.sampled_from(_REAL)))
    for column in data.draw(st.lists(st.sampled_from(sorted(row)), min_size=1, max_size=3)):
        row[column] = data.draw(_ODD)
    (found,) = judge([Measurement(row, 2)])
    if found.prediction is None:
        assert found.reason
        assert "cannot be worked out" not in found.reason, found.reason
    else:
        assert 0 < found.prediction.seconds.total < float("inf")


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
        ({"model_name": "jamba-1.5"}, "no transformer's"),
        ({"gpu": "Q9000"}, "Q9000"),
        ({"gpu": ""}, "no gpu"),
        ({"layers": "many"}, "column layers: 'many'"),
        ({"pretrain": "No"}, "not pretraining"),
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
