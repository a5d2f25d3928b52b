from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from stoker.model import TokenLosses, chunked_cross_entropy
from stoker.model.loss import IGNORED

B, L, D, V = 2, 7, 5, 11


def draw(dtype: torch.dtype = torch.float64, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(B, L, D, generator=generator, dtype=torch.float64)
    weight = torch.randn(V, D, generator=generator, dtype=torch.float64)
    targets = torch.randint(0, V, (B, L), generator=generator)
    targets[0, 2] = targets[1, -1] = IGNORED
    return hidden.to(dtype).requires_grad_(), weight.to(dtype).requires_grad_(), targets


def plain(hidden: Tensor, weight: Tensor, targets: Tensor, softcap: float | None, z_loss: float) -> Tensor:
    """The sum by the definition, logits whole."""
    logits = hidden @ weight.T
    if softcap is not None:
        logits = softcap * torch.tanh(logits / softcap)
    valid = targets != IGNORED
    logits, targets = logits[valid], targets[valid]
    log_partition = logits.exp().sum(-1).log()
    return (log_partition - logits[range(len(targets)), targets] + z_loss * log_partition**2).sum()


@pytest.mark.parametrize("softcap", [None, 1.5])
@pytest.mark.parametrize("z_loss", [0.0, 0.3])
def test_gradients_pass_finite_differences(softcap: float | None, z_loss: float) -> None:
    hidden, weight, targets = draw()

    def loss_sum(hidden: Tensor, weight: Tensor) -> Tensor:
        return chunked_cross_entropy(
            hidden, weight, targets, logit_softcap=softcap, z_loss=z_loss, loss_scale=2.5, chunk=4
        ).loss_sum

    assert torch.autograd.gradcheck(loss_sum, (hidden, weight))


@given(
    chunk=st.integers(1, 20),
    softcap=st.sampled_from([None, 2.0]),
    z_loss=st.sampled_from([0.0, 0.1]),
    loss_scale=st.sampled_from([1.0, 1 / 37, 1024.0]),
    seed=st.integers(0, 100),
)
@settings(max_examples=40)
def test_any_chunk_gives_the_plain_loss_and_gradients(
    chunk: int, softcap: float | None, z_loss: float, loss_scale: float, seed: int
) -> None:
    hidden, weight, targets = draw(seed=seed)
    losses = chunked_cross_entropy(
        hidden, weight, targets, logit_softcap=softcap, z_loss=z_loss, loss_scale=loss_scale, chunk=chunk
    )
    wanted = plain(hidden, weight, targets, softcap, z_loss) * loss_scale
    assert torch.allclose(losses.loss_sum, wanted, rtol=1e-12)
    got = torch.autograd.grad(losses.loss_sum * 3.0, (hidden, weight))
    for gradient, exact in zip(got, torch.autograd.grad(wanted * 3.0, (hidden, weight)), strict=True):
        assert torch.allclose(gradient, exact, rtol=1e-10, atol=1e-12 * loss_scale)


def test_token_losses_are_plain_cross_entropy_whatever_else_is_added() -> None:
    hidden, weight, targets = draw(torch.float32)
    losses = chunked_cross_entropy(hidden, weight, targets, z_loss=0.5, loss_scale=8.0, chunk=3)
    wanted = F.cross_entropy((hidden @ weight.T).view(-1, V), targets.view(-1), reduction="none")
    assert torch.allclose(losses.token_losses.view(-1), wanted, atol=1e-5)
    assert losses.token_losses.dtype == torch.float32
    assert not losses.token_losses.requires_grad
    assert losses.token_losses[0, 2] == losses.token_losses[1, -1] == 0


@pytest.mark.parametrize("z_loss", [0.0, 0.5])
def test_nothing_but_ignored_targets_gives_zero_loss_and_zero_gradients(z_loss: float) -> None:
    hidden, weight, targets = draw()
    losses = chunked_cross_entropy(hidden, weight, torch.full_like(targets, IGNORED), z_loss=z_loss)
    losses.loss_sum.backward()
    assert losses.loss_sum == 0
    assert not losses.token_losses.any()
    assert hidden.grad is not None
    assert weight.grad is not None
    assert not hidden.grad.any()
    assert not weight.grad.any()


def test_large_logits_neither_overflow_nor_lose_the_loss() -> None:
    hidden, weight, targets = draw(torch.float32)
    with torch.no_grad():
        weight *= 1e4
    losses = chunked_cross_entropy(hidden, weight, targets)
    wanted = F.cross_entropy((hidden @ weight.T).double().view(-1, V), targets.view(-1), reduction="sum")
    assert losses.loss_sum.item() == pytest.approx(wanted.item(), rel=1e-5)


def test_a_non_finite_hidden_state_shows_in_loss_and_gradient() -> None:
    hidden, weight, targets = draw()
    with torch.no_grad():
        hidden[1, 3, 0] = float("nan")
    losses = chunked_cross_entropy(hidden, weight, targets)
    losses.loss_sum.backward()
    assert losses.loss_sum.isnan()
    assert losses.token_losses.isnan().sum() == 1
    assert weight.grad is not None
    assert weight.grad.isnan().any()


@pytest.mark.parametrize("of_hidden", [True, False])
@pytest.mark.parametrize("of_weight", [True, False])
def test_gradients_are_computed_only_where_asked_for(of_hidden: bool, of_weight: bool) -> None:
    hidden, weight, targets = draw()
    hidden.requires_grad_(of_hidden)
    weight.requires_grad_(of_weight)
    products = CountProducts()
    with products:
        losses = chunked_cross_entropy(hidden, weight, targets)
    assert losses.loss_sum.requires_grad == (of_hidden or of_weight)
    assert products.count == 1 + of_hidden + of_weight


def test_without_gradients_only_the_losses_are_computed() -> None:
    hidden, weight, targets = draw()
    products = CountProducts()
    with torch.no_grad(), products:
        losses = chunked_cross_entropy(hidden, weight, targets)
    assert products.count == 1
    assert losses.loss_sum.item() == pytest.approx(plain(hidden, weight, targets, None, 0.0).item(), rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_small_gradients_survive_16_bits_by_the_loss_scale(dtype: torch.dtype) -> None:
    """A gradient of the logits far below fp16's smallest number: the scale must come before the cast."""
    hidden, weight, targets = draw(torch.float32)
    tiny, scale = 1e-9, 2.0**30
    exact = torch.autograd.grad(chunked_cross_entropy(hidden, weight, targets).loss_sum, (hidden, weight))
    with torch.autocast("cpu", dtype):
        losses: TokenLosses = chunked_cross_entropy(hidden, weight, targets, loss_scale=tiny * scale)
    gradients = torch.autograd.grad(losses.loss_sum, (hidden, weight))
    for gradient, wanted in zip(gradients, exact, strict=True):
        assert gradient.dtype == torch.float32
        assert float((gradient / (tiny * scale) - wanted).norm() / wanted.norm()) < 0.02


def test_the_gradient_of_the_weight_is_summed_in_fp32_under_autocast() -> None:
    """4,096 equal bf16 terms: a bf16 sum would stop growing at 256 of them."""
    hidden = torch.ones(1, 4096, 1, requires_grad=True)
    weight = torch.zeros(2, 1, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        losses = chunked_cross_entropy(hidden, weight, torch.zeros(1, 4096, dtype=torch.int64), chunk=1)
    losses.loss_sum.backward()
    assert weight.grad is not None
    assert weight.grad.flatten().tolist() == [-2048.0, 2048.0]


def test_pure_16_bit_weights_get_gradients_of_their_own_dtype() -> None:
    hidden, weight, targets = draw(torch.bfloat16)
    losses = chunked_cross_entropy(hidden, weight, targets)
    losses.loss_sum.backward()
    assert losses.loss_sum.dtype == torch.float32
    assert weight.grad is not None
    assert weight.grad.dtype == torch.bfloat16


def test_logits_are_never_whole_in_memory() -> None:
    tokens, size, vocabulary = 2048, 8, 8192
    hidden = torch.randn(1, tokens, size, requires_grad=True)
    weight = torch.randn(vocabulary, size, requires_grad=True)
    targets = torch.randint(0, vocabulary, (1, tokens))
    largest = LargestTensor()
    with largest:
        chunked_cross_entropy(hidden, weight, targets, logit_softcap=5.0, z_loss=0.1).loss_sum.backward()
    assert largest.elements <= tokens * vocabulary // 4
    with largest:
        F.cross_entropy((hidden @ weight.T)[0], targets[0]).backward()
    assert largest.elements == tokens * vocabulary


class LargestTensor(TorchDispatchMode):
    """Sees the largest result of any operation."""

    elements = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        sizes = [leaf.numel() for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        self.elements = max([self.elements, *sizes])
        return result


class CountProducts(TorchDispatchMode):
    """Counts matrix products."""

    count = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += function.overloadpacket.__name__ in ("mm", "addmm", "addmm_")
        return function(*args, **(kwargs or {}))
