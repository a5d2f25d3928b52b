"""A model of a few hundred weights that trains on fixed data, alone or on several ranks."""

from __future__ import annotations

from typing import Any

import torch

from stoker.checkpoint.state import model_state, optimizer_state
from stoker.layout import Layout
from stoker.model import Decoder
from stoker.parallel import Inputs, ParallelModel, Settings, World, apply, single_process_world
from stoker.parallel.collectives import all_reduce
from stoker.recipe import Checkpoint, Model, Training
from stoker.training.optimizer import build_optimizer, set_learning_rate
from stoker.training.precision import DynamicLossScale, autocast, parameter_dtype

OPTIMIZERS = ("adamw", "muon", "adafactor", "lion")
PRECISIONS = ("fp32", "bf16", "fp16", "pure_bf16")
LAYOUTS = {"plain": Layout(), "ddp": Layout(dp_replicate=2), "fsdp": Layout(dp_shard=2)}
KEEP_ALL = Checkpoint(keep_last=100)
SAMPLES = 8


def tiny_model(vocabulary: int = 11, width: int = 6, layers: int = 2) -> Decoder:
    """Odd widths, so that shards are uneven; biases and norms."""
    config = Model(
        hidden_size=width,
        layers=layers,
        heads=1,
        ffn_hidden_size=9,
        activation="gelu",
        norm="layer",
        ffn_bias=True,
        attention_bias=True,
    )
    return Decoder(config, vocabulary, 5)


class TinyTraining:
    """Model, optimizer and loss scale on one rank."""

    def __init__(self, world: World, optimizer: str, precision: str = "fp32", seed: int = 0, **model: int) -> None:
        self.settings = Training.model_validate(
            {
                "steps": 50,
                "sequence_length": 4,
                "global_batch_size": SAMPLES,
                "optimizer": {"name": optimizer},
                "precision": precision,
                "loss_scale": {"initial": 2.0**10, "growth_interval": 3},
            }
        )
        self.world = world
        with torch.device("meta"):
            plain = tiny_model(**model).to(parameter_dtype(self.settings.precision))
        self.model: ParallelModel = apply(plain, world, Settings(seed=seed))
        self.optimizer = build_optimizer(self.model.held, self.settings)
        self.loss_scale = DynamicLossScale(self.settings.loss_scale) if precision == "fp16" else None

    @classmethod
    def alone(cls, optimizer: str, precision: str = "fp32", seed: int = 0, **model: int) -> TinyTraining:
        return cls(single_process_world(torch.device("cpu")), optimizer, precision, seed, **model)

    def step(self, number: int) -> None:
        """One update, on this rank's share of the global batch of step `number`."""
        batch = torch.randint(0, 11, (SAMPLES, 5), generator=torch.Generator().manual_seed(number))
        share = batch.chunk(self.world.layout.data_parallel_size)[self.world.data_parallel_rank]
        scale = self.loss_scale.scale if self.loss_scale else 1.0
        set_learning_rate(self.optimizer, 1 / number)
        places, samples = torch.arange(5).expand_as(share), torch.arange(len(share))
        inputs = Inputs(share, (share * 3 + 1) % 11, places, None, samples)
        self.model.forward_backward(
            [inputs],
            step=number,
            seed=0,
            loss_scale=scale / batch.numel(),
            autocast=lambda: autocast(self.settings.precision, torch.device("cpu")),
        )
        self.model.gradients.scale(1 / scale)
        self.optimizer.step()
        self.model.gradients.clear()
        if self.loss_scale:
            self.loss_scale.update(overflow=False)

    def train(self, first: int, last: int) -> None:
        for number in range(first, last + 1):
            self.step(number)

    def progress(self, step: int) -> dict[str, Any]:
        return {"step": step, "loss_scale": self.loss_scale.state_dict() if self.loss_scale else None}

    def whole_state(self) -> dict[str, torch.Tensor]:
        """Every weight and every optimizer state, whole, by name. Collective."""
        state = {}
        parts = {**model_state(self.model.held), **optimizer_state(self.model.held, self.optimizer)}
        for name, part in parts.items():
            whole = torch.zeros(part.shape, dtype=part.tensor.dtype)
            whole[tuple(slice(*bounds) for bounds in part.box)] = part.tensor
            if self.world.layout.dp_shard > 1 and part.box != tuple((0, size) for size in part.shape):
                whole = all_reduce(whole, self.world.along("dp_shard"))
            parameter, _, key = name.removeprefix("optimizer.").rpartition(".")
            state[name.removeprefix("model.") if name.startswith("model.") else f"{parameter}/{key}"] = (
                whole.clone()
            )
        return state


def assert_same(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    """Bit for bit."""
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype, name
        assert torch.equal(found[name], tensor), name
