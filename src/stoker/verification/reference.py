"""What one process computes, kept in a file that all ranks of all layouts read."""

from __future__ import annotations

import math
import pickle
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from stoker.checkpoint.state import Part
from stoker.verification.figures import Difference, bound_of, relative
from stoker.verification.subject import VerifiedPrecision

Key = tuple[int, str, str]
"""Step, kind, name."""
_PLACE = re.compile(r"\d+")
"""What tells a quantity from its like in other layers."""


@dataclass
class Reference:
    """Everything that was shown of a one-process run. Is itself an observer of one."""

    precision: VerifiedPrecision
    numbers: dict[Key, float] = field(default_factory=dict)
    tensors: dict[Key, Tensor] = field(default_factory=dict)
    """In fp64, which holds every other precision."""
    sizes: dict[Key, float] = field(default_factory=dict)
    """Norms of tensors; with the name "" of all tensors of a step and kind (and of a state, by its own name)."""
    bounds: dict[Key, float] = field(default_factory=dict)
    """Where they are not the same for all quantities."""
    choices: dict[str, Tensor] = field(default_factory=dict)
    """Experts that routers chose, int64 [sequences, L, k]."""

    def number(self, step: int, kind: str, name: str, value: float) -> None:
        """Keep a figure."""
        self.numbers[step, kind, name] = value

    def parts(self, step: int, kind: str, parts: Mapping[str, Part]) -> None:
        """Keep tensors, which are whole."""
        for name, part in parts.items():
            self.tensor(step, kind, name, part.tensor)

    def tensor(self, step: int, kind: str, name: str, tensor: Tensor) -> None:
        """Keep one tensor."""
        key = (step, kind, name)
        self.tensors[key] = tensor.detach().to("cpu", torch.float64, copy=True)
        self.sizes[key] = norm(tensor)
        every = (step, kind, family(kind, name))
        if every != key:
            self.sizes[every] = math.hypot(self.sizes.get(every, 0.0), self.sizes[key])

    def compared_with_truth(self, truth: Reference) -> Reference:
        """`truth`, with bounds that this run's errors against it set.

        A quantity's bound follows from the largest error of its like in any layer and step: a vector of a few
        elements can come out well by chance.
        """
        judged = Reference(self.precision, truth.numbers, truth.tensors, truth.sizes)
        errors = {key: judged.error_of_number(key, number) for key, number in self.numbers.items()}
        for key, tensor in self.tensors.items():
            errors[key] = judged.error_of(key, norm(tensor - truth.tensors[key]))
        largest: dict[tuple[str, str], float] = {}
        for (_, kind, name), error in errors.items():
            like = (kind, _PLACE.sub("*", name))
            largest[like] = max(largest.get(like, 0.0), error)
        judged.bounds = {
            (step, kind, name): bound_of(self.precision, largest[kind, _PLACE.sub("*", name)])
            for step, kind, name in errors
        }
        return judged

    def choose(self, where: str, rows: Tensor, chosen: Tensor) -> None:
        """Keep which experts a router chose for the tokens of some sequences."""
        whole = self.choices.get(where, chosen.new_zeros((0, *chosen.shape[1:])))
        missing = max(0, int(rows.max()) + 1 - len(whole))
        self.choices[where] = torch.cat((whole, chosen.new_zeros((missing, *chosen.shape[1:]))))
        self.choices[where][rows] = chosen

    def error_of(self, key: Key, distance: float) -> float:
        """The relative error of a tensor, or of a part of one, that is `distance` away."""
        step, kind, name = key
        return relative(self.precision, distance, self.sizes[key], self.sizes[step, kind, family(kind, name)])

    def error_of_number(self, key: Key, number: float) -> float:
        """The relative error of a figure."""
        step, kind, _ = key
        everything = self.numbers.get((step, kind, "global norm"), 1.0)
        return relative(self.precision, abs(number - self.numbers[key]), abs(self.numbers[key]), everything)

    def bound(self, key: Key) -> float:
        """Of the relative error."""
        return self.bounds.get(key) or bound_of(self.precision, 0.0)

    def save(self, path: Path) -> None:
        """Write it to `path`."""
        shapes = {key: tuple(tensor.shape) for key, tensor in self.tensors.items()}
        np.save(
            path, torch.cat([torch.zeros(0), *(tensor.reshape(-1) for tensor in self.tensors.values())]).numpy()
        )
        figures = (self.precision, self.numbers, shapes, self.sizes, self.bounds, self.choices)
        path.with_suffix(".figures").write_bytes(pickle.dumps(figures))

    @classmethod
    def load(cls, path: Path) -> Reference:
        """Read it from `path`; tensors stay there until they are used."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
            flat = torch.from_numpy(np.load(path, mmap_mode="r"))
        precision, numbers, shapes, sizes, bounds, choices = pickle.loads(path.with_suffix(".figures").read_bytes())
        parts = torch.split(flat, [math.prod(shape) for shape in shapes.values()])
        tensors = {key: part.view(shape) for (key, shape), part in zip(shapes.items(), parts, strict=True)}
        return cls(precision, numbers, tensors, sizes, bounds, choices)


@dataclass
class Comparison:
    """An observer that keeps of everything it is shown only how far it is from `reference`."""

    reference: Reference
    rank: int
    found: dict[tuple[int, str], list[Difference]] = field(default_factory=dict)
    """By step and kind: the first that differs and the worst one."""
    unsettled: frozenset[str] = frozenset()
    """Parameters whose updates rounding decides."""

    def number(self, step: int, kind: str, name: str, value: float) -> None:
        """Compare a figure."""
        key = (step, kind, name)
        if key not in self.reference.numbers:
            self.note(key, math.inf)
        else:
            self.note(key, self.reference.error_of_number(key, value))

    def parts(self, step: int, kind: str, parts: Mapping[str, Part]) -> None:
        """Compare this rank's parts."""
        for name, part in parts.items():
            owner = name.rpartition(".")[0] if kind == "state" else name
            if kind in ("weight", "state") and owner in self.unsettled:
                continue
            self.part(step, kind, name, part.tensor, tuple(slice(*bounds) for bounds in part.box))

    def part(
        self,
        step: int,
        kind: str,
        name: str,
        tensor: Tensor,
        place: tuple[slice, ...],
        micro_batch: int | None = None,
    ) -> None:
        """Compare one part, which should be what `place` is of the whole."""
        key = (step, kind, name)
        if key not in self.reference.tensors:
            self.note(key, math.inf, micro_batch)
            return
        wanted = self.reference.tensors[key][place]
        if wanted.shape != tensor.shape:
            self.note(key, math.inf, micro_batch)
            return
        distance = norm(tensor.detach().cpu().double() - wanted)
        self.note(key, self.reference.error_of(key, distance), micro_batch)

    def note(self, key: Key, error: float, micro_batch: int | None = None) -> None:
        """Keep a relative error, if it is worth keeping."""
        self.settle(key, error, self.reference.bound(key), micro_batch)

    def settle(
        self, key: Key, error: float, bound: float, micro_batch: int | None = None, rank: int | None = None
    ) -> None:
        """The same with a bound of its own, and perhaps of another rank."""
        rank = self.rank if rank is None else rank
        step, kind, name = key
        precision = self.reference.precision
        one = Difference(kind, name, step, rank, error, bound, precision, micro_batch)
        known = self.found.setdefault((step, kind), [])
        if not known:
            known += [one, one]
        if known[0].agrees and not one.agrees:
            known[0] = one
        if one.ratio > known[1].ratio:
            known[1] = one


def norm(tensor: Tensor) -> float:
    """Euclidean, in fp64; NaN counts as infinitely long."""
    found = float(torch.linalg.vector_norm(tensor.detach(), dtype=torch.float64)) if tensor.numel() else 0.0
    return math.inf if math.isnan(found) else found


def family(kind: str, name: str) -> str:
    """The name under which the norm of all tensors of a kind is kept; optimizer states differ in scale."""
    if kind == "state":
        return f" {name.rpartition('.')[2]}"
    return name if kind.startswith("activation") else ""
