"""Bytes, against counts by hand and published ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stoker.planning.cluster import Architecture, Experts, Parallelism, Recompute, predict
from stoker.planning.cluster.flops import model_flops
from stoker.planning.cluster.memory import MemoryBytes, kept_per_token, passes_in_flight
from stoker.planning.cluster.sizes import total_parameters
from stoker.planning.cluster.workload import FULL, SELECTIVE
from tests.planning.cluster.cases import GPT_175B, LLAMA_8B, h100, workload

SMALL = Architecture(
    layers=2, hidden_size=8, heads=2, kv_heads=1, ffn_hidden_size=16, vocabulary_size=32, gated=True
)


def test_parameters_are_those_of_the_model() -> None:
    attention = 8 * (8 + 2 * 4) + 8 * 8
    layer = attention + 3 * 8 * 16 + 2 * 8
    assert total_parameters(SMALL) == 2 * layer + 2 * 32 * 8 + 8
    assert total_parameters(LLAMA_8B) == pytest.approx(8.03e9, rel=1e-3)
    assert total_parameters(GPT_175B, 2048) == pytest.approx(174.6e9, rel=2e-3)


def test_flops_are_six_per_parameter_and_token_and_attention() -> None:
    one = workload(SMALL, sequence_length=64, global_batch_size=8)
    layer = 8 * (8 + 2 * 4) + 8 * 8 + 3 * 8 * 16
    products = 6 * (2 * layer + 32 * 8) * 8 * 64
    attention = 2 * 6 * 8 * 2 * (4 + 4) * 64 * 64
    assert model_flops(one).full == products + attention
    assert model_flops(one).causal == products + attention / 2


def test_a_layer_keeps_what_korthikanti_counted() -> None:
    """34 h + 5 a s bytes a token (arXiv:2205.05198, eq. 1), and with tp 8 and sequence parallelism an eighth."""
    h, a, s = 12288, 96, 2048
    alone = Parallelism(sequence_parallel=False)
    one = workload(GPT_175B, sequence_length=s, parallelism=alone, attention_kernel="unfused", precision="fp16")
    assert kept_per_token(one, experts=False) == pytest.approx(34 * h + 5 * a * s, rel=0.001)
    divided = replace(one, parallelism=Parallelism(tp=8))
    assert kept_per_token(divided, experts=False) == pytest.approx((34 * h + 5 * a * s) / 8, rel=0.001)
    plain = replace(one, parallelism=Parallelism(tp=8, sequence_parallel=False))
    assert kept_per_token(plain, experts=False) == pytest.approx(10 * h + 24 * h / 8 + 5 * a * s / 8, rel=0.001)
    selective = replace(one, recompute=SELECTIVE)
    assert kept_per_token(selective, experts=False) == pytest.approx(34 * h, rel=0.002)


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_states_are_divided_as_the_stage_says(stage: int) -> None:
    parameters = total_parameters(LLAMA_8B)
    layout = Parallelism(dp_shard=8, zero_stage=stage)  # type: ignore[arg-type]
    memory = predict(workload(parallelism=layout), h100()).memory

    def held(divided: bool) -> float:
        return parameters / 8 if divided else parameters

    assert memory.parameters == pytest.approx(2 * held(stage == 3), rel=1e-4)
    assert memory.gradients == pytest.approx(4 * held(stage >= 2), rel=1e-4)
    assert memory.optimizer == pytest.approx(12 * held(stage >= 1), rel=1e-4)


def test_full_recomputation_keeps_the_inputs_of_layers_alone() -> None:
    one = workload(parallelism=Parallelism(dp_shard=8, zero_stage=1), recompute=FULL)
    assert predict(one, h100()).memory.activations == 32 * 4096 * 4096 * 2
    every_fourth = predict(replace(one, recompute=Recompute(0.25)), h100()).memory.activations
    nothing = predict(replace(one, recompute=Recompute()), h100()).memory.activations
    assert every_fourth == pytest.approx(0.25 * 32 * 4096 * 4096 * 2 + 0.75 * nothing)


@pytest.mark.parametrize("operation", ["attention", "feed_forward", "pointwise", "attention_projections"])
def test_an_operation_computed_again_keeps_less(operation: str) -> None:
    one = workload()
    again = replace(one, recompute=Recompute(0.0, frozenset({operation})))  # type: ignore[arg-type]
    assert predict(again, h100()).memory.activations < predict(one, h100()).memory.activations


def test_experts_are_divided_over_their_ranks() -> None:
    experts = Experts(count=64, per_token=2, ffn_hidden_size=1024)
    model = replace(LLAMA_8B, experts=experts)
    held = {
        ep: predict(workload(model, parallelism=Parallelism(ep=ep, dp_replicate=8)), h100()).memory.parameters
        for ep in (1, 8)
    }
    of_experts = 2 * 32 * 64 * 3 * 4096 * 1024
    assert held[1] - held[8] == pytest.approx(of_experts * 7 / 8)


def test_passes_in_flight_are_those_of_the_schedule() -> None:
    def of(**layout: object) -> float:
        return passes_in_flight(workload(parallelism=Parallelism(**layout), global_batch_size=32))  # type: ignore[arg-type]

    assert of() == 1
    assert of(pp=4) == 4
    assert of(pp=4, schedule="gpipe") == 32
    assert of(pp=4, schedule="zbv", stages_per_rank=2) == 4
    interleaved = of(pp=4, schedule="interleaved_1f1b", stages_per_rank=2)
    assert interleaved == 4 * (1 + 3 / 8)


def test_recomputation_takes_an_activation_heavy_model_from_48_to_29_gigabytes() -> None:
    """72 Llama-like layers: whole-layer recomputation for about a third more time, the cheap part for far less."""
    shape = Architecture(
        layers=72, hidden_size=4096, heads=32, kv_heads=8, ffn_hidden_size=11008, vocabulary_size=32000
    )
    one = workload(
        shape, parallelism=Parallelism(tp=4, dp_shard=8, zero_stage=1), micro_batch_size=2, global_batch_size=64
    )
    none, full, cheap = (
        predict(replace(one, recompute=recompute), h100(4))
        for recompute in (Recompute(), FULL, Recompute(0.0, frozenset({"attention", "pointwise"})))
    )
    assert none.memory.total / 1e9 == pytest.approx(48, abs=2)
    assert full.memory.total / 1e9 == pytest.approx(29, abs=2)
    assert 1.25 < full.seconds.total / none.seconds.total < 1.4
    assert cheap.seconds.total / none.seconds.total < 1.1
    assert cheap.memory.total < none.memory.total


@pytest.mark.parametrize("pp", [1, 4, 32])
@pytest.mark.parametrize("experts", [None, Experts(count=8, per_token=2, ffn_hidden_size=512)])
def test_modules_for_further_tokens_are_layers_of_the_last_rank(pp: int, experts: Experts | None) -> None:
    def held(mtp_depth: int) -> MemoryBytes:
        one = workload(parallelism=Parallelism(pp=pp, dp_replicate=2), recompute=Recompute(1.0))
        one = replace(one, architecture=replace(one.architecture, experts=experts, mtp_depth=mtp_depth))
        return predict(one, h100(nodes=8)).memory

    plain, further = held(0), held(2)
    assert further.parameters > plain.parameters
    assert further.activations > plain.activations > 0


def test_a_window_leaves_no_more_to_count_than_it_is_wide() -> None:
    near = replace(LLAMA_8B, sliding_window=1024, windowed_layers=1.0)
    flops = model_flops(replace(workload(), architecture=near, sequence_length=131_072))
    assert flops.causal < flops.full < 2.2 * flops.causal
    assert flops.full < 0.2 * model_flops(replace(workload(), architecture=LLAMA_8B, sequence_length=131_072)).full
