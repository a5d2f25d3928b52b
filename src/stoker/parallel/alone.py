"""What the ranks of one copy of the model compute by themselves, before anything is summed over other tokens.

Gradients are seen where autograd adds them to a parameter: FSDP's are whole there, and those of `dp_replicate` are
not yet in a bucket. Weight gradients that a pipeline puts off are computed outside of autograd and are not seen.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from stoker.model import TokenLosses
from stoker.parallel.parallel_model import ParallelModel
from stoker.parallel.replicate import PartialGradients, SummedGradients
from stoker.parallel.shard import Sharding

_ODD = 0x1E3779B97F4A7C15
"""A large odd number; products with it wrap."""
_LOSSES = -1


class Apart(Sharding):
    """Sharded parameters whose gradients stay on the rank that computed them, and are dropped."""

    def __init__(self, sharding: Sharding) -> None:
        self._modules, self._stage = sharding._modules, sharding._stage

    def _sums(self, last: bool, later: bool) -> bool:
        return False

    def reduce(self) -> None:
        """Sum nothing."""

    def drop(self) -> None:
        """Forget whole gradients, and let go of whole weights."""
        for parameter in sharded(self._modules):
            if hasattr(parameter, "_unsharded_param"):
                parameter._unsharded_param.grad = parameter.unsharded_accumulated_grad = None
        self.free()


def apart(model: ParallelModel) -> ParallelModel:
    """`model`, the same parameters, but what its `forward_backward` computes is summed with nobody's."""
    stages = {
        number: replace(stage, sharding=None if stage.sharding is None else Apart(stage.sharding))
        for number, stage in model.stages.items()
    }
    nothing = SummedGradients([], 1.0, None)
    return replace(model, stages=stages, summed=nothing, partial=PartialGradients([]), order=None)


def forget(model: ParallelModel) -> None:
    """Leave `model`, which is `apart`, as if it had computed nothing: no gradients, nothing counted by routers."""
    for stage in model.stages.values():
        if isinstance(stage.sharding, Apart):
            stage.sharding.drop()
        for mixture in stage.part.mixtures().values():
            mixture.take_statistics()
    model.gradients.clear()


def leaves(model: ParallelModel) -> list[Tensor]:
    """The parameters of this rank as autograd knows them: FSDP's whole ones, once they have been gathered."""
    found = [p for one in model.held if one.is_parameter and not isinstance(p := one.parameter, DTensor)]
    for stage in model.stages.values():
        modules = [module for module in stage.part.modules() if isinstance(module, FSDPModule)]
        found += [p._unsharded_param for p in sharded(modules) if hasattr(p, "_unsharded_param")]
    return [leaf for leaf in found if leaf.requires_grad]


class Seen(NamedTuple):
    """Checksums of what a rank computed: int64."""

    losses: int
    """Of every token; 0 where the last pipeline stage is not."""
    gradients: int


class Witness:
    """Sees each token's loss and each gradient as one pass gives it, and keeps checksums of their bits."""

    def __init__(self, model: ParallelModel, passes: int | None = None, keep: Collection[int] = ()) -> None:
        """The first `passes` micro-batches of a step are seen; None: all. Of the leaves at the places `keep` the
        gradients themselves are kept.
        """
        self._passes = passes
        self.kept: dict[int, Tensor] = {place: torch.zeros((), dtype=torch.float64) for place in keep}
        """Their sums over the micro-batches, by place: float64, in host memory."""
        self.sizes: dict[int, float] = {}
        """The root mean squares of the weights at those places, which FSDP gathers only while it computes."""
        self._parts = [stage.part for stage in model.stages.values()]
        plain = {id(one.tensor) for one in model.held}
        self._leaves = [(leaf, id(leaf) not in plain) for leaf in leaves(model)]
        self._seen: Counter[int] = Counter()
        self._sums: dict[int, Tensor] = {}

    @contextmanager
    def watching(self, drop: bool = False) -> Iterator[None]:
        """While this lasts. `drop` has FSDP keep no whole gradients, which it would do where nothing is summed."""
        handles = [part.register_forward_hook(self._see_losses) for part in self._parts]
        # Not hooks of tensors: the compiler would see these, and compile anew. Nodes live as long as they are held.
        nodes = [get_gradient_edge(leaf).node for leaf, _ in self._leaves]
        for place, (node, (leaf, whole)) in enumerate(zip(nodes, self._leaves, strict=True)):
            handles.append(node.register_prehook(self._hook(place)))
            if drop and whole:
                handles.append(node.register_hook(_dropping(leaf)))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
            nodes.clear()

    def seen(self) -> Seen:
        """Of everything seen so far."""
        gradients = [int(one) * _odd(place) for place, one in self._sums.items() if place >= 0]
        losses = self._sums.get(_LOSSES)
        return Seen(0 if losses is None else int(losses), _wrapped(sum(gradients)))

    @property
    def elements(self) -> dict[int, int]:
        """Of each of this rank's leaves, by place."""
        return {place: leaf.numel() for place, (leaf, _) in enumerate(self._leaves)}

    def by_leaf(self) -> dict[int, int]:
        """Checksums of the gradients seen so far, by the place of the parameter in `leaves`."""
        return {place: int(one) for place, one in self._sums.items() if place >= 0}

    def _hook(self, place: int) -> Callable[[Sequence[Tensor | None]], None]:
        def hook(gradients: Sequence[Tensor | None]) -> None:
            if gradients[0] is not None:  # it is where a pipeline has put it off
                self._add(place, gradients[0])

        return hook

    def _see_losses(self, part: nn.Module, inputs: object, output: object) -> None:
        if isinstance(output, TokenLosses):
            self._add(_LOSSES, output.token_losses)

    def _add(self, place: int, tensor: Tensor) -> None:
        number = self._seen[place]
        self._seen[place] += 1
        if self._passes is None or number < self._passes:
            found = checksum_of(tensor) * (2 * number + 1)
            self._sums[place] = self._sums[place] + found if place in self._sums else found
            if place in self.kept:
                self.kept[place] = self.kept[place] + tensor.detach().to("cpu", torch.float64)
                self.sizes[place] = float(self._leaves[place][0].detach().square().mean().sqrt())


