"""Blocks that keep less for backward, which computes again what it misses.

torch's checkpoint runs a block a second time when backward first asks for something of it; of the first time only
its input is there. What single operations gave the first time may be kept too, and is then handed out in place of
being computed. That is decided below autograd, where every operation passes by its name, so that functions with a
backward of their own are no special case: what they save is made of their inputs and results.

The second time is the first again, to the bit: `Routing` remembers the choices of experts, and all draws are
functions of (seed, step, layer, sample, place). Sums over ranks are kept in place of what they are made from, of
which they are a rank's part; gathers, whose results are larger than what was sent, are repeated.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only
from torch.utils.checkpoint import checkpoint

from stoker.model import Decoder
from stoker.model.decoder import NO_DRAWS, Shared
from stoker.model.draws import LayerDraws
from stoker.model.mixture_of_experts import MixtureOfExperts
from stoker.parallel.tensor_parallel import RowParallelLinear
from stoker.recipe.memory import OPERATIONS, Recomputed

_PRODUCTS = frozenset({"aten::mm", "aten::addmm"})
_SUM_OF_RANKS = frozenset({"_c10d_functional::reduce_scatter_tensor"})
_EXCHANGE = frozenset({"_c10d_functional::all_to_all_single"})
_KEPT: dict[str, frozenset[str]] = {
    "attention_projections": _PRODUCTS,
    "attention": _EXCHANGE
    | {
        "aten::_scaled_dot_product_flash_attention_for_cpu",
        "aten::_scaled_dot_product_flash_attention",
        "aten::_scaled_dot_product_efficient_attention",
        "aten::_scaled_dot_product_cudnn_attention",
        "aten::bmm",  # of attention that no kernel knows
        "stoker::document_attention",
        "stoker::ring_attention",
        "stoker::attend_to_all",
    },
    "attention_output": _PRODUCTS,
    "feed_forward": _PRODUCTS,
    "experts": _EXCHANGE | {"aten::_grouped_mm", "stoker::rows_times_experts"},
}
"""Whose results are kept of each operation that is not computed again."""
_ALWAYS_KEPT = frozenset({"_c10d_functional::all_reduce"})
"""Squares of norms and counts of tokens: a number or two a token."""
_HOLLOW = frozenset({"aten::mm", "aten::clone", "aten::constant_pad_nd"})
"""What a sum over ranks is made from, and what it is not computed for again when the sum is there."""


_unseen = 0
"""Greater than 0 while what is computed belongs to no block."""


@contextmanager
def unseen() -> Iterator[None]:
    """Around what is computed in the middle of a block and is not to be computed, or handed out, a second time."""
    global _unseen
    _unseen += 1
    try:
        yield
    finally:
        _unseen -= 1


def recompute(part: Decoder, choices: Mapping[int, Recomputed]) -> None:
    """Have the layers of `part` that are in `choices`, by number in the whole model, recompute so much."""
    again = {
        block: _Again(block, choices[number], part.config.norm_position != "pre")
        for number, block in numbered_blocks(part)
        if number in choices
    }

    def run_block(block: nn.Module, x_BLD: Tensor, shared: Shared, draws: LayerDraws = NO_DRAWS) -> Tensor:
        return again.get(block, block)(x_BLD, shared, draws)

    if again:
        part.run_block = run_block


def numbered_blocks(part: Decoder) -> Iterator[tuple[int, nn.Module]]:
    """The blocks of `part` with their numbers in the whole model, those of modules for further tokens last."""
    for number, block in part.blocks.items():
        yield int(number), block
    for number, module in part.mtp.items():
        yield part.config.layers + int(number), module.get_submodule("block")


class _Again:
    """One block, with what it takes to run it a second time."""

    def __init__(self, block: nn.Module, recomputed: Recomputed, outputs_are_normed: bool) -> None:
        self._block = block
        self._contexts: Any = None
        if recomputed != frozenset(OPERATIONS):
            region = _Region(block, recomputed, outputs_are_normed)
            self._contexts = region.contexts

    def __call__(self, x_BLD: Tensor, shared: Shared, draws: LayerDraws) -> Tensor:
        if not torch.is_grad_enabled():
            return self._block(x_BLD, shared, draws)  # type: ignore[no-any-return]
        contexts = {} if self._contexts is None else {"context_fn": self._contexts}
        return checkpoint(  # type: ignore[no-any-return]
            self._block, x_BLD, shared, draws, use_reentrant=False, preserve_rng_state=False, **contexts
        )


class _Region:
    """The operations of one block: which of them is going on, and what is kept of it."""

    def __init__(self, block: nn.Module, recomputed: Recomputed, outputs_are_normed: bool) -> None:
        self.going_on: list[tuple[str, bool]] = []
        """Of each module that is being computed its operation, and whether it ends in a sum over ranks."""
        self._kept_of = {name: kept for name, kept in _KEPT.items() if name not in recomputed}
        for name, module in block.named_modules():
            operation = _operation_of(name, module)
            if operation == "feed_forward" and name.endswith("down") and not outputs_are_normed:
                operation = ""  # nothing of backward depends on the value
            if operation is not None:
                summed = isinstance(module, RowParallelLinear) and module.summed
                module.register_forward_pre_hook(partial(self._begin, operation, summed))
                module.register_forward_hook(self._end)

    def contexts(self) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
        """Around the first time, and around the second."""
        kept: deque[Any] = deque()
        return _Keeping(self, kept), _HandingOut(self, kept)

    def keeps(self, function: str) -> bool:
        """Whether what `function` gives is kept."""
        if function in _ALWAYS_KEPT:
            return True
        operation, summed = self.going_on[-1] if self.going_on else ("", False)
        kept = self._kept_of.get(operation, frozenset())
        return function in (_SUM_OF_RANKS if summed and kept else kept)

    def is_for_kept_sum(self, function: str) -> bool:
        """Whether `function` works towards a sum over ranks that is kept."""
        operation, summed = self.going_on[-1] if self.going_on else ("", False)
        return summed and operation in self._kept_of and function in _HOLLOW

    def _begin(self, operation: str, summed: bool, module: nn.Module, inputs: object) -> None:
        self.going_on.append((operation, summed))

    def _end(self, module: nn.Module, inputs: object, output: object) -> None:
        self.going_on.pop()


def _operation_of(name: str, module: nn.Module) -> str | None:
    """The operation that a module of a block stands for; None where it belongs to the one around it."""
    if name in ("attention", "attention.output"):
        return {"attention": "attention", "attention.output": "attention_output"}[name]
    if isinstance(module, MixtureOfExperts):
        return "experts"
    parent, _, own = name.rpartition(".")
    if parent == "attention" and isinstance(module, nn.Linear) and not own.endswith("_up"):
        return "attention_projections"
    return "feed_forward" if own in ("gate", "up", "down") else None


class _Watching(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees the operations of one run of a block."""

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """A kernel that is compiled by itself, as attention by blocks is, is run as it is, both times."""
        return True

    def __init__(self, region: _Region, kept: deque[Any]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._region, self._kept = region, kept

    def __enter__(self) -> Any:
        self._region.going_on.clear()
        return super().__enter__()  # type: ignore[no-untyped-call]


class _Keeping(_Watching):  # type: ignore[no-untyped-call]
    """The first time."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not _unseen and self._region.keeps(func.name()):
            # Detached: the result itself gets a graph, which keeps what was kept.
            self._kept.append(tree_map_only(Tensor, torch.detach, result))
        return result


class _HandingOut(_Watching):
    """The second time, which ends as soon as backward has what it needs."""

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)  # type: ignore[no-untyped-call]
        self._kept.clear()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name()
        if _unseen:
            return func(*args, **(kwargs or {}))
        if self._region.keeps(name):
            return self._kept.popleft()
        if self._region.is_for_kept_sum(name):
            return _hollow(name, args)
        return func(*args, **(kwargs or {}))


def _hollow(name: str, args: Any) -> Tensor:
    """A tensor of the shape that the operation would give, without memory."""
    shape = list(args[0].shape)
    if name == "aten::mm":
        shape[1] = args[1].shape[1]
    elif name == "aten::constant_pad_nd":
        for index, added in enumerate(args[1]):
            shape[-1 - index // 2] += added
    return args[0].new_empty(()).expand(shape)  # type: ignore[no-any-return]
