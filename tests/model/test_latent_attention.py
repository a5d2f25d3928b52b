"""Latent attention: what backward keeps, what it computes again, and other ways to the same result.

Its logits and gradients are held against the plain formulation with those of every architecture.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.attention.flex_attention import flex_attention
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from stoker.model import Decoder, attention, latent_attention
from stoker.model.attention import attend
from stoker.model.latent_attention import LatentAttention
from stoker.model.masks import AttentionMask, MaskRule, block_mask, dense_mask
from stoker.model.position import Rotary, rotary_angles
from stoker.recipe import Model
from tests.model.plain_decoder import document_logits
from tests.model.shapes import LENGTH, SHAPES, config_of, draw_tokens, model_of, pack

SIZES: dict[str, Any] = {
    "kv_rank": 8,
    "query_rank": 12,
    "nope_head_size": 16,
    "rope_head_size": 8,
    "value_head_size": 16,
}
HEADS, D, B, L = 8, 32, 2, 64


def layer(dtype: torch.dtype = torch.float64, **changes: Any) -> tuple[LatentAttention, Tensor, Rotary]:
    config = Model(hidden_size=D, layers=1, heads=HEADS, ffn_hidden_size=8, latent_attention={**SIZES, **changes})
    torch.manual_seed(0)
    module = LatentAttention(config).to(dtype)
    x = torch.randn(B, L, D, dtype=dtype, requires_grad=True)
    return module, x, rotary_angles(torch.arange(L)[None], config.rotary_size, 1e4, dtype)


class LivingBytes(TorchDispatchMode):
    """Counts the bytes of all storages made inside that are still alive."""

    def __init__(self, *known: Tensor) -> None:
        super().__init__()
        self.made: list[Any] = []
        self._known = {x.untyped_storage()._cdata for x in known}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for x in torch.utils._pytree.tree_leaves(result):
            if isinstance(x, Tensor):
                storage = x.untyped_storage()
                if storage._cdata not in self._known:
                    self.made.append((StorageWeakRef(storage), storage.nbytes()))
        return result

    @property
    def bytes(self) -> int:
        gc.collect()
        alive = {reference.cdata: size for reference, size in self.made if not reference.expired()}
        return sum(alive.values())


def bytes_kept_for_backward(module: LatentAttention, x: Tensor, rotary: Rotary, mask: AttentionMask) -> int:
    counted = LivingBytes(x, *rotary, *module.parameters())
    with counted:
        result = module(x, rotary, mask)
    assert result.requires_grad
    return counted.bytes


MASKS: dict[str, Callable[[], AttentionMask]] = {
    "causal": lambda: None,
    "packed": lambda: MaskRule(None, None, False).build(
        pack([[40, 24], [64]])[1], None, L, torch.device("cpu"), torch.float64
    ),
}


@pytest.mark.parametrize("mask", MASKS)
def test_backward_keeps_latents_instead_of_keys_and_values(mask: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, x, rotary = layer()
    built = MASKS[mask]()
    kept = bytes_kept_for_backward(module, x, rotary, built)
    width = SIZES["nope_head_size"] + SIZES["rope_head_size"]
    latents = SIZES["kv_rank"] + SIZES["query_rank"] + SIZES["rope_head_size"]
    mix = (
        HEADS * width + HEADS * SIZES["value_head_size"] + HEADS
    )  # as the kernel gives it, as wide as values, sums
    assert kept <= 8 * B * L * (latents + mix + D) * 1.05
    monkeypatch.setattr(latent_attention, "forgetting", lambda *_: torch.enable_grad())
    materialised = bytes_kept_for_backward(module, x, rotary, built)
    assert materialised - kept >= 0.95 * (8 * B * L * 3 * HEADS * width)  # queries, keys and values


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("changes", [{}, {"query_rank": None}, {"value_head_size": 24}], ids=str)
def test_gradients_are_those_of_everything_kept(
    mask: str, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    module, x, rotary = layer(**changes)
    weight = torch.randn(B, L, D, dtype=x.dtype)

    def gradients() -> list[Tensor]:
        inputs = [x, *module.parameters()]
        return list(torch.autograd.grad(module(x, rotary, MASKS[mask]()), inputs, weight))

    got = gradients()
    monkeypatch.setattr(latent_attention, "forgetting", lambda *_: torch.enable_grad())
    monkeypatch.setattr(latent_attention, "_normed_linear", lambda x, norm, linear, compute: linear(norm(x)))
    for ours, wanted in zip(got, gradients(), strict=True):
        assert torch.allclose(ours, wanted, rtol=1e-11, atol=1e-12)


def test_expansions_are_computed_once_more_and_let_go_of() -> None:
    module, x, rotary = layer()
    calls: list[bool] = []
    plain = module.expand

    def counted(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
        calls.append(torch.is_grad_enabled())
        return plain(*arguments)

    module.expand = counted  # type: ignore[method-assign]
    result = module(x, rotary, None)
    assert calls == [True]
    result.sum().backward(retain_graph=True)
    assert calls == [True, False]
    result.sum().backward()  # a second pass through the same graph computes again
    assert calls == [True, False, False]


def test_within_a_recomputed_block_nothing_is_kept() -> None:
    module, x, rotary = layer()
    weight = torch.randn(B, L, D, dtype=x.dtype)
    inputs = [x, *module.parameters()]
    wanted = torch.autograd.grad(module(x, rotary, None), inputs, weight)
    counted = LivingBytes(x, *rotary, *module.parameters())
    with counted:
        result = checkpoint(module, x, rotary, None, use_reentrant=False)
    assert counted.bytes <= result.numel() * 8
    for got, plain in zip(torch.autograd.grad(result, inputs, weight), wanted, strict=True):
        assert torch.equal(got, plain)


def test_nothing_outlives_the_graph() -> None:
    module, x, rotary = layer()
    counted = LivingBytes(x, *rotary, *module.parameters())
    gc.disable()  # no cycles: memory must come free by itself
    try:
        with counted:
            module(x, rotary, None).sum()
        alive = {reference.cdata for reference, _ in counted.made if not reference.expired()}
    finally:
        gc.enable()
    assert alive == set()


@given(st.data())
@settings(max_examples=20)
def test_any_drawn_shape_equals_the_plain_formulation(data: st.DataObject) -> None:
    one_of = lambda *values: data.draw(st.sampled_from(values))  # noqa: E731
    nope, rope = one_of(1, 3, 4), one_of(2, 4)
    config = config_of(
        "llama",
        heads=one_of(1, 3),
        latent_attention={
            "kv_rank": one_of(1, 4),
            "query_rank": one_of(None, 3),
            "nope_head_size": nope,
            "rope_head_size": rope,
            "value_head_size": data.draw(st.integers(1, nope + rope)),
        },
        sliding_window=one_of(None, 2),
        attention_softcap=one_of(None, 2.0),
        attention_output_bias=one_of(True, False),
    )
    model = model_of(config)
    sizes = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    positions, documents = pack([sizes])
    tokens = draw_tokens(1, sum(sizes))
    logits = model(tokens, None, positions, documents)[0].split(sizes)
    for part, of_document in zip(tokens[0].split(sizes), logits, strict=True):
        wanted = document_logits(model.state_dict(), config, part.tolist())
        assert torch.allclose(of_document, wanted, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("softcap", [None, 2.0])
def test_values_may_be_narrower_than_keys_under_every_mask(
    softcap: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "_compiled_flex_attention", lambda: flex_attention)
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 160, heads, size, generator=generator) for heads, size in ((4, 24), (2, 24), (2, 16)))
    documents = pack([[100, 60], [160]])[1]
    masks: list[AttentionMask] = [None, dense_mask(documents, 160, 9, None, q.device, q.dtype)]
    if softcap is None:
        masks.append(MaskRule(None, None, False).build(documents, None, 160, q.device, q.dtype))
    masks.append(block_mask(documents, 160, None, q.device))
    wide = torch.nn.functional.pad(v, (0, 8))
    with torch.no_grad():
        for mask in masks:
            narrow = attend(q, k, v, mask, softcap)
            assert narrow.shape == (2, 160, 4, 16)
            assert torch.allclose(narrow, attend(q, k, wide, mask, softcap)[..., :16], atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_computes_near_the_exact_gradients(dtype: torch.dtype) -> None:
    module, x, rotary = layer(torch.float32)
    weight = torch.randn(B, L, D)
    inputs = [x, *module.parameters()]
    exact = torch.autograd.grad(module(x, rotary, None), inputs, weight)
    with torch.autocast("cpu", dtype):
        result = module(x, rotary, None)
    assert result.dtype == dtype
    for got, wanted in zip(torch.autograd.grad(result, inputs, weight.to(dtype)), exact, strict=True):
        assert got.dtype == torch.float32
        assert float((got - wanted).norm()) < 0.05 * float(wanted.norm())


def test_heads_can_be_cut_off() -> None:
    """What tensor parallelism does: the projections' rows and columns of some heads, and their number."""
    module, x, rotary = layer()
    wanted = module(x, rotary, None)
    found = torch.zeros_like(wanted)
    for first, last in ((0, 3), (3, HEADS)):
        part = layer()[0]
        part.load_state_dict(module.state_dict())
        part.heads = last - first
        for linear, size in ((part.query_up, 24), (part.kv_up, 32)):
            linear.weight = torch.nn.Parameter(linear.weight[first * size : last * size])
        part.output.weight = torch.nn.Parameter(part.output.weight[:, first * 16 : last * 16])
        found += part(x, rotary, None)
    assert torch.allclose(found, wanted, rtol=1e-12)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"latent_attention": {**SIZES, "rope_head_size": 3}}, "use 4"),
        ({"latent_attention": {**SIZES, "value_head_size": 25}}, "use at most that"),
        ({"kv_heads": 1}, "kv_heads has no meaning with latent_attention"),
        ({"qk_norm": "head"}, "qk_norm has no meaning"),
        ({"position": "alibi"}, "use rope"),
    ],
)
def test_what_does_not_go_together_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        config_of("latent", **changes)


def test_all_features_together() -> None:
    config = config_of("deepseek-v3", latent_attention=SHAPES["latent"]["latent_attention"], mtp_depth=1)
    model = model_of(config)
    positions, documents = pack([[7, 9]])
    tokens = draw_tokens(1, LENGTH)
    losses = model(tokens, tokens, positions, documents)
    losses.loss_sum.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    wanted = document_logits(model.state_dict(), config, tokens[0, :7].tolist())
    assert torch.allclose(model(tokens, None, positions, documents)[0, :7], wanted, rtol=1e-10)
    assert isinstance(model, Decoder)
