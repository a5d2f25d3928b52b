"""Faults that users of other systems reported of parallel layouts, each held by the right behaviour.

Others of the kind are held elsewhere: layers on stages that do not divide in `tests/pipeline_schedule`, norms of
parameters that several ranks hold and routers' losses in `test_layouts.py`, packed documents in
`context_parallel/`.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from stoker.layout import Layout
from stoker.model import Decoder
from stoker.parallel import Inputs, Settings, World, apply, join_world, single_process_world
from stoker.parallel.placement import local
from stoker.recipe import Model, Training
from stoker.training.optimizer import build_optimizer
from tests.distributed import run_ranks

pytestmark = pytest.mark.slow

CPU = torch.device("cpu")


def _batch(vocabulary: int, number: int = 0, sequences: int = 4) -> Inputs:
    generator = torch.Generator().manual_seed(number)
    tokens = torch.randint(0, vocabulary, (sequences, 9), generator=generator)
    places = torch.arange(8).expand(sequences, 8)
    return Inputs(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous(), places, None, torch.arange(sequences))


def _uniform_loss(world: World) -> tuple[float, torch.Tensor]:
    """Mean loss and logits of a model whose logits are all the same, over 8 tokens."""
    config = Model(hidden_size=8, layers=1, heads=2, ffn_hidden_size=8)
    with torch.device("meta"):
        plain = Decoder(config, 8, 16).double()
    model = apply(plain, world)
    with torch.no_grad():
        for one in model.held:
            if one.name == "head.weight":
                local(one.parameter).zero_()
    sums = model.forward_backward([_batch(8)], step=1, seed=0, loss_scale=1.0)
    return float(world.sum(sums[0].sum())) / 32, model.last_logits(_batch(8).tokens[:1])


def _uniform_on_rank(rank: int, ranks: int, store: Any, layout: Layout) -> tuple[float, torch.Tensor]:
    with join_world(layout, rank, CPU, store, 60) as world:
        return _uniform_loss(world)


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_uniform_logits_cost_the_logarithm_of_the_vocabulary_at_every_tp(tp: int) -> None:
    """A loss of log(8) + log(tp) was reported where logits were counted on every rank."""
    layout = Layout(tp=tp)
    found = run_ranks(_uniform_on_rank, tp, layout) if tp > 1 else [_uniform_loss(single_process_world(CPU))]
    for loss, logits in found:
        assert loss == pytest.approx(math.log(8), rel=1e-7)
        assert logits.shape == (1, 8)
        assert torch.equal(logits, torch.zeros_like(logits))


def _tied_on_rank(rank: int, ranks: int, store: Any, layout: Layout) -> list[tuple[int, Any, torch.Tensor]]:
    """The parts of the embedding on this rank after 50 steps."""
    torch.set_num_threads(1)
    with join_world(layout, rank, CPU, store, 120) as world:
        config = Model(hidden_size=8, layers=4, heads=2, ffn_hidden_size=8, tie_embeddings=True)
        with torch.device("meta"):
            plain = Decoder(config, 11, 16)
        model = apply(plain, world, Settings(seed=1))
        training = Training(steps=50, sequence_length=8, global_batch_size=4)
        optimizer = build_optimizer(model.held, training)
        share = 4 // layout.data_parallel_size
        first = world.data_parallel_rank * share
        for number in range(50):
            whole = _batch(11, number)
            rows = Inputs(*(None if x is None else x[first : first + share] for x in whole))  # type: ignore[arg-type]
            model.forward_backward([rows], step=number + 1, seed=0, loss_scale=1 / 32)
            optimizer.step()
            model.gradients.clear()
        return [
            (world.coordinate.pp, one.box, local(one.parameter.detach()).clone())
            for one in model.held
            if one.name == "embedding.weight"
        ]


@pytest.mark.parametrize(
    "layout",
    [Layout(pp=2, dp_shard=2), Layout(pp=2, dp_shard=2, pipeline_schedule="zbv"), Layout(pp=2, tp=2)],
    ids=str,
)
def test_both_copies_of_a_tied_embedding_stay_the_same_to_the_bit(layout: Layout) -> None:
    """Partial sums were added where a tied embedding met a sharded optimizer and a pipeline."""
    parts: dict[Any, list[torch.Tensor]] = {}
    for found in run_ranks(_tied_on_rank, layout.world_size, layout, timeout=200):
        for _, box, tensor in found:
            parts.setdefault(box, []).append(tensor)
    assert len(parts) == 2, "the embedding is divided in two"
    for copies in parts.values():
        assert len(copies) == 2, "the first and the last stage hold it"
        assert torch.equal(copies[0], copies[1])


def _poisoned_on_rank(rank: int, ranks: int, store: Any, layout: Layout) -> bool:
    with join_world(layout, rank, CPU, store, 60) as world:
        config = Model(hidden_size=8, layers=2, heads=2, ffn_hidden_size=8)
        with torch.device("meta"):
            plain = Decoder(config, 11, 16)
        model = apply(plain, world)
        if rank == ranks - 1:
            with torch.no_grad():
                local(next(one.parameter for one in model.held if local(one.parameter).numel())).view(-1)[0] = (
                    math.nan
                )
        model.forward_backward([_batch(11)], step=1, seed=0, loss_scale=1.0)
        return math.isfinite(model.gradients.total_norm(model.gradients.norms()))


@pytest.mark.parametrize("layout", [Layout(tp=2), Layout(pp=2), Layout(cp=2), Layout(dp_shard=2)], ids=str)
def test_a_nan_on_one_rank_is_seen_by_all(layout: Layout) -> None:
    """A check per rank let the others move on."""
    assert run_ranks(_poisoned_on_rank, layout.world_size, layout) == [False] * layout.world_size
