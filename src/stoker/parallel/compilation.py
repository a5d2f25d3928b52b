"""How a block is compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch._functorch import config as functorch_config
from torch.fx import GraphModule

from stoker.model.mixture_of_experts import MixtureOfExperts

RECOMPUTE_POINTWISE = {
    "ban_recompute_used_far_apart": False,
    "ban_recompute_long_fusible_chains": False,
    "ban_recompute_materialized_backward": False,
}
"""Of what a block keeps for backward: what pointwise operations can make again is made again, matrix products and
attention never are. (A memory budget below 1 chooses the same for most shapes; for others it has attention computed
twice.)"""


def compile_block(block: nn.Module, share: float = 1.0, backend: str | Callable[..., Any] | None = None) -> None:
    """Have `block` compiled when it is first called, one graph for each shape of its input.

    `share` is how much it may keep for backward of what it could leave out: below 1 torch's partitioner solves
    a knapsack over the products and attention of the block (`activation_memory_budget`). Mixtures of experts stay
    out of the graphs: how many rows an expert gets is not known when they are made. `backend` is torch's own
    compiler when not given.
    """
    for module in block.modules():
        if isinstance(module, MixtureOfExperts):
            # Said here and not where the class is: saying it loads the compiler, which takes seconds.
            disabled = torch.compiler.disable(module.forward)  # type: ignore[no-untyped-call]
            module.forward = disabled  # type: ignore[method-assign]
    block.compile(dynamic=False, backend=backend or partial(_lean_inductor, share))


def _lean_inductor(share: float, graph: GraphModule, inputs: Sequence[Tensor]) -> Callable[..., Any]:
    """Torch's own compiler. The settings are globals of torch's, so they are made for the one call alone."""
    from torch._inductor.compile_fx import compile_fx  # slow to import, and only compiled runs need it

    with functorch_config.patch({**RECOMPUTE_POINTWISE, "activation_memory_budget": share}):
        compiled: Any = compile_fx(graph, inputs)
    return compiled  # type: ignore[no-any-return]
