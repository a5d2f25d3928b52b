"""What a run will need and take on a machine, predicted before it starts; no processes, no communication."""

from stoker.planning.machine import Accelerator, Machine, accelerators, measure_machine
from stoker.planning.plan import PeakMemory, Plan, StepSeconds, make_plan, require_fits

__all__ = [
    "Accelerator",
    "Machine",
    "PeakMemory",
    "Plan",
    "StepSeconds",
    "accelerators",
    "make_plan",
    "measure_machine",
    "require_fits",
]
