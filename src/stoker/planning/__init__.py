"""What a run will need and take on a machine, predicted before it starts; no processes, no communication."""

from stoker.planning.cluster.accelerators import Accelerator, accelerators
from stoker.planning.machine import (
    Hardware,
    Machine,
    look_at_machine,
    measure_machine,
    read_machine,
    write_machine,
)
from stoker.planning.plan import PeakMemory, Plan, StepSeconds, make_plan, require_fits

__all__ = [
    "Accelerator",
    "Hardware",
    "Machine",
    "PeakMemory",
    "Plan",
    "StepSeconds",
    "accelerators",
    "look_at_machine",
    "make_plan",
    "measure_machine",
    "read_machine",
    "require_fits",
    "write_machine",
]
