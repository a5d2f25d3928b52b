"""What one forward pass draws at random, as a function of (seed, step, layer, sample, place) alone."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from stoker.counter_random import key_of
from stoker.model.counter_draws import draw_bits, uniform

_BITS = 2**53
_PLACES = 2**24
"""Longer than any sequence: numbers the tokens of all samples without overlap."""


class LayerDraws(NamedTuple):
    """What is drawn for one layer."""

    branch_scale: Tensor | None = None
    """[B, 1, 1]: multiplies what the layer adds; 0 skips the layer for a sample."""
    dropout_keys: Tensor | None = None
    """int64 [2]: of the outputs of attention and feed-forward."""


class PassDraws(NamedTuple):
    """What is drawn for a forward pass; nothing by default."""

    branch_scales: tuple[Tensor, ...] = ()
    """Of each layer, as in `LayerDraws`."""
    tokens: Tensor | None = None
    """int64 [B, L]: number of each token of the residual stream among the tokens of all samples."""
    dropout_keys: Tensor | None = None
    """int64 [1 + 2 layers]: of the embedding, then of both outputs of each layer."""

    def of_layer(self, layer: int) -> LayerDraws:
        """Those of one layer, counted from 0 in the whole model."""
        return LayerDraws(
            self.branch_scales[layer] if self.branch_scales else None,
            None if self.dropout_keys is None else self.dropout_keys[1 + 2 * layer : 3 + 2 * layer],
        )


def branch_scales(
    samples: Tensor | None, layer_drop: float, layers: int, step: int, seed: int
) -> tuple[Tensor, ...]:
    """For each layer [B, 1, 1]: 0 where the sample skips it, 1/(1 - p) where it does not.

    Stochastic depth (Huang et al. 2016): the probability p rises linearly to `layer_drop` at the
    last layer. No rank ever leaves a layer out, whatever it draws. Raises `ValueError` without
    `samples`.
    """
    if samples is None:
        raise ValueError("layer_drop needs the global sample numbers of the batch (`samples`)")
    scales = []
    for layer in range(layers):
        probability = layer_drop * (layer + 1) / layers
        kept = uniform(key_of(seed, "layer_drop", step, layer), samples) > probability
        scales.append((kept.to(torch.float64) / (1.0 - probability))[:, None, None])
    return tuple(scales)


def token_numbers(samples: Tensor | None, places: Tensor) -> Tensor:
    """int64 [B, L]: numbers of the tokens at `places` [L] of `samples` [B]. Raises `ValueError` without samples."""
    if samples is None:
        raise ValueError("dropout needs the global sample numbers of the batch (`samples`)")
    return samples[:, None] * _PLACES + places[None]


def dropout_keys(layers: int, step: int, seed: int, device: torch.device) -> Tensor:
    """The keys of `PassDraws`."""
    keys = [key_of(seed, "dropout", step, site) for site in range(1 + 2 * layers)]
    return torch.tensor([key - 2**64 if key >= 2**63 else key for key in keys], dtype=torch.int64, device=device)


def drop(x_BLD: Tensor, probability: float, tokens: Tensor, key: Tensor) -> Tensor:
    """Zero each element with `probability`, scale the others by 1 / (1 - probability) (Srivastava et al. 2014).

    `tokens` [B, L] numbers the tokens; `key` [] names the place in the model.
    """
    width = x_BLD.shape[-1]
    counters = tokens[..., None] * width + torch.arange(width, dtype=torch.int64, device=x_BLD.device)
    kept = (draw_bits(key, counters) >> 11) & (_BITS - 1) >= int(probability * _BITS)
    return x_BLD * (kept.to(x_BLD.dtype) / (1.0 - probability))