class Glance:
    """Keeps this rank's own gradients of vectors, such as the gains of norms, summed over a step's micro-batches.

    Cheap enough for every step. Each is computed from what flows back through its layer: an error on the way shows.
    """

    def __init__(self, model: ParallelModel) -> None:
        self._model = model
        self._nodes: dict[int, tuple[Any, Any]] = {}
        """By parameter: its node, which lives as long as it is held, and the hook of it."""
        self._searches = 0
        self._sums: dict[int, Tensor] = {}

    def begin(self) -> None:
        """Before a step."""
        self._sums = {}
        if self._searches == 2:
            return
        self._searches += 1  # FSDP's are there once it has gathered them, in the first step
        for leaf in leaves(self._model):
            if leaf.ndim == 1 and id(leaf) not in self._nodes:
                node = get_gradient_edge(leaf).node
                self._nodes[id(leaf)] = node, node.register_prehook(partial(self._add, id(leaf)))

    def take(self) -> dict[int, Tensor]:
        """What was kept since `begin`, by parameter."""
        found, self._sums = self._sums, {}
        return found

    def _add(self, leaf: int, gradients: Sequence[Tensor | None]) -> None:
        if gradients[0] is not None:
            gradient = gradients[0].detach()
            self._sums[leaf] = self._sums[leaf] + gradient if leaf in self._sums else gradient.clone()


def differ(some: dict[int, Tensor], others: dict[int, Tensor]) -> bool:
    """Whether two glances at the same computation saw other numbers. NaN is like NaN."""
    return not all(
        torch.allclose(some[leaf], others[leaf], rtol=0, atol=0, equal_nan=True)
        for leaf in some.keys() & others.keys()
    )


@torch.no_grad()
def checksum_of(tensor: Tensor) -> Tensor:
    """A number that any changed bit changes, int64 []: rows of words are added, rows weighted by an odd number.

    Two passes over memory, at the speed of a copy; what is computed stays on the device. One NaN is like another:
    which of its operands' bits a processor keeps depends on how it was given them.
    """
    flat = tensor.detach().contiguous().reshape(-1)
    flat = flat.masked_fill(flat.isnan(), math.nan)
    width = tensor.shape[-1] if tensor.ndim > 1 else flat.numel()
    if not flat.numel():
        return torch.zeros((), dtype=torch.int64, device=tensor.device)
    if width * flat.element_size() % 8:  # no whole words in a row
        flat = torch.nn.functional.pad(flat, (0, -flat.numel() % (8 // flat.element_size())))
        width = flat.numel()
    rows = flat.view(torch.int64).view(-1, width * flat.element_size() // 8).sum(dim=-1)
    weights = torch.arange(1, 2 * len(rows), 2, dtype=torch.int64, device=tensor.device)
    return (rows * weights * _ODD).sum()


def _odd(place: int) -> int:
    return _ODD * (2 * place + 1)


def _wrapped(number: int) -> int:
    return (number + 2**63) % 2**64 - 2**63


def _dropping(leaf: Tensor) -> Callable[[object, object], None]:
    def drop(inputs: object, outputs: object) -> None:
        leaf.grad = None

    return drop


def sharded(modules: Sequence[FSDPModule]) -> list[Any]:
    """FSDP's account of each parameter that it divides for one of `modules`."""
    groups = [group for module in modules for group in module._get_fsdp_state()._fsdp_param_groups]
    return [parameter for group in groups for parameter in group.fsdp_params]
