"""Bytes that each layout sends in a training step, counted, over the least that it could send.

The minima are derived in docs/benchmarks.md; every formula here is named as there.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.distributed import run_ranks

from stoker.bench.traffic import Call, Traffic
from stoker.layout import Layout
from stoker.model import Decoder, initialise
from stoker.parallel import Inputs, apply, join_world
from stoker.parallel.expert_parallel import ToTheirExperts
from stoker.parallel.pipeline import stage_to_rank
from stoker.recipe import Model

_WORD = 4
"""Bytes of an fp32 number."""


@dataclass(frozen=True)
class Case:
    """A small model and a step of it."""

    config: Model
    vocabulary: int
    length: int
    micro_batches: int = 2
    micro_batch_size: int = 2

    @property
    def stream(self) -> int:
        """Bytes of the residual stream of a micro-batch, whole sequences."""
        return self.micro_batch_size * self.length * self.config.hidden_size * _WORD

    def heads(self, count: int) -> int:
        """Bytes of so many heads' vectors of a micro-batch, whole sequences."""
        return self.micro_batch_size * self.length * count * self.config.size_of_head * _WORD


_SHAPE = {"layers": 4, "hidden_size": 128, "heads": 8, "kv_heads": 4, "ffn_hidden_size": 384}
_UNEVEN = {"layers": 4, "hidden_size": 126, "heads": 7, "kv_heads": 7, "ffn_hidden_size": 379}
_EXPERTS = {"experts": 8, "experts_per_token": 2, "expert_ffn_hidden_size": 96}

EVEN = Case(Model(**_SHAPE), 2048, 128)
UNEVEN = Case(Model(**_UNEVEN), 2039, 125)
SPARSE = Case(Model(**_SHAPE, moe=_EXPERTS), 2048, 128)
SPARSE_UNEVEN = Case(Model(**_UNEVEN, moe=_EXPERTS), 2039, 125)

DENSE_LAYOUTS = [
    Layout(dp_replicate=2),
    Layout(dp_replicate=4),
    Layout(dp_shard=2, zero_stage=1),
    Layout(dp_shard=2, zero_stage=2),
    Layout(dp_shard=2, zero_stage=3),
    Layout(dp_shard=4, zero_stage=3),
    Layout(dp_replicate=2, dp_shard=2, zero_stage=1),
    Layout(dp_replicate=2, dp_shard=2, zero_stage=3),
    Layout(tp=2),
    Layout(tp=4),
    Layout(cp=2, cp_method="ring"),
    Layout(cp=4, cp_method="ring"),
    Layout(cp=2, cp_method="all_gather"),
    Layout(cp=4, cp_method="all_gather"),
    Layout(cp=2, cp_method="ulysses"),
    Layout(cp=4, cp_method="ulysses"),
    Layout(pp=2, pipeline_schedule="gpipe"),
    Layout(pp=2, pipeline_schedule="1f1b"),
    Layout(pp=4, pipeline_schedule="1f1b"),
    Layout(pp=2, pipeline_schedule="interleaved_1f1b"),
    Layout(pp=2, pipeline_schedule="interleaved_zero_bubble"),
    Layout(pp=2, pipeline_schedule="zbv"),
    Layout(pp=2, pipeline_schedule="dualpipe_v"),
]
SPARSE_LAYOUTS = [
    Layout(dp_replicate=2, ep=2),
    Layout(dp_replicate=4, ep=2),
    Layout(dp_shard=2, ep=2),
    Layout(tp=2, ep=2, expert_tp=False),
    Layout(tp=2),
]


@dataclass(frozen=True)
class Counted:
    """One rank's step."""

    calls: list[Call]
    parameters: dict[str, int]
    """Bytes of this rank's parameters before sharding, by what they are: `blocks`, `rest`, `experts`, `partial`."""
    rows: int
    """Expert rows that this rank sends to others, forward."""
    distinct_rows: int
    """Of them, those that are left when a token is sent once to a rank, however many of its experts are there."""


def count(rank: int, ranks: int, store: Any, layout: Layout, case: Case) -> Counted:
    """Run one step, and count."""
    with join_world(layout, rank, torch.device("cpu"), store, 120) as world:
        model = Decoder(case.config, case.vocabulary, case.length)
        initialise(model, model.config, 3)
        watch = _Rows()
        parallel = apply(model, world)
        for stage in parallel.stages.values():
            for mixture in stage.part.mixtures().values():
                watch.over(mixture)
        parallel.train()
        # The first step also makes groups and connections.
        for step in range(2):
            watch.clear()
            with Traffic() as traffic:
                parallel.forward_backward(_batches(case), step=step, seed=1, loss_scale=1e-3)
            parallel.gradients.clear()
        held = [one for one in parallel.held if one.is_parameter]
        sizes: Counter[str] = Counter()
        for one in held:
            size = _WORD
            for length in one.placement.local_shape:
                size *= length
            where = "experts" if one.placement.expert else "blocks" if one.name.startswith("blocks") else "rest"
            sizes[where] += size
            sizes["partial"] += size if one.placement.partial else 0
        return Counted(traffic.calls, dict(sizes), watch.rows, watch.distinct)


