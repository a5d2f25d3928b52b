"""A model of a few hundred weights that trains on fixed data, alone or on several ranks."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from stoker.layout import Layout
from stoker.parallel import ParallelModel, World, apply, single_process_world
from stoker.recipe import Checkpoint, Training
from stoker.training.optimizer import build_optimizer, set_learning_rate
from stoker.training.precision import DynamicLossScale, autocast

OPTIMIZERS = ("adamw", "muon", "adafactor", "lion")
PRECISIONS = ("fp32", "bf16", "fp16", "pure_bf16")
LAYOUTS = {"plain": Layout(), "ddp": Layout(dp_replicate=2), "fsdp": Layout(dp_shard=2)}
KEEP_ALL = Checkpoint(keep_last=100)
SAMPLES = 8


class TinyModel(nn.Module):
    """Odd widths, so that shards are uneven; biases and norms."""

    def __init__(self, vocabulary: int = 11, width: int = 6, layers: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 9), nn.Tanh(), nn.Linear(9, width)) for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(tokens)
        for block in self.blocks:
            hidden = hidden + block(hidden)
        logits = self.head(self.norm(hidden))
        targets = (tokens * 3 + 1) % self.head.out_features
        return nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), reduction="sum")


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
        torch.manual_seed(seed)
        plain = TinyModel(**model)
        if precision == "pure_bf16":
            plain.to(torch.bfloat16)
        self.model: ParallelModel = apply(plain, plain.blocks, world)
        self.optimizer = build_optimizer(plain, self.settings)
        self.loss_scale = DynamicLossScale(self.settings.loss_scale) if precision == "fp16" else None

    @classmethod
    def alone(cls, optimizer: str, precision: str = "fp32", seed: int = 0, **model: int) -> TinyTraining:
        return cls(single_process_world(torch.device("cpu")), optimizer, precision, seed, **model)

    def step(self, number: int) -> None:
        """One update, on this rank's share of the global batch of step `number`."""
        batch = torch.randint(0, 11, (SAMPLES, 5), generator=torch.Generator().manual_seed(number))
        share = batch.chunk(self.world.layout.data_parallel_size)[self.world.rank]
        scale = self.loss_scale.scale if self.loss_scale else 1.0
        set_learning_rate(self.optimizer, 1 / number)
        with autocast(self.settings.precision, torch.device("cpu")):
            loss = self.model.training(share) * (scale / batch.numel())
        loss.backward()
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
        for name, parameter in self.model.plain.state_dict(keep_vars=True).items():
            state[name] = _whole(parameter)
            for key, value in self.optimizer.state.get(parameter, {}).items():
                state[f"{name}/{key}"] = _whole(value)
        return state


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach().clone()


def assert_same(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    """Bit for bit."""
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype, name
        assert torch.equal(found[name], tensor), name
