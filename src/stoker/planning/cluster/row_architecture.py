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


_OTHER_LAYERS = r"nemotron.?h\b|nemotron.?3.(?:nano|super|ultra)|jamba|zamba|mamba|hymba|rwkv|samba"
"""Names of models that are not of transformer layers alone."""
_HEAD_SIZES = ((r"qwen-?3", 128), (r"gpt-oss", 64), (r"gemma.*27b|mistral-nemo|nemo-12b", 128), (r"gemma", 256))
"""Of models whose heads are not the hidden size divided by their number."""
_VOCABULARIES = (
    (r"llama-?[34]", 128256),
    (r"llama", 32000),
    (r"qwen", 151936),
    (r"gemma|nemotron", 256000),
    (r"mistral|mixtral", 32000),
    (r"deepseek", 129280),
    (r"gpt-oss", 201088),
)
_FAR_OFF = 0.25
"""Share of the stated size that a model may be larger or smaller before a column is taken to mean another thing."""


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


def says(notes: str, word: str) -> bool:
    """Whether `notes` mention the pattern `word` other than to say that it is not there."""
    for found in re.finditer(word, notes):
        before, after = notes[: found.start()], notes[found.end() :]
        if re.search(r"(?:\bno|\bnot|\bnon|without|w/o|disabled)[ -]+(?:the |using |with )?$", before):
            continue
        if not re.match(r"s?[ :=(-]*(?:off|disabled|not used|none|no|false|0)\b", after):
            return True
    return False


def architecture_in(row: Row, assumptions: list[str]) -> Architecture:
    """Raises `CannotBeModelled`; adds what was assumed to `assumptions`."""
    notes, name = row["notes"].lower(), row["model_name"].lower()
    if re.search(_OTHER_LAYERS, name) or says(notes, r"\bmamba|\bssm\b|linear.attention"):
        raise CannotBeModelled("layers that are no transformer's")
    layers, hidden = need(row, "layers"), need(row, "hidden")
    usual = next((size for pattern, size in _HEAD_SIZES if re.search(pattern, name)), None)
    head_size = _in_notes(notes, r"head[_ -]?dim\D{0,3}(\d+)") or usual
    heads = _heads(row, layers, hidden, head_size, assumptions)
    plain = Architecture(
        layers=layers,
        hidden_size=hidden,
        heads=heads,
        kv_heads=number(row, "kv_heads") or heads,
        ffn_hidden_size=number(row, "ffn") or 0,
        vocabulary_size=number(row, "vocab") or _usual_vocabulary(name, assumptions),
        head_size=head_size or 0,
        mtp_depth=1 if says(notes, r"\bmtp\b") else 0,
        sliding_window=_in_notes(notes, r"window (?:of )?(\d+)") or (128 if "gpt-oss" in name else None),
        windowed_layers=0.5 if "gpt-oss" in name else 1.0,
    )
    if number(row, "experts"):
        return _with_experts(plain, row, assumptions)
    return _nearest_in_size(_feed_forwards(plain, name, assumptions), row)


def _in_notes(notes: str, pattern: str) -> int | None:
    found = re.search(pattern, notes)
    return (int(found.group(1)) or None) if found else None


def _heads(row: Row, layers: int, hidden: int, head_size: int | None, assumptions: list[str]) -> int:
    """As stated, unless they cannot divide the hidden size; else as many as layers, or of 128."""
    heads = number(row, "heads")
    if heads and (hidden % heads == 0 or head_size or number(row, "experts")):
        return heads
    usual = layers if heads is None and hidden % layers == 0 else max(1, hidden // 128)
    assumptions.append(f"{usual} heads")
    return usual


def _usual_vocabulary(name: str, assumptions: list[str]) -> int:
    usual = next((size for pattern, size in _VOCABULARIES if re.search(pattern, name)), 51200)
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
    """The likeliest, or where the row states a size the one that comes nearest to it.

    A block that is gated where it was taken not to be, or the other way round, counts where all others are far off.
    """
    if not _stated_size(row):
        return candidates[0]
    best = min(candidates, key=lambda one: abs(_off(one, row)))
    if abs(_off(best, row)) <= _FAR_OFF:
        return best
    others = [replace(one, gated=not one.gated) for one in candidates]
    return min([best, *others], key=lambda one: abs(_off(one, row)))


def _stated_size(row: Row) -> float:
    """Parameters; 0 where the row is silent."""
    text = row.get("params_b", "")
    return float(text) * 1e9 if text else 0.0


def _off(one: Architecture, row: Row) -> float:
    """Share of the stated size that `one` is larger."""
    return total_parameters(one, number(row, "seq_len") or 0) / _stated_size(row) - 1


_LATENT = r"deepseek.?(?:v?[23]|r1)|kimi|moonlight"
"""Names of models with latent attention; DeepSeekMoE has none."""


def _with_experts(plain: Architecture, row: Row, assumptions: list[str]) -> Architecture:
    """`ffn` is the width of one expert; DeepSeek's and Kimi's names say the rest where the notes do not."""
    notes, name = row["notes"].lower(), row["model_name"].lower()
    width = plain.ffn_hidden_size or 4 * plain.hidden_size
    dense = _in_notes(notes, r"dense ffn (\d+)") or width
    shared, first, latent = _in_notes(notes, r"(\d+) shared expert") or 0, 0, None
    if re.search(_LATENT, name) or says(notes, r"\bmla\b"):
        second, small = "v2" in name, re.search(r"lite|moonlight", name)
        latent = Latent(0 if small else 1536, 512, 128, 64, 128)
        if width > 4096:  # the width of the dense layers was stated
            width, dense = (1408 if small else 1536 if second else 2048), width
        shared = shared or (2 if second or small else 1)
        one_dense = second or small or "kimi" in name or "first layer" in notes or plain.layers < 10
        first = 1 if one_dense else 3
    experts = Experts(need(row, "experts"), number(row, "topk") or 2, width, shared * width, first)
    found = replace(plain, ffn_hidden_size=dense, latent=latent, experts=experts)
    return _of_stated_size(found, row, assumptions)


def _of_stated_size(found: Architecture, row: Row, assumptions: list[str]) -> Architecture:
    """Where experts of the stated width come to far more than the model's size, what else the width may mean.

    Every second layer may be dense (Llama 4 Maverick); or `ffn` is that of a dense block, and an expert's follows
    from the size. A size of the active parameters alone says nothing.
    """
    moe = found.experts
    if moe is None or not _stated_size(row) or _off(found, row) <= _FAR_OFF:
        return found
    active = replace(found, experts=replace(moe, count=min(moe.count, moe.per_token)))
    if abs(_off(active, row)) <= _FAR_OFF:
        return found
    every_second = replace(found, experts=replace(moe, dense_every=2))
    if abs(_off(every_second, row)) <= _FAR_OFF / 2:
        assumptions.append("every second layer dense, by the model's size")
        return every_second
    without = replace(found, experts=replace(moe, ffn_hidden_size=0, shared_ffn_hidden_size=0))
    share = -_off(without, row) / (_off(found, row) - _off(without, row))
    width = round(share * moe.ffn_hidden_size / 64) * 64
    if width <= 0:
        return found
    assumptions.append(f"experts {width:,} wide, by the model's size")
    shared = moe.shared_ffn_hidden_size // moe.ffn_hidden_size * width
    return replace(found, experts=replace(moe, ffn_hidden_size=width, shared_ffn_hidden_size=shared))