class _Rows:
    """Watches which rows leave a rank for their experts."""

    def __init__(self) -> None:
        self.rows = self.distinct = 0

    def clear(self) -> None:
        self.rows = self.distinct = 0

    def over(self, mixture: Any) -> None:
        dispatch = mixture.dispatch
        if not isinstance(dispatch, ToTheirExperts):
            return
        group, experts = dispatch.group, mixture.settings.experts
        router = mixture.router.forward

        def forward(*args: Any) -> Any:
            choice = router(*args)
            size = -(-experts // group.size())
            owner = choice.experts.reshape(-1, choice.experts.shape[-1]) // size
            away = owner != group.rank()
            self.rows += int(away.sum())
            self.distinct += sum(len({o for o in row if o != group.rank()}) for row in owner.tolist())
            return choice

        mixture.router.forward = forward


def _batches(case: Case) -> list[Inputs]:
    generator = torch.Generator().manual_seed(0)
    shape = case.micro_batch_size, case.length
    batches = []
    for index in range(case.micro_batches):
        tokens = torch.randint(0, case.vocabulary, (shape[0], shape[1] + 1), generator=generator)
        positions = torch.arange(shape[1]).expand(shape).contiguous()
        samples = torch.arange(shape[0]) + index * shape[0]
        batches.append(Inputs(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous(), positions, None, samples))
    return batches


def least(layout: Layout, case: Case, counted: Sequence[Counted]) -> float:
    """Bytes that a rank must send in a step, on the average of ranks: the sum over what the layout's parts need."""
    mean = {
        name: sum(one.parameters.get(name, 0) for one in counted) / len(counted)
        for name in ("blocks", "rest", "experts", "partial")
    }
    m = case.micro_batches
    return (
        _data_parallel(layout, mean, m)
        + m * (_tensor_parallel(layout, case) + _context_parallel(layout, case) + _pipeline(layout, case))
        + _share(layout.tp) * 2 * mean["partial"]
        + _expert_parallel(layout, case, counted)
    )


def _share(ranks: int) -> float:
    return (ranks - 1) / ranks


def _data_parallel(layout: Layout, mean: dict[str, float], m: int) -> float:
    dense = mean["blocks"] + mean["rest"]
    copies, parts = layout.replicate_size, layout.shard_size
    experts = _share(max(1, layout.expert_ranks // layout.ep)) * 2 * mean["experts"]
    if parts == 1:
        return _share(copies) * 2 * dense + experts
    gathers = {1: dense, 2: dense, 3: m * (2 * mean["blocks"] + mean["rest"])}[layout.zero_stage]
    scatters = {1: dense, 2: m * dense, 3: m * dense}[layout.zero_stage]
    return _share(parts) * (gathers + scatters) + _share(copies) * 2 * dense / parts + experts


def _tensor_parallel(layout: Layout, case: Case) -> float:
    """Of one micro-batch: a gather and a scatter around each half of a block, at the embedding and the loss."""
    if layout.tp == 1:
        return 0.0
    streams = 8 * case.config.layers + 4
    if case.config.moe is not None and not layout.expert_tp:
        streams -= 4 * case.config.layers
    statistics = 3 * 2 * case.micro_batch_size * case.length * _WORD
    return _share(layout.tp) * (streams * case.stream + statistics)


def _context_parallel(layout: Layout, case: Case) -> float:
    """Of one micro-batch."""
    config, ranks = case.config, layout.cp
    keys_and_values, queries = 2 * case.heads(config.key_value_heads), case.heads(config.heads)
    if layout.cp_method == "ulysses":
        # A rank sends, of its part of the sequence, all heads but its own.
        of_layer = 2 * (2 * queries + keys_and_values) / ranks
    else:
        # Keys and values forward, their gradients backward, and in a ring keys and values once more.
        of_layer = (3 if layout.cp_method == "ring" else 2) * keys_and_values
    return _share(ranks) * config.layers * of_layer


def _pipeline(layout: Layout, case: Case) -> float:
    """Of one micro-batch: a stream and its gradient wherever a stage's successor is on another rank."""
    owners = stage_to_rank(layout)
    borders = sum(one != other for one, other in pairwise(owners))
    return 2 * borders * case.stream / layout.pp


def _expert_parallel(layout: Layout, case: Case, counted: Sequence[Counted]) -> float:
    """Rows there and back, forward and backward."""
    if layout.ep == 1:
        return 0.0
    return 4 * sum(one.rows for one in counted) / len(counted) * case.config.hidden_size * _WORD


def without_repeated_rows(case: Case, counted: Sequence[Counted]) -> float:
    """Bytes that would be saved if a token went once to a rank, its results summed there."""
    more = sum(one.rows - one.distinct_rows for one in counted) / len(counted)
    return 4 * more * case.config.hidden_size * _WORD


def rows(cases: Sequence[tuple[Case, Case, Sequence[Layout]]]) -> list[list[str]]:
    """A line for each layout: of sizes that divide calls, bytes and the least, of others the ratio alone."""
    table = []
    for even, uneven, layouts in cases:
        for layout in layouts:
            counted = _everywhere(layout, even)
            sent, wanted = mean_sent(counted), least(layout, even, counted)
            other = _everywhere(layout, uneven)
            ratio = mean_sent(other) / least(layout, uneven, other)
            calls = sum(len(one.calls) for one in counted) / len(counted)
            line = [f"{layout}{', experts' if even.config.moe else ''}", f"{calls:.0f}"]
            line += [f"{sent / 1e6:.3f}", f"{wanted / 1e6:.3f}", f"{sent / wanted:.4f}", f"{ratio:.4f}"]
            repeated = without_repeated_rows(even, counted)
            line.append(f"{repeated / sent:.3f}" if repeated else "")
            table.append(line)
            print(" ".join(line), file=sys.stderr, flush=True)
    return table


def mean_sent(counted: Sequence[Counted]) -> float:
    """Bytes a rank sends, on the average."""
    return sum(call.sent for one in counted for call in one.calls) / len(counted)


def _everywhere(layout: Layout, case: Case) -> list[Counted]:
    return run_ranks(count, layout.world_size, layout, case, timeout=250)
