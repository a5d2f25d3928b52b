"""Where one rank's tensors lie in the whole parameters of the model."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from stoker.layout.shares import Bounds, chunk
from stoker.model import initial_values
from stoker.recipe import Model

Box = tuple[Bounds, ...]
"""First and last + 1 on each dimension of a whole parameter."""
_DRAWN_AT_ONCE = 2**20


class Cut(NamedTuple):
    """One dimension of a parameter that is divided over a group of ranks."""

    dim: int
    group: dist.ProcessGroup


@dataclass(frozen=True)
class Placement:
    """Which part of a whole parameter a rank holds, before data-parallel sharding, and who else holds it."""

    shape: tuple[int, ...]
    """Of the whole parameter."""
    box: Box
    """The part."""
    cuts: tuple[Cut, ...] = ()
    partial: tuple[dist.ProcessGroup, ...] = ()
    """Groups of ranks that hold this same part within one copy of the model; their gradients add up."""
    repeated: dist.ProcessGroup | None = None
    """Ranks among those of `cuts` that hold this same part (key and value heads fewer than ranks)."""
    expert: bool = False
    """Whether the ranks of the experts' mesh, not the data-parallel ones, see other tokens."""

    @property
    def holders(self) -> int:
        """Ranks of one copy of the model that hold this same part."""
        return math.prod(group.size() for group in self.partial)

    @property
    def local_shape(self) -> tuple[int, ...]:
        """Of the part."""
        return tuple(last - first for first, last in self.box)

    def narrowed(self, dim: int, bounds: Bounds, group: dist.ProcessGroup | None) -> Placement:
        """The part of this part that is `bounds` (of the whole) on `dim`; `group` holds the other parts."""
        box = (*self.box[:dim], bounds, *self.box[dim + 1 :])
        cuts = self.cuts if group is None else (*self.cuts, Cut(dim, group))
        return replace(self, box=box, cuts=cuts)

    def shared_by(self, group: dist.ProcessGroup | None) -> Placement:
        """The same part, held by all of `group`."""
        return self if group is None else replace(self, partial=(*self.partial, group))

    @property
    def speaks(self) -> bool:
        """Whether this rank is the one that contributes its part where parts of `cuts` are put together."""
        return self.repeated is None or self.repeated.rank() == 0


def whole(parameter: Tensor) -> Placement:
    """The placement of a parameter that is not divided."""
    return Placement(tuple(parameter.shape), tuple((0, size) for size in parameter.shape))


@dataclass
class Held:
    """One parameter (or buffer) on this rank."""

    name: str
    """In the whole model."""
    module: nn.Module
    attribute: str
    placement: Placement
    copies: int = 1
    """Ranks with other tokens that hold the same elements, in all copies of the model."""

    def cut(self, dim: int, bounds: Bounds, group: dist.ProcessGroup | None) -> None:
        """Keep `bounds` of dimension `dim`; `group` holds the other parts."""
        first, last = bounds
        kept = self.parameter.detach().narrow(dim, first, last - first).clone()
        setattr(self.module, self.attribute, nn.Parameter(kept))
        self.placement = self.placement.narrowed(dim, bounds, group)

    def shared_by(self, group: dist.ProcessGroup | None, repeated: bool = False) -> None:
        """Note that all of `group` hold this same part, and have parts of its gradient.

        `repeated` says that they are among the ranks it is cut over.
        """
        self.placement = self.placement.shared_by(group)
        if repeated:
            self.placement = replace(self.placement, repeated=group)

    @property
    def tensor(self) -> Tensor:
        """The parameter or buffer as it is now: sharding replaces it."""
        found = getattr(self.module, self.attribute)
        assert isinstance(found, Tensor)
        return found

    @property
    def is_parameter(self) -> bool:
        """Whether it is trained by gradients; a buffer is not."""
        return isinstance(self.tensor, nn.Parameter)

    @property
    def parameter(self) -> nn.Parameter:
        """The parameter as it is now."""
        found = self.tensor
        assert isinstance(found, nn.Parameter)
        return found

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the whole parameter."""
        return self.placement.shape

    @property
    def box(self) -> Box:
        """The elements this rank holds, data-parallel sharding included."""
        parameter, box = self.tensor, self.placement.box
        if not isinstance(parameter, DTensor):
            return box
        mesh = parameter.device_mesh
        first, last = box[0]
        start, stop = chunk(last - first, mesh.size(mesh.ndim - 1), mesh.get_local_rank(mesh.ndim - 1))
        return ((first + start, first + stop), *box[1:])


def hold(model: nn.Module) -> dict[str, Held]:
    """Every parameter of `model` and every buffer that belongs to its state, whole, by name."""
    held = {}
    for name, parameter in model.state_dict(keep_vars=True).items():
        path, _, attribute = name.rpartition(".")
        held[name] = Held(name, model.get_submodule(path), attribute, whole(parameter))
    return held


def local(tensor: Tensor) -> Tensor:
    """This rank's part of a tensor; of one that is not sharded, all of it. Shares its memory."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


@torch.no_grad()
def initialise_part(held: Held, config: Model, seed: int) -> None:
    """Fill the part of a parameter that this rank holds with the initial values it has in the whole model."""
    part, box, shape = local(held.parameter), held.box, held.placement.shape
    if not part.numel():
        return
    if len(shape) < 2:
        first, last = box[0]
        part.copy_(initial_values(held.name, shape, config, seed, first, last, part.device, part.dtype))
        return
    width = shape[-1]
    columns = slice(*box[-1])
    for index, row, count in _runs(box, shape):
        values = initial_values(
            held.name, shape, config, seed, row * width, (row + count) * width, part.device, part.dtype
        )
        part.view(-1, part.shape[-1])[index : index + count].copy_(values.view(count, width)[:, columns])


def _runs(box: Box, shape: tuple[int, ...]) -> Iterator[tuple[int, int, int]]:
    """Runs of neighbouring rows (of the last dimension): place in the part, place in the whole, number."""
    most = max(1, _DRAWN_AT_ONCE // shape[-1])
    rows = [range(*bounds) for bounds in box[:-1]]
    outer = rows[0] if len(shape) == 3 else [0]
    place = 0
    for expert in outer:
        first, last = box[-2]
        for start in range(first, last, most):
            count = min(most, last - start)
            yield place, expert * shape[-2] + start, count
            place += count
