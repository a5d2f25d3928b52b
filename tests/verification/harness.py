"""The smallest verifier there can be: two steps of training, everything compared with one process.

It shows that a planted bug changes numbers at all, whatever the verifier makes of it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from stoker.layout import Layout
from stoker.model import Decoder
from stoker.parallel import Inputs, Settings, World, apply, join_world, single_process_world
from stoker.parallel.placement import Box, local
from stoker.training.optimizer import build_optimizer
from tests.distributed import run_ranks
from tests.verification.mutation import Plant
from tests.verification.tiny_models import MODELS, VOCABULARY, Tiny

STEPS, SEQUENCES = 2, 4
_CPU = torch.device("cpu")


class Part(NamedTuple):
    """Of a named quantity what one rank holds of it."""

    name: str
    box: Box | None
    """Its place in the whole; None: it is the whole, the same on every rank."""
    values: Tensor


def differences(layout: Layout, model: str, plant: Plant | None = None) -> dict[str, float]:
    """How far each quantity of a run on `layout`, with `plant` in force there alone, is from one process's.

    Relative to the quantity's norm or, where that is small, to a thousandth of what all of its kind have.
    """
    whole = _reference(model)
    kinds: dict[str, float] = {}
    for name, values in whole.items():
        kind = name.split(":")[0]
        kinds[kind] = (kinds.get(kind, 0.0) ** 2 + float(values.double().norm()) ** 2) ** 0.5
    found: dict[str, float] = {}
    for parts in run_ranks(_rank, layout.world_size, layout, model, plant, timeout=90):
        for name, box, values in parts:
            wanted = whole[name]
            scale = max(float(wanted.double().norm()), 1e-3 * kinds[name.split(":")[0]], 1e-30)
            if box is not None:
                wanted = wanted[tuple(slice(*bounds) for bounds in box)]
            error = float((values - wanted).double().norm()) / scale if values.shape == wanted.shape else 1.0
            found[name] = max(found.get(name, 0.0), error if error == error else float("inf"))
    for name in whole.keys() - found.keys():
        found[name] = 1.0
    return found


@lru_cache
def _reference(model: str) -> dict[str, Tensor]:
    return {name: values for name, _, values in _train(single_process_world(_CPU), MODELS[model])}


def _rank(rank: int, ranks: int, store: dist.Store, layout: Layout, model: str, plant: Plant | None) -> list[Part]:
    planted: AbstractContextManager[None] = nullcontext() if plant is None else plant()
    with planted, join_world(layout, rank, _CPU, store, 60) as world:
        return _train(world, MODELS[model])


def _train(world: World, tiny: Tiny) -> list[Part]:
    with torch.device("meta"):
        decoder = Decoder(tiny.model, VOCABULARY, tiny.length).double()
    model = apply(decoder, world, Settings(seed=5))
    optimizer = build_optimizer(model.held, tiny.training)
    model.train()
    batches = _own(_batch(tiny.length), world)
    found: list[Part] = []
    for step in range(1, STEPS + 1):
        of_samples = torch.zeros(SEQUENCES, dtype=torch.float64)
        losses = model.forward_backward(batches, step=step, seed=7, loss_scale=1 / 40)
        for batch, loss in zip(batches, losses, strict=True):
            of_samples.index_add_(0, batch.samples, loss)
        found.append(Part(f"loss:{step}", None, world.sum(of_samples)))
        norms = model.gradients.norms()
        found += [
            Part(f"norm:{name}:{step}", None, norm.clone())
            for name, norm in zip(model.gradients.names, norms, strict=True)
        ]
        for one in model.held:
            if one.is_parameter:
                gradient = one.parameter.grad
                values = local(one.parameter.detach() * 0 if gradient is None else gradient)
                found.append(Part(f"gradient:{one.name}:{step}", one.box, values.clone()))
        model.gradients.scale(min(1.0, 0.5 / max(model.gradients.total_norm(norms), 1e-30)))
        optimizer.step()
        model.gradients.clear()
        found += [
            Part(f"routing:{name}:{figure}:{step}", None, value)
            for name, counted in model.finish_routing(update=True).items()
            for figure, value in counted._asdict().items()
        ]
        found += [
            Part(f"weight:{one.name}:{step}", one.box, local(one.tensor.detach()).clone()) for one in model.held
        ]
    return found


def _batch(length: int) -> Inputs:
    """Documents that end elsewhere in every sequence, and targets that do not count, unevenly."""
    draw = torch.Generator().manual_seed(0)
    text = torch.randint(0, VOCABULARY, (SEQUENCES, length + 1), generator=draw)
    targets = text[:, 1:].clone()
    targets[0, :5] = -100
    places = torch.arange(length).expand(SEQUENCES, length)
    starts = torch.tensor([5, 3, 9, 6])[:, None]
    documents = (places >= starts).int()
    positions = places - starts * documents
    return Inputs(text[:, :-1].contiguous(), targets, positions, documents, torch.arange(SEQUENCES))


def _own(batch: Inputs, world: World) -> list[Inputs]:
    """The micro-batches of one rank: two, or one where it has one sequence only."""
    count = SEQUENCES // world.layout.data_parallel_size
    size = max(1, count // 2)
    first = world.data_parallel_rank * count
    return [
        Inputs(*(value[start : start + size] for value in batch if value is not None))
        for start in range(first, first + count, size)
    ]
