"""The group of a rank in a test."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from stoker.parallel.context_parallel import SequenceSplit


def group_of(rank: int, ranks: int, store: Any) -> SequenceSplit:
    """Join the other ranks, all of which divide each sequence."""
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
    assert dist.group.WORLD is not None
    return SequenceSplit(dist.group.WORLD)
