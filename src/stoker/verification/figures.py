"""How far apart two runs are, as figures: what is compared, in which order, and within which bounds."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from stoker.verification.subject import VerifiedPrecision

KINDS = (
    "initial",
    "loss",
    "routing",
    "activation",
    "activation gradient",
    "gradient",
    "norm",
    "weight",
    "state",
    "evaluation",
    "checkpoint",
)
"""What is compared, in the order in which one follows from the other within a step."""
BOUNDS: dict[VerifiedPrecision, float] = {"fp64": 1e-12, "fp32": 1e-5}
"""Of the relative error, against one process in the same precision."""
SIXTEEN_BITS_FLOOR, SIXTEEN_BITS_FACTOR = 1e-3, 2.0
"""In other precisions: so many times the error that one process has against fp64, and never less than this."""
SMALLEST, SMALLEST_ROUNDED = 1e-4, 1e-3
"""Errors are relative to a tensor's norm, or to this share of that of all of its kind; in fp64, elsewhere."""


@dataclass(frozen=True)
class Difference:
    """One comparison."""

    kind: str
    name: str
    """Of a module, parameter or figure."""
    step: int
    rank: int
    error: float
    """Relative, Frobenius."""
    bound: float
    precision: VerifiedPrecision
    micro_batch: int | None = None

    @property
    def ratio(self) -> float:
        """Above 1 the two differ."""
        return self.error / self.bound if math.isfinite(self.error) else math.inf

    @property
    def agrees(self) -> bool:
        """Whether the error is within the bound."""
        return self.ratio <= 1.0

    def __str__(self) -> str:
        where = f"step {self.step}, rank {self.rank}"
        if self.micro_batch is not None:
            where += f", micro-batch {self.micro_batch}"
        return f"{self.kind} {self.name} ({where}, {self.precision}): {self.error:.1e}, bound {self.bound:.1e}"


def relative(precision: VerifiedPrecision, error: float, size: float, all_of_kind: float) -> float:
    """`error` relative to `size`, where that is not tiny beside `all_of_kind`."""
    if error == 0.0:
        return 0.0
    smallest = SMALLEST if precision == "fp64" else SMALLEST_ROUNDED
    denominator = max(size, smallest * all_of_kind)
    return error / denominator if denominator > 0 else math.inf


def bound_of(precision: VerifiedPrecision, own_error: float) -> float:
    """The bound of a quantity that one process computes with a relative error of `own_error`."""
    if precision in BOUNDS:
        return BOUNDS[precision]
    return max(SIXTEEN_BITS_FLOOR, SIXTEEN_BITS_FACTOR * own_error)


def worst(differences: Iterable[Difference]) -> dict[str, Difference]:
    """The largest of each kind, by its bound."""
    found: dict[str, Difference] = {}
    for one in differences:
        if one.kind not in found or one.ratio > found[one.kind].ratio:
            found[one.kind] = one
    return found
