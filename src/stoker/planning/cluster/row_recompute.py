"""What a row's words for recomputation mean."""

from __future__ import annotations

import re

from stoker.planning.cluster import software
from stoker.planning.cluster.software import Software
from stoker.planning.cluster.workload import ALL_BUT_PRODUCTS, FULL, NONE, SELECTIVE, Operation, Recompute

_NOTHING = re.compile(r"(?:no|none|off|false|disabled?|without|w/o|not (?:used|enabled)|everything_saveable)\b")
_NOT_SAID = re.compile(r"[?–—-]+$|(?:unknown|n/?a|not \w+|unstated|unspecified|custom|tbd|null|nan|auto|default)\b")

_POLICIES: tuple[tuple[str, frozenset[Operation]], ...] = (
    (r"dots?_except_mlp", frozenset({"attention", "feed_forward", "pointwise"})),
    (r"save_qkv_proj", frozenset({"attention", "attention_output", "feed_forward", "pointwise"})),
    (r"save_out_proj", frozenset({"attention", "attention_projections", "feed_forward", "pointwise"})),
    (r"\bdots?\b|minimal|\bsac\b|save_|\bop\b|operation", ALL_BUT_PRODUCTS.operations),
)
"""MaxText's and Pax's policies by what they leave to be computed again; first match counts."""
_MODULES: tuple[tuple[str, Operation], ...] = (
    (r"core.?att|\battn|attention|softmax", "attention"),
    (r"norm|swiglu|gelu|silu|\bact|_act|activation.?f|pointwise|up.?proj|\bmla", "pointwise"),
    (r"\bmlp|\bffn|feed.?forward|shared.?expert", "feed_forward"),
    (r"\bmoe\b|(?<!shared.)(?<!shared)\bexperts?", "experts"),
)
"""Parts of a layer that Megatron-Core and others name; DeepSeek's up-projections cost about what norms do."""
_PRODUCTS_OF_EVERY_SECOND = Recompute(1 / 3, frozenset({"pointwise"}))
"""torchtitan's `selective op`: of the products in turn every second again, a third of them by size in Llama."""


def recompute_in(words: str, layers: float, used: Software) -> Recompute | None:
    """None where nothing is said or understood. `layers` are those of one pipeline rank.

    `full`, `selective`, `none`, `every 2`, `1/3`, `0.25`, `50%`, `12 layers`, `selective op`, `save_qkv_proj`,
    `core_attn, layernorm`.
    """
    words = words.strip().lower()
    if not words or (_NOT_SAID.match(words) and not _NOTHING.match(words)):
        return None
    if _NOTHING.match(words) or re.fullmatch(r"0(?:\.0*)?\s*%?(?: layers?)?", words):
        return NONE
    if used is software.FSDP and "selective" in words:
        if re.search(r"\bop\b|operation", words):
            return _PRODUCTS_OF_EVERY_SECOND
        every = re.search(r"selective\D{0,8}(\d+)$", words)
        if "layer" in words or every:
            return Recompute(1 / max(1, int(every[1]) if every else 2))
    share = _share(words, layers)
    if share is not None:
        return Recompute(share) if share < 1 else FULL
    for pattern, operations in _POLICIES:
        if re.search(pattern, words):
            return Recompute(0.0, operations)
    if re.search(r"\bfull|\byes|\btrue|\bblock|uniform|\ball\b|\bon\b|checkpoint|enabled|nothing_save|^1$", words):
        return FULL
    named = frozenset(operation for pattern, operation in _MODULES if re.search(pattern, words))
    if "selective" in words and not named:
        return SELECTIVE
    return Recompute(0.0, named) if named else None


def _share(words: str, layers: float) -> float | None:
    """Of the layers, where it is said as a number."""
    if re.search(r"every (?:other|second)|alternate", words):
        return 0.5
    patterns = (r"(\d+)\s*(?:/|of|out of)\s*(\d+)", r"(?:every|each) (\d+)", r"(\d+(?:\.\d+)?)\s*%", r"(\d*\.\d+)")
    for pattern in patterns:
        found = re.search(pattern, words)
        if not found:
            continue
        if pattern == patterns[0]:
            return min(1.0, int(found[1]) / int(found[2])) if int(found[2]) else None
        if pattern == patterns[1]:
            return 1 / int(found[1]) if int(found[1]) else 0.0
        return min(1.0, float(found[1]) / (100 if pattern == patterns[2] else 1))
    some = re.search(r"(\d+) (?:of the )?layers?", words)
    return min(1.0, int(some[1]) / max(1.0, layers)) if some and "uniform" not in words else None
