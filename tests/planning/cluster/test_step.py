"""What seconds depend on, and which way."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.planning.cluster import Cluster, Experts, Offload, Parallelism, Recompute, Workload, predict
from stoker.planning.cluster.parameters import parameter_table
from stoker.planning.cluster.software import FSDP, JAX, MEGATRON_DEEPSPEED, NEMO, UNKNOWN, Software
from stoker.planning.cluster.workload import FULL, SELECTIVE
from tests.planning.cluster.cases import GPT_175B, LLAMA_8B, h100, with_architecture, workload

LAYOUTS = [
    Parallelism(dp_shard=16, zero_stage=3),
    Parallelism(dp_replicate=2, dp_shard=8, zero_stage=3),
    Parallelism(dp_replicate=16),
    Parallelism(tp=4, dp_shard=4, zero_stage=1),
    Parallelism(tp=2, pp=4, dp_shard=2, zero_stage=1),
    Parallelism(tp=2, pp=2, stages_per_rank=4, schedule="interleaved_1f1b", dp_shard=4, zero_stage=2),
    Parallelism(cp=4, dp_shard=4, zero_stage=3),
]
EXPERTS = Experts(count=64, per_token=4, ffn_hidden_size=2048)
CLUSTER = h100(nodes=2)


def seconds(one: Workload, cluster: Cluster = CLUSTER, software: Software = UNKNOWN) -> float:
    return predict(one, cluster, software).seconds.total


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_the_parts_are_the_whole_and_none_is_negative(layout: Parallelism) -> None:
    found = predict(workload(parallelism=layout), CLUSTER).seconds
    parts = [getattr(found, name) for name in found.__slots__]
    assert all(part >= 0 for part in parts)
    assert sum(parts) == pytest.approx(found.total)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("figure", ["memory_gbps", "link_gbps_per_direction", "bf16_tflops"])
def test_a_faster_accelerator_is_never_slower(layout: Parallelism, figure: str) -> None:
    accelerator = CLUSTER.accelerator
    faster = accelerator.model_copy(update={figure: 1.5 * getattr(accelerator, figure)})
    one = workload(parallelism=layout)
    assert seconds(one, CLUSTER.model_copy(update={"accelerator": faster})) <= seconds(one)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_a_faster_network_is_never_slower(layout: Parallelism) -> None:
    one = workload(parallelism=layout)
    assert seconds(one, h100(2, nic_gbps=100)) <= seconds(one) <= seconds(one, h100(2, oversubscription=4))


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_more_memory_changes_no_time(layout: Parallelism) -> None:
    accelerator = CLUSTER.accelerator.model_copy(update={"memory_gb": 800.0})
    one = workload(parallelism=layout)
    assert seconds(one, CLUSTER.model_copy(update={"accelerator": accelerator})) == seconds(one)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_twice_the_layers_take_about_twice_the_time(layout: Parallelism) -> None:
    one = workload(parallelism=layout)
    assert 1.7 < seconds(with_architecture(one, layers=64)) / seconds(one) < 2.05


@given(st.sampled_from(LAYOUTS), st.sampled_from([1, 2, 4]), st.sampled_from([2048, 4096, 8192]))
def test_more_work_never_takes_less_time(layout: Parallelism, micro_batch: int, length: int) -> None:
    one = workload(parallelism=layout, micro_batch_size=micro_batch, sequence_length=length)
    least = 0.999 * seconds(one)  # where traffic is waited for all the time, computing more takes no longer
    assert seconds(replace(one, sequence_length=2 * length)) >= least
    assert seconds(replace(one, global_batch_size=2 * one.global_batch_size)) > 1.2 * least
    assert seconds(replace(one, recompute=FULL)) >= least
    assert seconds(with_architecture(one, experts=EXPERTS)) > 0


def test_full_recomputation_takes_about_a_third_more_and_selective_far_less() -> None:
    """As published for GPT-3 175B (Korthikanti et al. 2022): 18.13 s full, 13.75 s selective."""
    layout = Parallelism(tp=8, pp=8, stages_per_rank=3, schedule="interleaved_1f1b")
    one = workload(
        GPT_175B,
        sequence_length=2048,
        parallelism=layout,
        global_batch_size=64,
        attention_kernel="unfused",
        precision="fp16",
    )
    a100 = Cluster.model_validate({"accelerator": "A100", "nodes": 8})
    none, selective, full = (
        seconds(replace(one, recompute=recompute), a100) for recompute in (Recompute(), SELECTIVE, FULL)
    )
    assert 1.25 < full / none < 1.4
    assert selective / none < 1.06
    every_second = seconds(replace(one, recompute=Recompute(0.5)), a100)
    assert none < every_second < full


def test_an_uneven_load_of_experts_costs_time() -> None:
    one = with_architecture(workload(parallelism=Parallelism(ep=8, dp_shard=8, zero_stage=1)), experts=EXPERTS)
    uneven = with_architecture(one, experts=replace(EXPERTS, imbalance=1.5))
    assert seconds(uneven, h100()) > seconds(one, h100())


def test_a_window_saves_attention_and_further_tokens_cost() -> None:
    one = workload(sequence_length=32768, global_batch_size=8)
    windowed = predict(with_architecture(one, sliding_window=1024), h100()).seconds
    assert windowed.attention < predict(one, h100()).seconds.attention / 4
    assert seconds(with_architecture(one, mtp_depth=1)) > seconds(one)


def test_eight_bits_are_faster_than_sixteen() -> None:
    one = workload(GPT_175B, parallelism=Parallelism(tp=8, pp=2), global_batch_size=16)
    assert seconds(replace(one, precision="fp8")) < seconds(one)


def test_offloading_is_waited_for() -> None:
    one = workload()
    away = predict(replace(one, offload=Offload(optimizer=1.0, activations=1.0)), h100())
    here = predict(one, h100())
    assert away.seconds.offload > 0
    assert away.memory.optimizer == 0
    assert away.memory.activations < here.memory.activations


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_parameters_on_the_host_are_brought_for_each_micro_batch(layout: Parallelism) -> None:
    one = workload(parallelism=layout)
    here = predict(one, CLUSTER)
    away = predict(replace(one, offload=Offload(optimizer=1.0, parameters=1.0)), CLUSTER)
    assert away.memory.parameters == away.memory.gradients == away.memory.optimizer == 0
    assert away.memory.buffers > 0
    assert away.seconds.offload > 0
    smaller = replace(one, micro_batch_size=one.micro_batch_size // 2 or 1, sequence_length=512)
    again = predict(replace(smaller, offload=Offload(optimizer=1.0, parameters=1.0)), CLUSTER)
    assert again.seconds.offload >= away.seconds.offload, "less computation hides less"
    assert here.seconds.offload == 0


def test_graphs_spare_the_host() -> None:
    one = workload(sequence_length=256, micro_batch_size=1)
    graphed = predict(replace(one, cuda_graphs=True), CLUSTER).seconds
    assert graphed.launch < 0.1 * predict(one, CLUSTER).seconds.launch


@pytest.mark.parametrize("micro_batches", [1, 4, 32])
@pytest.mark.parametrize("nodes", [1, 2, 16])
@pytest.mark.parametrize("software", [UNKNOWN, FSDP, NEMO, MEGATRON_DEEPSPEED])
def test_gathering_parameters_once_is_never_slower_than_twice_a_micro_batch(
    micro_batches: int, nodes: int, software: Software
) -> None:
    ranks = 8 * nodes
    for replicas in (1, 2):
        layout = Parallelism(dp_replicate=replicas, dp_shard=ranks // replicas, zero_stage=3)
        one = workload(parallelism=layout, global_batch_size=ranks * micro_batches)
        two = replace(one, parallelism=replace(layout, zero_stage=2))
        cluster = Cluster.model_validate({"accelerator": "A100", "nodes": nodes})
        assert seconds(two, cluster, software) <= seconds(one, cluster, software)


def test_tensor_parallelism_past_the_links_of_a_node_is_slow() -> None:
    one = workload(parallelism=Parallelism(tp=8))
    eight, four = (
        Cluster.model_validate({"accelerator": "A100-40GB", "nodes": 16 // each, "accelerators_per_node": each})
        for each in (8, 4)
    )
    assert predict(one, four).seconds.tp > 2 * predict(one, eight).seconds.tp


def test_two_of_eight_that_are_joined_in_pairs_have_one_link_of_seven() -> None:
    one = workload(parallelism=Parallelism(tp=2))
    pairs = Cluster.model_validate({"accelerator": "MI300X"})
    switched = pairs.model_copy(update={"accelerator": pairs.accelerator.model_copy(update={"neighbours": None})})
    assert predict(one, pairs).seconds.tp > 4 * predict(one, switched).seconds.tp


def test_recomputing_layers_sends_rows_to_their_experts_again() -> None:
    layout = Parallelism(ep=16, dp_shard=16, zero_stage=1)
    one = with_architecture(workload(parallelism=layout, recompute=FULL), experts=EXPERTS)
    alone = replace(layout, ep=1)
    apart, together = (predict(replace(one, parallelism=each), CLUSTER).seconds for each in (layout, alone))
    assert apart.recompute > together.recompute


def test_experts_are_summed_over_replicas_too() -> None:
    layout = Parallelism(dp_replicate=2, dp_shard=8, zero_stage=3)
    one = workload(parallelism=layout)
    many = with_architecture(one, experts=EXPERTS)
    assert predict(many, CLUSTER).seconds.dp > 2 * predict(one, CLUSTER).seconds.dp


def test_links_of_a_rack_carry_what_a_network_would() -> None:
    """Two nodes of four accelerators that share NVLink (GB200) sum gradients faster than over their ports."""
    one = workload(parallelism=Parallelism(dp_replicate=8), global_batch_size=16)
    rack = Cluster.model_validate({"accelerator": "GB200", "nodes": 2})
    apart = Cluster.model_validate({"accelerator": "GB200", "nodes": 2, "link_domain": 4})
    assert predict(one, rack).seconds.dp < predict(one, apart).seconds.dp


def test_a_framework_without_numbers_lies_between_those_that_have_them() -> None:
    one = workload()
    named = [seconds(one, h100(), software) for software in (NEMO, FSDP, JAX)]
    assert min(named) * 0.8 < seconds(one, h100(), Software("something new")) < max(named) * 1.2


@pytest.mark.parametrize("name", ["H200", "H800", "MI300X", "TPU v5p", "B200", "L40S"])
def test_other_accelerators_are_used_to_a_plausible_part(name: str) -> None:
    cluster = Cluster.model_validate({"accelerator": name, "nodes": 1, "accelerators_per_node": 8})
    mfu = predict(workload(LLAMA_8B, recompute=FULL), cluster).mfu
    assert mfu is not None
    assert 0.1 < mfu < 0.75


def test_every_parameter_has_its_meaning_and_stays_within_its_bounds() -> None:
    for line in parameter_table():
        assert line.unit
        assert line.meaning
        assert line.low <= line.prior <= line.high, line.name
        assert line.low <= line.value <= line.high, line.name
