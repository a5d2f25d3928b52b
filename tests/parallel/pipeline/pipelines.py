"""Steps of a tiny decoder, on one process and over the ranks of a pipeline."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from stoker.layout import Layout
from stoker.model import Decoder, TokenLosses
from stoker.parallel import World
from stoker.parallel.offload import Offload
from stoker.parallel.pipeline import Pipeline, stages_of_rank
from stoker.recipe import Model

VOCABULARY, LENGTH, SEED = 23, 12, 5


class Batch(NamedTuple):
    tokens: Tensor
    targets: Tensor
    positions: Tensor
    documents: Tensor | None
    samples: Tensor


def config_of(**changes: Any) -> Model:
    base = {"hidden_size": 8, "layers": 9, "heads": 2, "ffn_hidden_size": 12, "qk_norm": "head"}
    return Model(**{**base, **changes})


def model_of(config: Model, dtype: torch.dtype = torch.float64) -> Decoder:
    """A decoder whose every parameter is drawn widely enough to matter."""
    generator = torch.Generator().manual_seed(1)
    model = Decoder(config, VOCABULARY, LENGTH).to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            drawn = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_(1 + 0.3 * drawn if parameter.dim() == 1 else 0.5 * drawn)
    return model


def batches_of(count: int, step: int = 0, packed: bool = False, first: int = 0) -> list[Batch]:
    """Micro-batches of differing sizes, numbered from `first`."""
    batches = []
    for index in range(first, first + count):
        generator = torch.Generator().manual_seed(100 * step + index)
        rows = 1 + index % 2
        tokens = torch.randint(0, VOCABULARY, (rows, LENGTH + 1), generator=generator)
        positions = torch.arange(LENGTH).expand(rows, LENGTH)
        documents = None
        if packed:
            documents = (positions >= 4 + index % 3).int() + (positions >= 9).int()
            starts = (positions * (documents.diff(dim=1, prepend=documents[:, :1]) > 0)).cummax(dim=1).values
            positions = positions - starts
        targets = tokens[:, 1:].clone()
        targets[:, index % LENGTH] = -100
        samples = torch.arange(rows) + 10 * index
        batches.append(Batch(tokens[:, :-1], targets, positions, documents, samples))
    return batches


@dataclass
class Runner:
    """Runs one stage, as the pipeline asks for."""

    step: int = 0
    autocast: Callable[[], Any] = nullcontext

    def __call__(self, part: Decoder, batch: Batch, hidden: Tensor | None) -> Tensor | TokenLosses:
        with self.autocast():
            return part(
                batch.tokens,
                batch.targets,
                batch.positions,
                batch.documents,
                batch.samples,
                hidden=hidden,
                step=self.step,
                seed=SEED,
                loss_scale=0.125,
            )


def bf16_autocast() -> Any:
    return torch.autocast("cpu", torch.bfloat16)


class Result(NamedTuple):
    losses: list[Tensor | None]
    """Of each micro-batch: token losses, where the last stage is."""
    gradients: dict[str, Tensor]


def gradients_of(parts: list[Decoder]) -> dict[str, Tensor]:
    """Takes the gradients; a matrix that several of the parts hold has their sum."""
    found = {}
    for part in parts:
        for name, parameter in part.named_parameters():
            assert parameter.grad is not None, f"{name} has no gradient"
            gradient = parameter.grad
            gradient = (gradient.full_tensor() if isinstance(gradient, DTensor) else gradient).clone()
            found[name] = found[name] + gradient if name in found else gradient
            parameter.grad = None
    return found


def one_process(model: Decoder, batches: list[Batch], run: Runner) -> Result:
    losses: list[Tensor | None] = []
    for batch in batches:
        result = run(model, batch, None)
        assert isinstance(result, TokenLosses)
        result.loss_sum.backward()
        losses.append(result.token_losses)
    return Result(losses, gradients_of([model]))


def pipeline_of(
    model: Decoder, layout: Layout, world: World, dtype: torch.dtype = torch.float64, offload: bool = False
) -> tuple[Pipeline[Batch], dict[int, Decoder]]:
    """A pipeline of deep copies of the layers of `model`."""
    world = replace(world, layout=layout)
    stages = stages_of_rank(model, layout, world.rank)
    resting = {stage: Offload(part, world.device) for stage, part in stages.items() if offload}
    return Pipeline(stages, layout, world, shape_of, dtype, offload=resting), stages


def shape_of(batch: Batch) -> tuple[int, ...]:
    return (*batch.tokens.shape, 8)


def assert_equal(result: Result, expected: Result, tolerance: float, last: bool) -> None:
    """Losses and gradients of one rank against those of one process."""
    for loss, wanted in zip(result.losses, expected.losses, strict=True):
        if last:
            assert loss is not None
            torch.testing.assert_close(loss, wanted, rtol=tolerance, atol=tolerance)
        else:
            assert loss is None
    for name, gradient in result.gradients.items():
        wanted = expected.gradients[name]
        scale = float(wanted.abs().max())
        error = float((gradient - wanted).abs().max())
        assert error <= tolerance * max(scale, 1e-30), f"{name}: off by {error}, largest {scale}"
