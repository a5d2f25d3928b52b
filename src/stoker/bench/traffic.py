"""Counts what a rank sends while some program runs: every collective and message of torch.distributed.

It sees collectives below autograd, those of `torch.distributed`'s functions, of functional collectives and of FSDP
alike, and looks into this project's own custom operators.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch._library.custom_ops import OPDEFS
from torch.distributed import distributed_c10d
from torch.utils._python_dispatch import TorchDispatchMode

_NAMESPACES = ("c10d", "_c10d_functional", "_c10d_functional_autograd")
_KINDS = {
    "allreduce_": "all_reduce",
    "allreduce_coalesced_": "all_reduce",
    "all_reduce": "all_reduce",
    "all_reduce_": "all_reduce",
    "_allgather_base_": "all_gather",
    "allgather_": "all_gather",
    "allgather_into_tensor_coalesced_": "all_gather",
    "all_gather_into_tensor": "all_gather",
    "all_gather_into_tensor_out": "all_gather",
    "_reduce_scatter_base_": "reduce_scatter",
    "reduce_scatter_": "reduce_scatter",
    "reduce_scatter_tensor_coalesced_": "reduce_scatter",
    "reduce_scatter_tensor": "reduce_scatter",
    "alltoall_base_": "all_to_all",
    "alltoall_": "all_to_all",
    "all_to_all_single": "all_to_all",
    "broadcast_": "broadcast",
    "broadcast": "broadcast",
    "send": "send",
}
_SILENT = ("barrier", "monitored_barrier_", "recv_", "recv_any_source_", "wait_tensor")
"""What sends nothing, or is counted where it is sent."""


@dataclass(frozen=True)
class Call:
    """One collective, or one message sent, of this rank."""

    kind: str
    """`all_reduce`, `all_gather`, `reduce_scatter`, `all_to_all`, `broadcast` or `send`."""
    ranks: int
    """Of its group."""
    size: int
    """Bytes of the whole buffer on this rank (of a gather what comes out, of a scatter what goes in)."""
    sent: float
    """Bytes that this rank must send at least: 2(p-1)/p of an all-reduce, (p-1)/p of a gather, a scatter or (on the
    average of ranks) a broadcast, and of an all-to-all what is for others."""


class Traffic(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Used as a context; `calls` are those of this rank and thread within it, in order.

    Raises `ValueError` at a collective it does not know. What compiled code calls is not seen.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[Call] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Note what `func` sends, and let it."""
        inside = OPDEFS.get(func._schema.name)
        if inside is not None:
            with self:  # below an operator's own name nothing would be seen otherwise
                return inside._init_fn(*args, **(kwargs or {}))
        if func.namespace in _NAMESPACES:
            self._note(func, args)
        return func(*args, **(kwargs or {}))

    @property
    def sent(self) -> float:
        """Bytes, at least."""
        return sum(call.sent for call in self.calls)

    def _note(self, func: Any, args: tuple[Any, ...]) -> None:
        name = func._schema.name.rpartition("::")[2]
        if name in _SILENT:
            return
        if name not in _KINDS:
            raise ValueError(f"{func} is a collective that the counting of traffic does not know")
        named = dict(zip((argument.name for argument in func._schema.arguments), args, strict=False))
        kind, group = _KINDS[name], _group(named)
        size = _bytes(_input(named)) * (group.size() if kind == "all_gather" else 1)
        sent = _LEAST[kind](named, size, group)
        self.calls.append(Call(kind, group.size(), size, sent))


def _group(named: dict[str, Any]) -> dist.ProcessGroup:
    given: Any = named.get("group_name", named.get("process_group"))
    if isinstance(given, str):
        return distributed_c10d._resolve_process_group(given)  # type: ignore[arg-type, attr-defined]
    return given if isinstance(given, dist.ProcessGroup) else dist.ProcessGroup.unbox(given)


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return [tensor for inner in value for tensor in _tensors(inner)] if isinstance(value, list | tuple) else []


def _bytes(value: Any) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in _tensors(value))


def _input(named: dict[str, Any]) -> Any:
    return next(named[name] for name in _INPUTS if name in named)


_INPUTS = ("input", "self", "input_tensor", "input_tensors", "inputs", "tensors")
Named = dict[str, Any]


def _for_others(named: Named, size: int, group: dist.ProcessGroup) -> float:
    sizes, parts = named.get("input_split_sizes"), _tensors(_input(named))
    if len(parts) > 1:
        return float(size - _bytes(parts[group.rank()]))
    if not sizes:
        return size * (group.size() - 1) / group.size()
    return size * (1 - sizes[group.rank()] / sum(sizes)) if size else 0.0


def _share(factor: int) -> Callable[[Named, int, dist.ProcessGroup], float]:
    return lambda named, size, group: factor * size * (group.size() - 1) / group.size()


_LEAST: dict[str, Callable[[Named, int, dist.ProcessGroup], float]] = {
    "all_reduce": _share(2),
    "all_gather": _share(1),
    "reduce_scatter": _share(1),
    "all_to_all": _for_others,
    "broadcast": _share(1),
    "send": lambda named, size, group: float(size),
}
