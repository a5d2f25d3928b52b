"""The architecture that a row of measurements means, with what it leaves open filled in and said."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from stoker.errors import BadInput
from stoker.planning.cluster.sizes import total_parameters
from stoker.planning.cluster.workload import Architecture, Experts, Latent

Row = Mapping[str, str]


class CannotBeModelled(BadInput):
    """A row lacks what a prediction needs; the message says what."""


def number(row: Row, column: str) -> int | None:
    """A count, or None where the row is silent."""
    text = row.get(column, "").strip()
    return int(float(text)) if text else None


def need(row: Row, column: str) -> int:
    """A count that nothing can be said without. Raises `CannotBeModelled`."""
    found = number(row, column)
    if not found:
        raise CannotBeModelled(f"no {column}")
    return found


def architecture_in(row: Row, assumptions: list[str]) -> Architecture:
    """Raises `CannotBeModelled`; adds what was assumed to `assumptions`."""
    notes, name = row["notes"].lower(), row["model_name"].lower()
    if "hybrid" in notes or "mamba" in notes or "mamba" in name:
        raise CannotBeModelled("layers that are no transformer's")
    layers, hidden = need(row, "layers"), need(row, "hidden")
    head_size = _in_notes(notes, r"head_dim (\d+)")
    heads = _heads(row, layers, hidden, head_size, assumptions)
    plain = Architecture(
        layers=layers,
        hidden_size=hidden,
        heads=heads,
        kv_heads=number(row, "kv_heads") or heads,
        ffn_hidden_size=number(row, "ffn") or 0,
        vocabulary_size=number(row, "vocab") or _usual_vocabulary(name, assumptions),
        head_size=head_size or 0,
        mtp_depth=1 if "mtp" in notes else 0,
        sliding_window=_in_notes(notes, r"window (?:of )?(\d+)") or (128 if "gpt-oss" in name else None),
        windowed_layers=0.5 if "gpt-oss" in name else 1.0,
    )
    if number(row, "experts"):
        return _with_experts(plain, row)
    return _nearest_in_size(_feed_forwards(plain, name, assumptions), row)


def _in_notes(notes: str, pattern: str) -> int | None:
    found = re.search(pattern, notes)
    return int(found.group(1)) if found else None


def _heads(row: Row, layers: int, hidden: int, head_size: int | None, assumptions: list[str]) -> int:
    """As stated, unless they cannot divide the hidden size; else as many as layers, or of 128."""
    heads = number(row, "heads")
    if heads and (hidden % heads == 0 or head_size or number(row, "experts")):
        return heads
    usual = layers if heads is None and hidden % layers == 0 else max(1, hidden // 128)
    assumptions.append(f"{usual} heads")
    return usual


def _usual_vocabulary(name: str, assumptions: list[str]) -> int:
    usual = 51200
    if "llama" in name:
        usual = 128256 if re.search(r"llama-?3", name) else 32000
    assumptions.append(f"vocabulary of {usual:,}")
    return usual


def _feed_forwards(plain: Architecture, name: str, assumptions: list[str]) -> list[Architecture]:
    """What the feed-forward block may be, likeliest first: gated where it is not four times as wide."""
    hidden = plain.hidden_size
    if not plain.ffn_hidden_size:
        gated = re.search(r"llama|qwen|mistral|internlm|olmo", name) is not None
        width = -(-8 * hidden // 3 // 256) * 256 if gated else 4 * hidden
        assumptions.append(f"feed-forward width of {width:,}")
        return _tied_or_not(replace(plain, ffn_hidden_size=width, gated=gated))
    gated = plain.ffn_hidden_size != 4 * hidden or re.search(r"llama|qwen|mistral", name) is not None
    return _tied_or_not(replace(plain, gated=gated))


def _tied_or_not(one: Architecture) -> list[Architecture]:
    """GPT ties its embeddings and learns its positions; gated models usually do neither."""
    likely = replace(one, tied_embeddings=not one.gated, learned_positions=not one.gated)
    return [likely, replace(likely, tied_embeddings=one.gated)]


def _nearest_in_size(candidates: list[Architecture], row: Row) -> Architecture:
    """The likeliest, or where the row states a size the one that comes nearest to it."""
    text, length = row.get("params_b", ""), number(row, "seq_len") or 0
    if not text:
        return candidates[0]
    return min(candidates, key=lambda one: abs(total_parameters(one, length) - float(text) * 1e9))


def _with_experts(plain: Architecture, row: Row) -> Architecture:
    """`ffn` is the width of one expert; DeepSeek's and Kimi's names say the rest where the notes do not."""
    notes, name = row["notes"].lower(), row["model_name"].lower()
    width = plain.ffn_hidden_size or 4 * plain.hidden_size
    deepseek = "deepseek" in name or "kimi" in name or "mla" in notes
    dense = _in_notes(notes, r"dense ffn (\d+)") or width
    shared, first, latent = _in_notes(notes, r"(\d+) shared expert") or 0, 0, None
    if deepseek:
        second = "v2" in name
        latent = Latent(1536, 512, 128, 64, 128)
        if width > 4096:  # the width of the dense layers was stated
            width, dense = (1536 if second else 2048), width
        shared = shared or (2 if second else 1)
        first = 1 if second or "kimi" in name or "first layer" in notes or plain.layers < 10 else 3
    experts = Experts(need(row, "experts"), number(row, "topk") or 2, width, shared * width, first)
    return replace(plain, ffn_hidden_size=dense, latent=latent, experts=experts)
