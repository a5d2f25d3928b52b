"""Makes a model small enough to be run in fp64 by many processes, so that layouts still divide it as unevenly.

The rule: every size that is larger than the table below says becomes the smallest number from there on that
leaves the same remainder when it is divided over the layouts' ranks. The number of heads keeps its ratio to that of
key and value heads; heads keep their order and kind, experts their groups.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from stoker.layout import Layout
from stoker.recipe import Model
from stoker.recipe.mixture import MixtureOfExperts
from stoker.verification.subject import Subject

LARGEST = {
    "layers": 6,
    "hidden_size": 32,
    "ffn_hidden_size": 48,
    "head_size": 8,
    "key_value_heads": 8,
    "queries_per_key": 4,
    "vocabulary_size": 64,
    "sequence_length": 24,
    "experts": 12,
    "expert_ffn_hidden_size": 16,
    "rank": 12,
}
"""What fits as it is."""


def smaller(subject: Subject, layouts: Sequence[Layout]) -> Subject:
    """`subject`, or one like it that is small, which says in `smaller` what was changed."""
    shrink = _Shrinking(layouts)
    training = subject.training
    length = shrink.size("sequence_length", training.sequence_length, lambda one: 2 * one.cp * one.tp)
    vocabulary = shrink.size("vocabulary_size", subject.vocabulary_size, lambda one: one.tp)
    model = _smaller_model(subject.model, shrink, length / training.sequence_length)
    before, after = subject.model.model_dump(), model.model_dump()
    changes = [f"{name} {old} → {after[name]}" for name, old in _figures(before) if old != after[name]]
    for section in ("moe", "latent_attention"):
        if before[section] is not None:
            inner = _figures(before[section])
            changes += [
                f"{section}.{name} {old} → {after[section][name]}"
                for name, old in inner
                if old != after[section][name]
            ]
    for name, old, new in (
        ("vocabulary", subject.vocabulary_size, vocabulary),
        ("sequence_length", training.sequence_length, length),
    ):
        if old != new:
            changes.append(f"{name} {old} → {new}")
    return replace(
        subject,
        model=model,
        vocabulary_size=vocabulary,
        training=training.model_copy(update={"sequence_length": length}),
        smaller=tuple(changes),
    )


class _Shrinking:
    def __init__(self, layouts: Iterable[Layout]) -> None:
        self._layouts = list(layouts) or [Layout()]

    def size(
        self, name: str, size: int, divided_by: Callable[[Layout], int] = lambda one: 1, least: int = 1
    ) -> int:
        """`size`, or the smallest from what is large enough on that leaves the same remainders."""
        divisors = [divided_by(one) for one in self._layouts]
        enough = max(LARGEST[name], least, *divisors)
        common = math.lcm(*divisors)
        if common > enough:  # more remainders than a small number can have: those of the largest division
            common = max(divisors)
        return size if size <= enough else min(size, enough + (size - enough) % common)


def _smaller_model(model: Model, shrink: _Shrinking, of_length: float) -> Model:
    changes: dict[str, Any] = {"preset": None}
    dense = model.moe.first_dense_layers if model.moe is not None else 0
    changes["layers"] = shrink.size("layers", model.layers, lambda one: one.stages)
    if dense:
        dense = min(dense, max(1, changes["layers"] // 2))
    ratio = model.heads // model.key_value_heads
    kv_heads = shrink.size("key_value_heads", model.key_value_heads, lambda one: one.tp)
    heads = kv_heads * shrink.size("queries_per_key", ratio, lambda one: max(1, one.tp // kv_heads))
    changes["heads"] = heads
    changes["ffn_hidden_size"] = shrink.size("ffn_hidden_size", model.ffn_hidden_size, lambda one: one.tp)
    changes["hidden_size"] = shrink.size("hidden_size", model.hidden_size)
    if model.sliding_window is not None:
        changes["sliding_window"] = max(1, math.ceil(model.sliding_window * of_length))
    if model.latent_attention is None:
        changes["kv_heads"] = None if model.kv_heads is None else kv_heads
        if model.size_of_head > LARGEST["head_size"] or heads != model.heads:
            changes["head_size"] = min(model.size_of_head, LARGEST["head_size"])
        elif model.head_size is None and changes["hidden_size"] != model.hidden_size:
            changes["head_size"] = model.size_of_head
    else:
        latent = model.latent_attention
        changes["latent_attention"] = {
            "kv_rank": min(latent.kv_rank, LARGEST["rank"]),
            "query_rank": None if latent.query_rank is None else min(latent.query_rank, LARGEST["rank"]),
            "nope_head_size": min(latent.nope_head_size, LARGEST["head_size"]),
            "rope_head_size": min(latent.rope_head_size, LARGEST["head_size"] // 2),
            "value_head_size": min(latent.value_head_size, LARGEST["head_size"]),
        }
    if model.moe is not None:
        changes["moe"] = _smaller_mixture(model, model.moe, shrink) | {"first_dense_layers": dense}
    return Model(**{**model.model_dump(), **changes})


def _smaller_mixture(model: Model, moe: MixtureOfExperts, shrink: _Shrinking) -> dict[str, Any]:
    groups = moe.groups if moe.groups <= LARGEST["experts"] // 2 else 4
    step = math.lcm(groups, *(one.ep for one in shrink._layouts))
    fits = [count for count in range(step, moe.experts + 1, step) if count >= LARGEST["experts"]]
    experts = moe.experts if moe.experts <= LARGEST["experts"] or not fits else fits[0]
    chosen = min(moe.chosen_groups, groups)
    each = experts // groups
    wanted = moe.experts_per_token
    return {
        **moe.model_dump(),
        "experts": experts,
        "groups": groups,
        "groups_per_token": None if moe.groups_per_token is None else chosen,
        "experts_per_token": min(wanted, chosen * each, max(2, experts // 3)) if wanted > 1 else 1,
        "expert_ffn_hidden_size": shrink.size(
            "expert_ffn_hidden_size", model.expert_width, lambda one: one.expert_tp_size
        ),
    }


def _figures(section: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in section.items() if isinstance(value, int | None) and name != "preset"]
