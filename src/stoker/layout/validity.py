"""Whether a layout can train a model, what is uneven about it, and which layouts near it can."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from stoker.errors import BadInput
from stoker.layout import Layout
from stoker.layout.shares import attention_share, chunk

_SHOWN = 3
_WEIGHT_OF_DATA = 0.5
"""Changing how many parts the batch has matters less than changing how the model is divided."""


@dataclass(frozen=True)
class ModelShape:
    """What of a model and its training decides which layouts are possible."""

    layers: int
    heads: int
    kv_heads: int
    ffn_hidden_size: int
    sequence_length: int
    experts: int | None = None
    sliding_window: int | None = None
    batch_sizes: tuple[int, ...] = ()
    """Sequences of every size of global batch."""


def problems(layout: Layout, shape: ModelShape) -> list[str]:
    """Why `layout` cannot train such a model; empty when it can."""
    return [problem for check in (_stages, _experts, _sequences, _batches) for problem in check(layout, shape)]


def remarks(layout: Layout, shape: ModelShape) -> list[str]:
    """What `layout` divides unevenly, so that some ranks wait for others."""
    found = []
    if layout.tp > 1:
        queries = [
            last - first
            for first, last in (
                attention_share(shape.heads, shape.kv_heads, layout.tp, rank).queries for rank in range(layout.tp)
            )
        ]
        if len(set(queries)) > 1:
            found.append(
                f"tp={layout.tp} cannot divide {shape.heads} query heads in groups of "
                f"{shape.heads // shape.kv_heads} evenly: its ranks have {_listed(queries)}"
            )
        if shape.kv_heads < layout.tp:
            found.append(
                f"tp={layout.tp} is more than the {shape.kv_heads} key and value heads, "
                "so several ranks hold and train the same ones"
            )
        if shape.ffn_hidden_size % layout.tp:
            inner = [last - first for first, last in _chunks(shape.ffn_hidden_size, layout.tp)]
            found.append(
                f"tp={layout.tp} cannot divide ffn_hidden_size {shape.ffn_hidden_size} evenly: its ranks have "
                f"{_listed(inner)}"
            )
    if layout.cp > 1 and shape.sequence_length % (2 * layout.cp):
        found.append(f"cp={layout.cp} cannot cut {shape.sequence_length} tokens into {2 * layout.cp} equal chunks")
    if layout.stages > 1 and shape.layers % layout.stages:
        found.append(f"{shape.layers} layers on {layout.stages} pipeline stages: stages differ in their layers")
    return found


def require_valid(layout: Layout, shape: ModelShape) -> None:
    """Raise `BadInput` with every reason why `layout` is impossible and the nearest layouts that are not."""
    found = problems(layout, shape)
    if found:
        raise BadInput(f"layout {layout}: {'; '.join(found)}. {suggestion(layout, shape)}")


def require_world_size(layout: Layout, shape: ModelShape, world_size: int) -> None:
    """Raise `BadInput`, with the nearest layouts for it, unless exactly `world_size` processes were started."""
    if world_size != layout.world_size:
        raise BadInput(
            f"layout {layout} needs {layout.world_size} processes, but {world_size} were started. "
            f"{suggestion(layout, shape, world_size)}"
        )


def nearest(layout: Layout, shape: ModelShape, world_size: int) -> list[Layout]:
    """The possible layouts of `world_size` ranks, the most like `layout` first."""
    found = [one for one in _layouts(layout, world_size) if not problems(one, shape)]
    return sorted(found, key=lambda one: (_distance(one, layout), str(one)))


def suggestion(layout: Layout, shape: ModelShape, world_size: int | None = None) -> str:
    """A sentence that names the nearest possible layouts, of as many ranks or of `world_size`."""
    ranks = layout.world_size if world_size is None else world_size
    found = nearest(layout, shape, ranks)[:_SHOWN]
    if not found:
        return f"No layout of {ranks} ranks can train this model; use fewer ranks or another batch size"
    return "The nearest layouts that work: " + ", or ".join(_as_overrides(one, layout) for one in found)


def _as_overrides(layout: Layout, before: Layout) -> str:
    """The changes as one would type them."""
    changes = [
        f"layout.{name}={value}"
        for name, value in layout.model_dump().items()
        if value is not None and value != getattr(before, name)
    ]
    return " ".join(changes) or str(layout)


def _stages(layout: Layout, shape: ModelShape) -> Iterator[str]:
    if layout.stages > shape.layers:
        each = layout.stages // layout.pp
        several = f" with {each} stages on each rank" if each > 1 else ""
        yield f"pp={layout.pp}{several} needs at least {layout.stages} layers, but the model has {shape.layers}"


def _experts(layout: Layout, shape: ModelShape) -> Iterator[str]:
    if layout.ep == 1:
        return
    if shape.experts is None:
        yield f"ep={layout.ep} divides experts, but the model has none"
        return
    if shape.experts % layout.ep:
        yield f"ep={layout.ep} does not divide the {shape.experts} experts"
    if layout.expert_ranks % layout.ep:
        borrowed = "dp_replicate × dp_shard × cp" + ("" if layout.expert_tp else " × tp")
        yield f"ep={layout.ep} does not divide the {layout.expert_ranks} ranks of {borrowed} that it borrows"


def _sequences(layout: Layout, shape: ModelShape) -> Iterator[str]:
    if layout.cp == 1:
        return
    length, window = shape.sequence_length, shape.sliding_window
    if length < 2 * layout.cp:
        yield (f"cp={layout.cp} cuts each sequence into {2 * layout.cp} chunks, but a sequence has {length} tokens")
    elif window is not None and window < -(-length // layout.cp):
        yield (
            f"cp={layout.cp} gives each rank {-(-length // layout.cp)} tokens, more than the sliding window of "
            f"{window}: ranks would exchange keys that nobody looks at"
        )


def _batches(layout: Layout, shape: ModelShape) -> Iterator[str]:
    for size in shape.batch_sizes:
        try:
            layout.sequences_per_rank(size)
        except BadInput as error:
            yield str(error)
            return


def _layouts(like: Layout, world_size: int) -> Iterator[Layout]:
    for pp, replicate, shard, cp, tp in _factorisations(world_size, 5):
        sizes = {"pp": pp, "dp_replicate": replicate, "dp_shard": shard, "cp": cp, "tp": tp}
        ranks = replicate * shard * cp * (1 if like.expert_tp else tp)
        for ep in {1, *(d for d in _divisors(ranks) if like.ep > 1)}:
            yield like.model_copy(update={**sizes, "ep": ep})


def _factorisations(number: int, parts: int) -> Iterator[tuple[int, ...]]:
    if parts == 1:
        yield (number,)
        return
    for first in _divisors(number):
        for rest in _factorisations(number // first, parts - 1):
            yield (first, *rest)


def _divisors(number: int) -> list[int]:
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})


def _distance(one: Layout, other: Layout) -> float:
    def steps(name: str) -> float:
        return abs(math.log2(getattr(one, name) / getattr(other, name)))

    of_data = steps("dp_replicate") + steps("dp_shard")
    return steps("pp") + steps("cp") + steps("tp") + steps("ep") + _WEIGHT_OF_DATA * of_data


def _chunks(length: int, parts: int) -> list[tuple[int, int]]:
    return [chunk(length, parts, index) for index in range(parts)]


def _listed(sizes: list[int]) -> str:
    return ", ".join(map(str, sizes))
