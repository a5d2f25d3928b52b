"""What kind of work an operator is, and its FLOPs."""

from __future__ import annotations

import pytest

from stoker.layout import Layout
from stoker.profiling.account import account_of, work_of
from stoker.profiling.families import FAMILIES, family_of, flops_of, is_fused_attention, is_unfused_attention
from stoker.profiling.operators import Totals
from tests.profiling import made_up as m


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("aten::addmm", "matrix products"),
        ("stoker::rows_times_experts", "matrix products"),
        ("sm80_xmma_gemm_bf16bf16_bf16f32", "matrix products"),
        ("nvjet_hsh_128x256_64x4", "matrix products"),
        ("aten::_scaled_dot_product_flash_attention_for_cpu", "attention"),
        ("stoker::ring_attention_backward", "attention"),
        ("aten::_log_softmax", "loss"),
        ("aten::native_layer_norm_backward", "normalisation"),
        ("aten::silu", "elementwise"),
        ("aten::mul", "elementwise"),
        ("aten::sum", "reductions"),
        ("aten::_softmax", "reductions"),
        ("aten::index_add_", "indexing"),
        ("aten::embedding", "indexing"),
        ("aten::copy_", "copies"),
        ("Memcpy DtoD (Device -> Device)", "copies"),
        ("triton_poi_fused_add_0", "fused"),
        ("aten::linear", "other"),
        ("aten::transpose", "other"),
    ],
)
def test_an_operator_has_a_family(name: str, family: str) -> None:
    assert family_of(name) == family
    assert family in FAMILIES


@pytest.mark.parametrize(
    ("name", "shapes", "flops"),
    [
        ("aten::mm", [[4, 8], [8, 16]], 2 * 4 * 8 * 16),
        ("aten::addmm", [[16], [4, 8], [8, 16], []], 2 * 4 * 8 * 16),
        ("aten::bmm", [[3, 4, 8], [3, 8, 16]], 3 * 2 * 4 * 8 * 16),
        ("aten::_grouped_mm", [[100, 8], [6, 8, 16]], 2 * 100 * 8 * 16),
        ("aten::mm", [[4, 8], [9, 16]], 0),
        ("aten::add", [[4, 8], [4, 8]], 0),
        (
            "aten::_scaled_dot_product_flash_attention_for_cpu",
            [[2, 4, 32, 8], [2, 1, 32, 8], [2, 1, 32, 8]],
            65536 * 4,
        ),
        ("stoker::document_attention", [[2, 32, 4, 8], [2, 32, 1, 8], [2, 32, 1, 8], [2, 32]], 65536 * 4),
        ("stoker::document_attention_backward", [[2, 32, 4, 8], [2, 32, 4, 8], [2, 32, 1, 8]], 65536 * 10),
    ],
)
def test_flops_follow_from_shapes(name: str, shapes: list[list[int]], flops: int) -> None:
    assert flops_of(name, shapes) == flops


def test_attention_is_fused_or_not() -> None:
    assert is_fused_attention("aten::_scaled_dot_product_flash_attention_for_cpu")
    assert is_fused_attention("stoker::document_attention")
    assert is_unfused_attention("aten::_scaled_dot_product_attention_math")
    assert not is_unfused_attention("aten::scaled_dot_product_attention")


def test_operators_are_summed_by_their_shapes() -> None:
    trace = m.trace(
        m.step(1, 0, 100),
        m.phase("forward", 0, 60),
        m.operator("aten::mm", 0, 10, [8, 16], [16, 128]),
        m.operator("aten::mm", 10, 30, [8, 16], [16, 128]),
        m.operator("aten::mm", 30, 40, [8, 7], [7, 8]),
        m.phase("evaluation", 60, 100),
        m.operator("aten::mm", 60, 90, [8, 7], [7, 8]),
    )
    totals = Totals()
    totals.add(trace.operators, work_of(trace), account_of(trace, Layout()))
    first, second = totals.rows(rank_steps=1, reachable=1e9)
    assert (first.shapes, first.calls, first.seconds) == (((8, 16), (16, 128)), 2, 30e-6)
    assert first.flops_per_second == pytest.approx(2 * 2 * 8 * 16 * 128 / 30e-6)
    assert first.of_reachable == pytest.approx(first.flops_per_second / 1e9)
    assert (second.shapes, second.calls) == (((8, 7), (7, 8)), 1)
    assert totals.suited == {8: 30_000, 16: 0, 128: 0}
