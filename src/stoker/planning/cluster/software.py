"""The software that runs a workload: what it does, and at most two numbers for how well."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Software:
    """A framework. Its two numbers are in `parameters.csv`, as `framework.NAME.speed` and `.host`."""

    name: str
    overlaps_gradients: bool = True
    """Whether gradients are summed while backward goes on."""

    def speed(self, values: Mapping[str, float]) -> float:
        """Of its kernels, over Megatron-Core's."""
        return self._number("speed", values)

    def host(self, values: Mapping[str, float]) -> float:
        """Its host's time to issue them, over Megatron-Core's."""
        return self._number("host", values)

    def _number(self, kind: str, values: Mapping[str, float]) -> float:
        own = values.get(f"framework.{self.name}.{kind}")
        if own is not None:
            return own
        product, count = 1.0, 0
        for name, value in values.items():
            if name.startswith("framework.") and name.endswith(kind):
                product, count = product * value, count + 1
        return product ** (1 / count) if count else 1.0


MEGATRON_CORE = Software("megatron-core")
MEGATRON_2021 = Software("megatron-2021", overlaps_gradients=False)
MEGATRON_DEEPSPEED = Software("megatron-deepspeed", overlaps_gradients=False)
ONEFLOW = Software("oneflow")
FSDP = Software("fsdp")
JAX = Software("jax")
INTERNEVO = Software("internevo")
UNKNOWN = Software("unknown")
