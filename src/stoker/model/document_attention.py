"""Causal attention over packed documents on a processor: each document by itself, so that no work is
spent on pairs in different documents.

One custom operator, so that a compiled block holds it as one call whatever the documents' lengths.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

_kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_kernel_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def document_attention(q_BLHK: Tensor, k_BLGK: Tensor, v_BLGK: Tensor, starts: Tensor) -> Tensor:
    """Softmax attention scaled by 1/sqrt(K) of each token over its own document up to itself: [B, L, H, K].

    `starts` bool [B, L] marks the first token of each document; the first of a sequence always is one.
    """
    return _attention(q_BLHK, k_BLGK, v_BLGK, starts)[0]  # type: ignore[no-any-return]


@torch.library.custom_op("stoker::document_attention", mutates_args=(), device_types="cpu")
def _attention(q: Tensor, k: Tensor, v: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
    output, log_sums = _outputs(q)
    for rows in _documents(starts):
        mixed, log_sum = _kernel(*(_heads_first(x, rows) for x in (q, k, v)), 0.0, True)
        output[rows] = mixed.squeeze(0).transpose(0, 1)
        log_sums[rows] = log_sum.squeeze(0).transpose(0, 1)
    return output, log_sums


@_attention.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
    return _outputs(q)


@torch.library.custom_op("stoker::document_attention_backward", mutates_args=(), device_types="cpu")
def _attention_backward(
    gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, output: Tensor, log_sums: Tensor, starts: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    gradients = tuple(torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k, v))
    for rows in _documents(starts):
        parts = _kernel_backward(
            *(_heads_first(x, rows) for x in (gradient, q, k, v, output)),
            log_sums[rows].transpose(0, 1).unsqueeze(0),
            0.0,
            True,
        )
        for whole, part in zip(gradients, parts, strict=True):
            whole[rows] = part.squeeze(0).transpose(0, 1)
    return gradients  # type: ignore[return-value]


@_attention_backward.register_fake
def _(
    gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, output: Tensor, log_sums: Tensor, starts: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = (torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k, v))
    return q, k, v


def _keep(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, starts = inputs
    ctx.save_for_backward(q, k, v, *output, starts)


def _differentiate(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    q, k, v, output, log_sums, starts = ctx.saved_tensors
    return (*_attention_backward(gradient, q, k, v, output, log_sums, starts), None)


_attention.register_autograd(_differentiate, setup_context=_keep)


def _outputs(q: Tensor) -> tuple[Tensor, Tensor]:
    accumulate = torch.float64 if q.dtype == torch.float64 else torch.float32
    return torch.empty_like(q, memory_format=torch.contiguous_format), q.new_empty(q.shape[:3], dtype=accumulate)


def _heads_first(x_BLHK: Tensor, rows: tuple[int, slice]) -> Tensor:
    """One document's rows as the kernel wants them: [1, H, tokens, K]."""
    return x_BLHK[rows].transpose(0, 1).unsqueeze(0)


def _documents(starts: Tensor) -> Iterator[tuple[int, slice]]:
    """Where each document lies: its sequence and its tokens."""
    length = starts.shape[1]
    places = starts.nonzero().tolist()
    for (sequence, first), following in zip(places, [*places[1:], [-1, 0]], strict=True):
        yield sequence, slice(first, following[1] if following[0] == sequence else length)
