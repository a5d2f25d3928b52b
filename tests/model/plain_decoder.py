"""The decoder once more, written out token by token in the plainest way, to hold the real one against.

No torch.nn, no fused kernel, no batch: one document at a time, float64, angles as complex numbers.
"""

from __future__ import annotations

import cmath
import math

import torch
from torch import Tensor

from stoker.recipe import Model


def document_logits(
    state: dict[str, Tensor], config: Model, tokens: list[int], router_terms: list[Tensor] | None = None
) -> Tensor:
    """Logits [length, V] of one document that stands alone.

    `router_terms` gathers each router's auxiliary loss and z-loss, with their coefficients, times the tokens.
    """
    return _logits(state, config, _hidden(state, config, tokens, router_terms), "norm")


def further_logits(
    state: dict[str, Tensor], config: Model, tokens: list[int], router_terms: list[Tensor] | None = None
) -> list[Tensor]:
    """Of each depth k = 1, 2, … of multi-token prediction, the logits [length - k, V] of a document alone."""
    x = _hidden(state, config, tokens, None)
    found = []
    for depth in range(1, config.mtp_depth + 1):
        name = f"mtp.{depth - 1}."
        rows = []
        for i in range(len(tokens) - depth):
            embedded = state["embedding.weight"][tokens[i + depth]][None]
            both = (
                _norm(x[i : i + 1], state, f"{name}hidden_norm", config)[0],
                _norm(embedded, state, f"{name}embedding_norm", config)[0],
            )
            rows.append(state[f"{name}projection.weight"] @ torch.cat(both))
        if not rows:
            return found
        x = _block(state, f"{name}block.", config, torch.stack(rows), config.layers + depth - 1, router_terms)
        found.append(_logits(state, config, x, f"{name}norm"))
    return found


def _hidden(
    state: dict[str, Tensor], config: Model, tokens: list[int], router_terms: list[Tensor] | None
) -> Tensor:
    x = state["embedding.weight"][tokens]
    if config.position == "learned":
        x = x + state["position_embedding.weight"][: len(tokens)]
    for layer in range(config.layers):
        x = _block(state, f"blocks.{layer}.", config, x, layer, router_terms)
    return x


def _logits(state: dict[str, Tensor], config: Model, x: Tensor, norm: str) -> Tensor:
    x = _norm(x, state, norm, config)
    head = state["embedding.weight"] if config.tie_embeddings else state["head.weight"]
    return _cap(x @ head.T, config.logit_softcap)


def cross_entropies(logits: Tensor, targets: list[int]) -> Tensor:
    """-log p of each target, by the definition."""
    rows = [-(row[t].exp() / row.exp().sum()).log() for row, t in zip(logits, targets, strict=True)]
    return torch.stack(rows)


def _block(
    state: dict[str, Tensor],
    name: str,
    config: Model,
    x: Tensor,
    layer: int,
    router_terms: list[Tensor] | None,
) -> Tensor:
    attention = _attention if config.latent_attention is None else _latent_attention
    feed_forward = _feed_forward
    if config.moe is not None and layer >= config.moe.first_dense_layers:

        def feed_forward(state: dict[str, Tensor], name: str, config: Model, x: Tensor) -> Tensor:
            return _mixture(state, name, config, x, router_terms)

    for branch, function in (("attention", attention), ("feed_forward", feed_forward)):
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


