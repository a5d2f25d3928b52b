"""Which samples skip which layers: a function of (seed, step, layer, global sample number)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from stoker.counter_random import key_of
from stoker.model.counter_draws import uniform


def branch_scales(
    samples: Tensor | None, layer_drop: float, layers: int, step: int, seed: int, like: Tensor
) -> Sequence[Tensor | None]:
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
        draws = uniform(key_of(seed, "layer_drop", step, layer), samples)
        kept = (draws > probability).to(like.dtype)
        scales.append((kept / (1.0 - probability)).to(like.device)[:, None, None])
    return scales
