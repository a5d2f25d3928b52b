"""Every layout computes the loss, gradients, norms, logits and routing of one process, in fp64 to 1e-12.

The wide draw over layouts and several steps is that of `stoker verify`; these are the ones to run while
working on a dimension.
"""

from __future__ import annotations

from typing import Any

import pytest

from stoker.layout import Layout
from tests.parallel.parity import CASES, check

pytestmark = pytest.mark.slow

DENSE = [name for name in CASES if "experts" not in name]
EXPERTS = [name for name in CASES if "experts" in name]
WITHOUT_WINDOW = [name for name in DENSE if name != "alibi, capped"]


def _thorough(layout: Layout) -> Any:
    """One that the drawn layouts of `stoker verify` are like; those run every time."""
    return pytest.param(layout, marks=pytest.mark.thorough)


@pytest.mark.parametrize(
    "layout",
    [
        Layout(dp_replicate=2),
        Layout(dp_shard=2),
        _thorough(Layout(dp_shard=4, zero_stage=2)),
        Layout(dp_shard=2, zero_stage=1),
        Layout(dp_replicate=2, dp_shard=2),
        Layout(tp=2),
        _thorough(Layout(tp=3)),
        _thorough(Layout(tp=4)),
        Layout(tp=2, dp_shard=2),
        _thorough(Layout(tp=2, dp_replicate=2)),
        Layout(pp=2),
        _thorough(Layout(pp=4, pipeline_schedule="gpipe")),
        Layout(pp=2, pipeline_schedule="zbv"),
        Layout(pp=2, tp=2, pipeline_schedule="interleaved_1f1b"),
        Layout(pp=2, dp_shard=2, pipeline_schedule="interleaved_zero_bubble"),
        _thorough(Layout(pp=3, dp_replicate=2)),
    ],
    ids=str,
)
def test_dense_models(layout: Layout) -> None:
    check(layout, DENSE)


@pytest.mark.parametrize(
    "layout",
    [
        Layout(cp=2),
        Layout(cp=3, cp_method="all_gather"),
        _thorough(Layout(cp=4, cp_method="ulysses")),
        Layout(cp=2, tp=2),
        _thorough(Layout(cp=2, dp_shard=2, cp_method="ulysses")),
        Layout(cp=2, pp=2, pipeline_schedule="dualpipe_v"),
    ],
    ids=str,
)
def test_divided_sequences(layout: Layout) -> None:
    check(layout, WITHOUT_WINDOW)


@pytest.mark.parametrize(
    "layout",
    [
        Layout(dp_replicate=2, ep=2),
        Layout(dp_shard=2, ep=2),
        _thorough(Layout(dp_replicate=2, dp_shard=2, ep=2)),
        _thorough(Layout(dp_shard=4, ep=2, zero_stage=2)),
        Layout(tp=2),
        Layout(tp=2, expert_tp=False),
        _thorough(Layout(tp=2, ep=2, expert_tp=False)),
        Layout(tp=2, dp_shard=2, ep=2),
        Layout(cp=2, ep=2),
        Layout(cp=2, tp=2, ep=4, expert_tp=False),
        Layout(pp=2, dp_shard=2, ep=2, pipeline_schedule="zbv"),
    ],
    ids=str,
)
def test_experts(layout: Layout) -> None:
    check(layout, EXPERTS)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "layout",
    [
        Layout(pp=2, tp=2, dp_shard=2),
        Layout(pp=2, cp=2, tp=2, cp_method="all_gather"),
        Layout(dp_replicate=2, cp=2, tp=2),
        Layout(dp_replicate=2, dp_shard=2, cp=2, cp_method="ulysses"),
        Layout(pp=2, dp_replicate=2, dp_shard=2, pipeline_schedule="dualpipe_v"),
        Layout(tp=8),
    ],
    ids=str,
)
def test_three_dimensions_on_eight_ranks(layout: Layout) -> None:
    check(layout, ["grouped queries", "tied, q/k norm of heads", "experts, softmax", "further tokens"])
