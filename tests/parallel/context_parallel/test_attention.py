"""Attention in parts equals attention of one process, whatever its features, heads, lengths and precision."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from stoker.model.attention import attend
from stoker.model.masks import MaskRule, block_mask, dense_mask
from stoker.model.position import Places
from stoker.parallel.context_parallel import own_places
from stoker.parallel.context_parallel.apply import METHODS
from stoker.parallel.context_parallel.masks import PartMaskRule, own_block_mask
from tests.distributed import run_ranks
from tests.parallel.context_parallel.cases import ALL_METHODS, Case, draw_case, error, part_mask
from tests.parallel.context_parallel.ranks import group_of

pytestmark = pytest.mark.slow

TOLERANCES = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2}
PLAIN = {"window": None, "alibi": False, "softcap": None, "packed": False}
FEATURES: list[dict[str, Any]] = [
    {},
    {"window": 3},
    {"alibi": True},
    {"softcap": 1.0},
    {"packed": True},
    {"window": 5, "alibi": True, "softcap": 2.0, "packed": True},
]


def _errors(rank: int, ranks: int, store: Any, cases: list[Case]) -> dict[tuple[str, Case], float]:
    group = group_of(rank, ranks, store).group
    return {(method, case): error(case, method, group) for case in cases for method in ALL_METHODS}


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_equals_one_process(ranks: int) -> None:
    cases = [draw_case(seed, torch.float64) for seed in range(40)]
    cases += [draw_case(seed, torch.float32) for seed in range(40, 52)]
    cases += [draw_case(seed, torch.bfloat16) for seed in range(52, 60)]
    # Each feature by itself and all together, on lengths that divide and that leave ranks with nothing.
    for length in (1, ranks, 2 * ranks + 1, 8 * ranks):
        for seed, features in enumerate(FEATURES):
            cases.append(draw_case(seed, torch.float64, **{**PLAIN, "length": length, **features}))
    for window, packed in ((None, True), (600, False)):  # as many queries as a tile has, and more
        long = {"length": 1300, "batch": 1, "heads": 2, "kv_heads": 1, "tile": 512, "alibi": True}
        cases.append(draw_case(2, torch.float64, **{**PLAIN, **long, "window": window, "packed": packed}))
    for errors in run_ranks(_errors, ranks, cases, timeout=200):
        for (method, case), value in errors.items():
            assert value <= TOLERANCES[case.dtype], (method, case)


def _gradients_without_heads(rank: int, ranks: int, store: Any) -> None:
    """A tensor-parallel rank may hold a key and value head that none of its queries reads."""
    group = group_of(rank, ranks, store).group
    case = draw_case(0, torch.float64, **{**PLAIN, "heads": 0, "kv_heads": 1, "length": 9})
    for method in ALL_METHODS:
        q, k, v, _ = (x[:, :1].requires_grad_() for x in case.tensors())
        attended = METHODS[method](q, k, v, part_mask(case, method, group), None, group)
        assert attended.shape == (case.batch, 1, 0, case.value_size)
        attended.sum().backward()
        assert q.grad is not None
        assert not k.grad.any()
        assert not v.grad.any()


def test_without_heads_gradients_are_zeros() -> None:
    run_ranks(_gradients_without_heads, 9)


def _under_autocast(rank: int, ranks: int, store: Any) -> dict[str, float]:
    """The largest error of attention that is capped, whose products autocast would make less precise."""
    split = group_of(rank, ranks, store)
    case = draw_case(3, torch.float32, **{**PLAIN, "heads": 4, "kv_heads": 2, "length": 13, "softcap": 1.0})
    errors = {}
    for method in ALL_METHODS:
        with torch.autocast("cpu", torch.bfloat16):
            errors[method] = error(case, method, split.group)
    return errors


def test_autocast_leaves_the_attention_itself_alone() -> None:
    for errors in run_ranks(_under_autocast, 2):
        assert max(errors.values()) <= 1e-5


def _bytes_kept(rank: int, ranks: int, store: Any, length: int) -> dict[str, tuple[int, int]]:
    """Bytes kept for the backward pass, and those of this rank's own queries, keys, values and outcome."""
    split = group_of(rank, ranks, store)
    case = draw_case(
        1, torch.float32, **{**PLAIN, "heads": 4, "kv_heads": 4, "length": length, "key_size": 8, "value_size": 8}
    )
    kept = {}
    for method in ALL_METHODS:
        storages: dict[int, int] = {}

        def keep(x: torch.Tensor, storages: dict[int, int] = storages) -> torch.Tensor:
            storages[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
            return x

        q, k, v, gradient = (split.cut(x, 1).clone().requires_grad_() for x in case.tensors())
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
            outcome = METHODS[method](q, k, v, part_mask(case, method, split.group), None, split.group)
        outcome.backward(gradient)
        log_sums = q[..., 0].nbytes
        kept[method] = sum(storages.values()), q.nbytes + k.nbytes + v.nbytes + outcome.nbytes + log_sums
    return kept


def test_ring_keeps_no_keys_and_values_of_other_ranks() -> None:
    for kept in run_ranks(_bytes_kept, 4, 256):
        held, own = kept["ring"]
        assert held == own
        held, own = kept["all_gather"]
        assert held > own


@pytest.mark.parametrize(("window", "packed"), [(None, False), (3, False), (None, True), (4, True)])
def test_block_mask_of_own_places_hides_what_one_process_hides(window: int | None, packed: bool) -> None:
    """What flex_attention is given on accelerators; without gradients it runs here too."""
    case = draw_case(
        5, torch.float32, **{**PLAIN, "heads": 4, "kv_heads": 2, "length": 21, "window": window, "packed": packed}
    )
    q, k, v, _ = case.tensors()
    documents = case.documents()
    expected = attend(q, k, v, dense_mask(documents, 21, window, None, q.device, q.dtype), None)
    own = own_places(21, 3, 1)
    may = own_block_mask(documents, Places(own, 21), window).mask_mod
    all_may = block_mask(documents, 21, window, q.device).mask_mod
    for mask, places in ((may, own), (all_may, torch.arange(21))):
        batch, query, key = torch.meshgrid(
            torch.arange(case.batch), torch.arange(len(places)), torch.arange(21), indexing="ij"
        )
        allowed = mask(batch, torch.zeros_like(batch), query, key)
        dense = torch.zeros(allowed.shape).masked_fill(~allowed, float("-inf"))[:, None]
        torch.testing.assert_close(attend(q[:, places], k, v, dense, None), expected[:, places])


def test_refuses_what_does_not_agree() -> None:
    rule = PartMaskRule(None, None, False, method="ring", ranks=2, rank=0)
    places, device = Places(own_places(8, 2, 0), 8), torch.device("cpu")
    with pytest.raises(ValueError, match="which places"):
        rule.build(None, None, 8, device, torch.float32)
    with pytest.raises(ValueError, match="holds 4 of 8 tokens, got 3"):
        rule.build(None, places, 3, device, torch.float32)
    with pytest.raises(ValueError, match="8 tokens, got 4"):
        rule.build(torch.zeros(1, 4), places, 4, device, torch.float32)
    assert rule.build(torch.zeros(1, 8), places, 4, device, torch.float32).starts is None
    wide = PartMaskRule(8, None, False, method="ring", ranks=2, rank=0)
    assert isinstance(wide, MaskRule)
    assert wide.build(None, places, 4, device, torch.float32).window is None
