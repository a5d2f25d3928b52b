"""What a step of a workload needs on a described cluster: the one door to memory and seconds."""

from __future__ import annotations

from dataclasses import dataclass

from stoker.planning.cluster.cluster import Cluster
from stoker.planning.cluster.flops import ModelFlops, model_flops
from stoker.planning.cluster.memory import MemoryBytes, memory_bytes
from stoker.planning.cluster.parameters import Parameters, shipped_parameters
from stoker.planning.cluster.sizes import stage_sizes
from stoker.planning.cluster.software import UNKNOWN, Software
from stoker.planning.cluster.step import Seconds, step_seconds
from stoker.planning.cluster.workload import Workload


@dataclass(slots=True)
class Prediction:
    """What a step of a workload needs on a cluster."""

    workload: Workload
    cluster: Cluster
    seconds: Seconds
    memory: MemoryBytes

    @property
    def fits(self) -> bool:
        """Whether an accelerator's memory holds it."""
        return self.memory.total <= (self.cluster.accelerator.memory_gb or 0.0) * 1e9

    @property
    def flops(self) -> ModelFlops:
        """Of the model, on all accelerators."""
        return model_flops(self.workload)

    @property
    def tokens_per_second_per_accelerator(self) -> float:
        """Tokens of the step over its seconds and its ranks."""
        return self.workload.tokens / self.seconds.total / self.workload.parallelism.world_size

    @property
    def mfu(self) -> float | None:
        """Model FLOPs, attention in full, over the published 16-bit peak; None where there is none."""
        accelerator = self.cluster.accelerator
        peak = accelerator.peak_flops_per_second("bf16") or accelerator.peak_flops_per_second("fp16")
        if peak is None:
            return None
        return self.flops.full / self.seconds.total / (peak * self.workload.parallelism.world_size)


def predict(
    workload: Workload, cluster: Cluster, software: Software = UNKNOWN, parameters: Parameters | None = None
) -> Prediction:
    """Memory and seconds of one step; a tenth of a millisecond of one processor.

    Ranks are laid out as `Parallelism` says and taken to be alike but for the ends of a pipeline; whether the
    model can be divided so is not asked (`stoker.layout.validity` is), nor whether it fits. `software` says what
    the framework overlaps and how fast it is; one without numbers has the mean of those that have.
    """
    values = shipped_parameters() if parameters is None else parameters
    memory = memory_bytes(workload, stage_sizes(workload), values)
    return Prediction(workload, cluster, step_seconds(workload, cluster, software, values, memory), memory)
