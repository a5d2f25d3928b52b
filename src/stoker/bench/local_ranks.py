"""Has ranks measure: where a launcher started them, or as processes of this machine."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from torch.distributed import TCPStore  # type: ignore[attr-defined]

from stoker.bench.measurement import Advance, measure
from stoker.bench.request import Request, launched_ranks
from stoker.bench.results import Measurement
from stoker.parallel.local_ranks import run_local_ranks


def measure_everywhere(request: Request, advance: Advance) -> Measurement:
    """Take part in the measurement where a launcher started this process; otherwise start the ranks here."""
    if launched_ranks() is not None:
        rank = int(os.environ["RANK"])
        return measure(request, rank, int(os.environ.get("LOCAL_RANK", rank)), None, advance)
    ranks = request.topology.ranks
    found: Measurement = run_local_ranks(_measure_as_rank, request, ranks, request.timeout_seconds, advance)
    return found


def _measure_as_rank(request: Request, rank: int, store: TCPStore, say: Callable[[Any], None]) -> Measurement:
    return measure(request, rank, rank, store, say)