def _latent_attention(state: dict[str, Tensor], name: str, config: Model, x: Tensor) -> Tensor:
    sizes = config.latent_attention
    assert sizes is not None
    nope, rope, value = sizes.nope_head_size, sizes.rope_head_size, sizes.value_head_size
    if sizes.query_rank is None:
        queries = x @ state[f"{name}query.weight"].T
    else:
        latent = _rms(x @ state[f"{name}query_down.weight"].T, state[f"{name}query_norm.weight"], config)
        queries = latent @ state[f"{name}query_up.weight"].T
    latent = _rms(x @ state[f"{name}kv_down.weight"].T, state[f"{name}kv_norm.weight"], config)
    shared_key = _turn(x @ state[f"{name}key_rope.weight"].T, config.rope_theta)
    mixed = []
    for head in range(config.heads):
        q = queries[:, head * (nope + rope) : (head + 1) * (nope + rope)]
        q = torch.cat((q[:, :nope], _turn(q[:, nope:], config.rope_theta)), dim=1)
        up = state[f"{name}kv_up.weight"][head * (nope + value) : (head + 1) * (nope + value)]
        k, v = torch.cat((latent @ up[:nope].T, shared_key), dim=1), latent @ up[nope:].T
        rows = []
        for i in range(len(x)):
            first = 0 if config.sliding_window is None else max(0, i - config.sliding_window + 1)
            logits = _cap(k[first : i + 1] @ q[i] / math.sqrt(nope + rope), config.attention_softcap)
            rows.append(torch.softmax(logits, 0) @ v[first : i + 1])
        mixed.append(torch.stack(rows))
    return _linear(state, f"{name}output", torch.cat(mixed, dim=1))


def _feed_forward(state: dict[str, Tensor], name: str, config: Model, x: Tensor) -> Tensor:
    up = _linear(state, f"{name}up", x)
    if config.activation == "gelu":
        inner = _gelu(up)
    else:
        gate = _linear(state, f"{name}gate", x)
        inner = up * _activation(config, gate)
    return _linear(state, f"{name}down", inner)


def _mixture(
    state: dict[str, Tensor], name: str, config: Model, x: Tensor, router_terms: list[Tensor] | None
) -> Tensor:
    """Token after token: scores, groups, the best experts, room in them, their weighted sum."""
    moe = config.moe
    assert moe is not None
    E, k, length = moe.experts, moe.experts_per_token, len(x)
    room = [length] * E
    if moe.capacity_factor is not None:
        room = [math.ceil(moe.capacity_factor * k * length / E)] * E
    bias = state.get(f"{name}router.selection_bias", torch.zeros(E)).tolist()
    chosen_by: list[list[int]] = [[] for _ in range(E)]
    shares, squares, rows = [], [], []
    for i, token in enumerate(x):
        logits = torch.stack([torch.dot(row, token) for row in state[f"{name}router.weight"]])
        powers = logits.exp()
        scores = powers / powers.sum() if moe.gate == "softmax" else 1 / (1 + (-logits).exp())
        squares.append(powers.sum().log() ** 2)
        shares.append(scores / scores.sum())
        wanted = {e: scores[e].item() + bias[e] for e in range(E)}
        size = E // moe.groups
        best = 1 if moe.group_score == "best" else 2
        worth = {
            g: sum(sorted((wanted[e] for e in range(g * size, (g + 1) * size)), reverse=True)[:best])
            for g in range(moe.groups)
        }
        groups = sorted(worth, key=lambda g: -worth[g])[: moe.groups_per_token or moe.groups]
        experts = sorted((e for e in range(E) if e // size in groups), key=lambda e: -wanted[e])[:k]
        weights = {e: scores[e] for e in experts}
        if moe.normalise_weights:
            total = sum(weights.values(), torch.zeros((), dtype=x.dtype))
            weights = {e: weight / total for e, weight in weights.items()}
        out = torch.zeros_like(token)
        for e in experts:
            chosen_by[e].append(i)
            if room[e] > 0:
                room[e] -= 1
                gate, up, down = (state[f"{name}experts.{part}"][e] for part in ("gate", "up", "down"))
                out = out + moe.weight_scale * weights[e] * (
                    down @ (_activation(config, gate @ token) * (up @ token))
                )
        rows.append(out)
    if router_terms is not None:
        mean = torch.stack(shares).mean(0)
        even = sum((E / k * len(c) / length * mean[e] for e, c in enumerate(chosen_by)), mean.new_zeros(()))
        router_terms.append(length * moe.auxiliary_loss * even + moe.z_loss * torch.stack(squares).sum())
    result = torch.stack(rows)
    return result + _feed_forward(state, f"{name}shared.", config, x) if moe.shared_experts else result


def _activation(config: Model, x: Tensor) -> Tensor:
    return x / (1 + (-x).exp()) if config.activation == "swiglu" else _gelu(x)


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
