"""The operators that take most time, how fast they compute, and whether their shapes suit the hardware."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from stoker.profiling.account import OWN_PHASES, StepAccount, Work
from stoker.profiling.families import (
    ATTENTION,
    MATMUL,
    flops_of,
    is_fused_attention,
    is_unfused_attention,
    matmul_sizes,
)
from stoker.profiling.trace import Operator

MULTIPLES = (8, 16, 128)
_SHOWN = 12
Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class OperatorRow:
    """Calls of one operator with the same shapes, of all ranks."""

    name: str
    family: str
    shapes: Shapes
    calls: float
    """In a step of one rank, on average."""
    seconds: float
    """In a step of one rank, on average, without what it calls in turn."""
    flops_per_second: float | None
    """None where shapes do not tell."""
    of_reachable: float | None
    """The share of what matrix products reach on this machine."""


@dataclass
class Totals:
    """Sums over all profiled steps of all ranks, in nanoseconds."""

    by_operator: dict[tuple[str, str, Shapes], list[int]] = field(default_factory=dict)
    """Nanoseconds and calls, by name, family and shapes."""
    matmul: int = 0
    """Of matrix products with known sizes; the following are of these."""
    matmul_flops: int = 0
    suited: dict[int, int] = field(default_factory=lambda: dict.fromkeys(MULTIPLES, 0))
    """Of products all of whose sizes are multiples of each."""
    attention: int = 0
    fused_calls: int = 0
    unfused_calls: int = 0

    def add(self, operators: Sequence[Operator], work: Sequence[Work], accounts: Sequence[StepAccount]) -> None:
        """Add what one rank did in its steps' forward and backward passes and between them."""
        windows = [account.window for account in accounts]
        for operator in operators:
            if _within(operator.start, windows):
                self.fused_calls += is_fused_attention(operator.name)
                self.unfused_calls += is_unfused_attention(operator.name)
        called: set[int] = set()
        for one in work:
            if one.operator is not None and one.phase not in OWN_PHASES and _within(one.start, windows):
                self._add(one, one.operator, is_new=id(one.operator) not in called)
                called.add(id(one.operator))

    def _add(self, work: Work, operator: Operator, *, is_new: bool) -> None:
        lasted = work.end - work.start
        sums = self.by_operator.setdefault((operator.name, work.family, operator.shapes), [0, 0])
        sums[0] += lasted
        sums[1] += is_new
        self.attention += lasted * (work.family == ATTENTION)
        sizes = matmul_sizes(operator.name, operator.shapes) if work.family == MATMUL else None
        if sizes is not None:
            self.matmul += lasted
            self.matmul_flops += is_new * flops_of(operator.name, operator.shapes)
            for multiple in MULTIPLES:
                self.suited[multiple] += lasted * all(size % multiple == 0 for size in sizes[1:])

    def rows(self, rank_steps: int, reachable: float) -> tuple[OperatorRow, ...]:
        """The operators that take most time, in `rank_steps` steps of single ranks; `reachable` is FLOP/s."""
        by_time = sorted(self.by_operator.items(), key=lambda item: (-item[1][0], item[0]))
        found = []
        for (name, family, shapes), (lasted, calls) in by_time[:_SHOWN]:
            flops = flops_of(name, shapes) * calls
            rate = flops / lasted * 1e9 if flops and lasted else None
            found.append(
                OperatorRow(
                    name=name,
                    family=family,
                    shapes=tuple(shape for shape in shapes if shape),
                    calls=calls / rank_steps,
                    seconds=lasted / rank_steps / 1e9,
                    flops_per_second=rate,
                    of_reachable=None if rate is None else rate / reachable,
                )
            )
        return tuple(found)


def _within(moment: int, windows: Sequence[tuple[int, int]]) -> bool:
    return any(start <= moment < end for start, end in windows)
