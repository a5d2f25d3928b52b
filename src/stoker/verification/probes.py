"""Looks at the outputs of a model's modules, and at their gradients, while steps are made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from stoker.model import Decoder
from stoker.parallel import ParallelModel
from stoker.parallel.parallel_model import Stage
from stoker.verification.activations import LOSSES, SAMPLES, Part, output_of, part_of, probed
from stoker.verification.figures import Difference
from stoker.verification.reference import Comparison, Reference

ACTIVATION, GRADIENT = "activation", "activation gradient"
_MOST_KEPT = 1000


class Viewer(Protocol):
    """Is shown what a module gave."""

    own_rows: int
    """The first row that this process sees."""

    def view(self, kind: str, name: str, tensor: Tensor, rows: Tensor, part: Part) -> None:
        """`tensor` [rows, places, features] is `part` of the output of `name`, or of its gradient."""

    def passed(self, name: str) -> None:
        """`name` was computed."""


@contextmanager
def looking(model: ParallelModel, length: int, first_sample: int, viewer: Viewer) -> Iterator[None]:
    """Show `viewer` every output of `model`, in sequences of `length`; their samples count from `first_sample`."""
    hooks = []
    for stage in model.stages.values():
        look = _Look(stage, model, length, first_sample, viewer)
        hooks.append(stage.part.register_forward_pre_hook(look.begin, with_kwargs=True, prepend=True))
        for name, module in stage.part.named_modules():
            if probed(name, module):
                hooks.append(module.register_forward_hook(look.hook(name, module)))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


class _Look:
    """At one stage."""

    def __init__(self, stage: Stage, model: ParallelModel, length: int, first_sample: int, viewer: Viewer) -> None:
        self._stage, self._world, self._viewer = stage, model.world, viewer
        self._length, self._first = length, first_sample
        self._rows = torch.empty(0)
        self._passes = 0
        self._calls: Counter[str] = Counter()

    def begin(self, part: nn.Module, inputs: Any, keywords: dict[str, Any]) -> None:
        assert isinstance(part, Decoder)
        given = keywords["samples"].cpu() - self._first
        # Each stage comes to its micro-batches in their order, whatever the schedule.
        self._rows = self._viewer.own_rows + self._passes * len(given) + torch.arange(len(given))
        self._passes += 1
        numbers = Part(torch.zeros(1, dtype=torch.int64), slice(None), True)
        self._viewer.view(ACTIVATION, SAMPLES, given.double()[:, None, None], self._rows, numbers)
        self._calls = Counter()
        if not part.begins:  # the embedding is here for further tokens only
            self._calls["embedding"] = 1

    def hook(self, name: str, module: nn.Module) -> Any:
        place = part_of(name, module, self._stage.held, self._world, self._length)

        def look(_: nn.Module, inputs: Any, output: object) -> None:
            tensor = output_of(output)
            call, self._calls[name] = self._calls[name], self._calls[name] + 1
            title = (name or LOSSES) + (f" (call {call + 1})" if call else "")
            self._viewer.passed(title)
            if tensor is None or place is None or (name == "" and isinstance(output, Tensor)):
                return
            rows = self._rows
            self._viewer.view(ACTIVATION, title, tensor.detach(), rows, place)
            source = output if isinstance(output, Tensor) else tensor
            if place.complete and source.requires_grad:

                def back(gradient: Tensor) -> None:
                    seen = output_of(gradient) if gradient.ndim >= 3 else gradient
                    assert seen is not None
                    self._viewer.view(GRADIENT, title, seen.detach(), rows, place)

                source.register_hook(back)  # type: ignore[no-untyped-call]

        return look


@dataclass
class Recorder:
    """Keeps whole outputs of one process."""

    reference: Reference
    step: int
    sequences: int
    own_rows: int = 0
    _wholes: dict[tuple[str, str], Tensor] = field(default_factory=dict)

    def view(self, kind: str, name: str, tensor: Tensor, rows: Tensor, part: Part) -> None:
        """Put the rows of a micro-batch in their places."""
        whole = self._wholes.get((kind, name))
        if whole is None:
            whole = self._wholes[kind, name] = tensor.new_zeros((self.sequences, *tensor.shape[1:]), device="cpu")
        whole[rows] = tensor.cpu()

    def passed(self, name: str) -> None:
        """Nothing to be done."""

    def finish(self) -> None:
        """Hand everything to the reference."""
        for (kind, name), whole in self._wholes.items():
            self.reference.tensor(self.step, kind, name, whole)


@dataclass
class Comparer:
    """Compares a rank's outputs with the reference's."""

    comparison: Comparison
    step: int
    micro_batch_size: int
    own_rows: int
    """The first row of this rank."""
    differing: list[tuple[int, Difference]] = field(default_factory=list)
    """With the place of each in the order in which one process comes to it."""

    def __post_init__(self) -> None:
        self._order = {key: number for number, key in enumerate(self.comparison.reference.tensors)}
        self._passed: set[str] = {SAMPLES}

    def passed(self, name: str) -> None:
        """Note that a module was computed here."""
        self._passed.add(name)

    @property
    def not_passed(self) -> dict[str, int]:
        """What one process computes and this rank does not, with its place."""
        return {
            name: place
            for (step, kind, name), place in self._order.items()
            if (step, kind) == (self.step, ACTIVATION) and name not in self._passed
        }

    def view(self, kind: str, name: str, tensor: Tensor, rows: Tensor, part: Part) -> None:
        """Compare with the reference's rows, places and features."""
        reference = self.comparison.reference
        key = (self.step, kind, name)
        if key not in reference.tensors:
            return
        whole = reference.tensors[key]
        if not whole.shape[-1]:
            return
        wanted = whole[rows][:, part.places][..., part.features]
        same_shape = wanted.shape == tensor.shape
        distance = float("inf")
        if same_shape:
            distance = float(torch.linalg.vector_norm(tensor.cpu().double() - wanted.double()))
        error, bound = reference.error_of(key, distance), reference.bound(key)
        micro_batch = int(rows[0] - self.own_rows) // self.micro_batch_size
        one = Difference(
            kind, name, self.step, self.comparison.rank, error, bound, reference.precision, micro_batch
        )
        if not one.agrees and len(self.differing) < _MOST_KEPT:
            self.differing.append((self._order[key], one))
