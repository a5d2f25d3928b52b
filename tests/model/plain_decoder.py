"""The decoder once more, written out token by token in the plainest way, to hold the real one against.

No torch.nn, no fused kernel, no batch: one document at a time, float64, angles as complex numbers.
"""

from __future__ import annotations

import cmath
import math

import torch
from torch import Tensor

from stoker.recipe import Model


def document_logits(state: dict[str, Tensor], config: Model, tokens: list[int]) -> Tensor:
    """Logits [length, V] of one document that stands alone."""
    x = state["embedding.weight"][tokens]
    if config.position == "learned":
        x = x + state["position_embedding.weight"][: len(tokens)]
    for layer in range(config.layers):
        x = _block(state, f"blocks.{layer}.", config, x)
    x = _norm(x, state, "norm", config)
    head = state["embedding.weight"] if config.tie_embeddings else state["head.weight"]
    return _cap(x @ head.T, config.logit_softcap)


def cross_entropies(logits: Tensor, targets: list[int]) -> Tensor:
    """-log p of each target, by the definition."""
    rows = [-(row[t].exp() / row.exp().sum()).log() for row, t in zip(logits, targets, strict=True)]
    return torch.stack(rows)


def _block(state: dict[str, Tensor], name: str, config: Model, x: Tensor) -> Tensor:
    for branch, function in (("attention", _attention), ("feed_forward", _feed_forward)):
        y = x
        if config.norm_position in ("pre", "both"):
            y = _norm(y, state, f"{name}{branch}_norm", config)
        y = function(state, f"{name}{branch}.", config, y)
        if config.norm_position in ("post", "both"):
            y = _norm(y, state, f"{name}{branch}_output_norm", config)
        x = x + y
    return x


def _attention(state: dict[str, Tensor], name: str, config: Model, x: Tensor) -> Tensor:
    size, H, G = config.size_of_head, config.heads, config.key_value_heads
    q, k, v = (_linear(state, f"{name}{part}", x) for part in ("query", "key", "value"))
    if config.qk_norm == "full":
        q, k = (_rms(y, state[f"{name}{part}_norm.weight"], config) for y, part in ((q, "query"), (k, "key")))
    mixed = []
    for head in range(H):
        group = head * G // H
        qh, kh, vh = (y[:, i * size : (i + 1) * size] for y, i in ((q, head), (k, group), (v, group)))
        if config.qk_norm == "head":
            qh, kh = (
                _rms(y, state[f"{name}{part}_norm.weight"], config) for y, part in ((qh, "query"), (kh, "key"))
            )
        if config.position == "rope":
            qh, kh = _turn(qh, config.rope_theta), _turn(kh, config.rope_theta)
        rows = []
        for i in range(len(x)):
            first = 0 if config.sliding_window is None else max(0, i - config.sliding_window + 1)
            logits = _cap(kh[first : i + 1] @ qh[i] / math.sqrt(size), config.attention_softcap)
            if config.position == "alibi":
                distance = torch.arange(i - first, -1, -1, dtype=x.dtype)
                logits = logits - _slope(head, H) * distance
            rows.append(torch.softmax(logits, 0) @ vh[first : i + 1])
        mixed.append(torch.stack(rows))
    return _linear(state, f"{name}output", torch.cat(mixed, dim=1))


def _feed_forward(state: dict[str, Tensor], name: str, config: Model, x: Tensor) -> Tensor:
    up = _linear(state, f"{name}up", x)
    if config.activation == "gelu":
        inner = _gelu(up)
    else:
        gate = _linear(state, f"{name}gate", x)
        inner = up * (gate / (1 + (-gate).exp()) if config.activation == "swiglu" else _gelu(gate))
    return _linear(state, f"{name}down", inner)


def _linear(state: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
    y = x @ state[f"{name}.weight"].T
    return y + state[f"{name}.bias"] if f"{name}.bias" in state else y


def _norm(x: Tensor, state: dict[str, Tensor], name: str, config: Model) -> Tensor:
    if config.norm == "rms":
        return _rms(x, state[f"{name}.weight"], config)
    centred = x - x.mean(-1, keepdim=True)
    scaled = centred / ((centred**2).mean(-1, keepdim=True) + config.norm_epsilon).sqrt()
    return scaled * state[f"{name}.weight"] + state[f"{name}.bias"]


def _rms(x: Tensor, weight: Tensor, config: Model) -> Tensor:
    return x / ((x**2).mean(-1, keepdim=True) + config.norm_epsilon).sqrt() * weight


def _turn(x: Tensor, theta: float) -> Tensor:
    half = x.shape[1] // 2
    pairs = torch.complex(x[:, :half], x[:, half:])
    turns = [[cmath.exp(1j * m * theta ** (-2 * i / x.shape[1])) for i in range(half)] for m in range(len(x))]
    turned = pairs * torch.tensor(turns, dtype=pairs.dtype)
    return torch.cat((turned.real, turned.imag), dim=1)


def _slope(head: int, heads: int) -> float:
    """The paper's: 2^(-8/n), 2^(-16/n) … for n a power of two; else that of the closest power below,
    then every other one of twice that power."""
    power = 1 << (heads.bit_length() - 1)
    if head < power:
        return float(2 ** (-8 / power)) ** (head + 1)
    return float(2 ** (-8 / (2 * power))) ** (2 * (head - power) + 1)


def _gelu(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _cap(x: Tensor, cap: float | None) -> Tensor:
    return x if cap is None else cap * torch.tanh(x / cap)
