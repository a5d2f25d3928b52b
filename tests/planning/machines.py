"""Machines of known rates, so that a plan's arithmetic can be checked by hand."""

from __future__ import annotations

from typing import Any

from stoker.planning import Machine
from stoker.planning.rates import Rates

GIB = 2**30
RATES = Rates(
    matmul_flops_per_second=1e11,
    attention_flops_per_second=5e10,
    pointwise_bytes_per_second=1e10,
    loss_bytes_per_second=1e10,
    update_bytes_per_second=2e10,
    copy_bytes_per_second=1e10,
    machine_copy_bytes_per_second=1.5e10,
)


def machine(**changes: Any) -> Machine:
    """A processor with 8 cores and 16 GiB, all free."""
    return Machine(
        **{
            "device": "cpu",
            "name": "a processor",
            "devices": 1,
            "cores": 8,
            "threads": 1,
            "memory_bytes": 16 * GIB,
            "available_bytes": 16 * GIB,
            "host_available_bytes": 64 * GIB,
            "runtime_bytes": 0,
            "rates": RATES,
            **changes,
        }
    )
