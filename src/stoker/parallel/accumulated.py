"""What a rank has added up in the middle of a step: gradients so far, and what its routers have counted.

Held here is all that a later micro-batch adds to, where micro-batches come one after another and gradients are in
`parameter.grad`: not in a pipeline, nor where sums wait for the end of the step in FSDP or in a fixed order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from stoker.model.router import RouterStatistics
from stoker.parallel.parallel_model import ParallelModel
from stoker.parallel.placement import local


@dataclass(frozen=True)
class Accumulated:
    """Reads it from a model, and puts it back into one that is laid out in the same way."""

    model: ParallelModel

    def read(self) -> dict[str, Tensor]:
        """Everything by name, sharing the model's memory. A weight without a gradient has none here."""
        found = {}
        for place, one in enumerate(self.model.held):
            if one.is_parameter and one.parameter.grad is not None:
                found[f"gradient.{place}"] = local(one.parameter.grad)
        for name, mixture in self.model.part.mixtures().items():
            if mixture.router.counted is not None:
                for field, value in mixture.router.counted._asdict().items():
                    found[f"router.{name}.{field}"] = value
        return found

    def put_back(self, found: Mapping[str, Tensor]) -> None:
        """As if the micro-batches had just been computed."""
        for place, one in enumerate(self.model.held):
            if f"gradient.{place}" in found:
                one.parameter.grad = torch.zeros_like(one.parameter)
                local(one.parameter.grad).copy_(found[f"gradient.{place}"])
        for name, mixture in self.model.part.mixtures().items():
            counted = {field: found.get(f"router.{name}.{field}") for field in RouterStatistics._fields}
            if all(value is not None for value in counted.values()):
                device = mixture.router.weight.device
                on_device = {field: value.to(device) for field, value in counted.items() if value is not None}
                mixture.router.count_on(RouterStatistics(**on_device))
