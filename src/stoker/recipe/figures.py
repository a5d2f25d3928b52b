"""The recorded figures that a rule of one's own may name, as `stoker recipe check` knows them without a record."""

from __future__ import annotations

STEP: dict[str, bool] = {
    "loss": False,
    "loss_by_source": True,
    "loss_by_position": True,
    "tokens_by_source": True,
    "gradient_norm": False,
    "gradient_norm_by_module": True,
    "learning_rate": False,
    "tokens": False,
    "tokens_seen": False,
    "accumulation": False,
    "loss_scale": False,
    "dead_updates": False,
    "update_norm": False,
    "weight_norm": False,
    "seconds": True,
    "arrived": True,
    "waited": True,
    "work_seconds": False,
    "read_ahead": False,
    "memory_peak_bytes": False,
    "memory_reserved_bytes": False,
    "memory_allocated_bytes": False,
    "host_memory_bytes": False,
    "ranks": False,
}
"""Of every step, by name; whether it holds figures by name (`loss_by_source.english`)."""

OTHERS: dict[str, tuple[str, ...]] = {
    "machine": (
        "utilisation",
        "memory_used_bytes",
        "memory_total_bytes",
        "temperature_celsius",
        "clock_hertz",
        "power_watts",
        "ecc_errors",
        "processor_share",
        "host_memory_used_bytes",
        "host_memory_total_bytes",
        "network_sent_bytes",
        "network_received_bytes",
        "network_latency_seconds",
    ),
    "module": (
        "weight_rms",
        "gradient_norm",
        "gradient_rms",
        "update_rms",
        "update_to_weight",
        "output_rms",
        "output_largest",
        "attention_logit",
        "attention_entropy",
        "dead_units",
        "logit_rms",
        "logit_largest",
    ),
    "routing": (
        "largest_load",
        "smallest_load",
        "dropped",
        "entropy",
        "auxiliary_loss",
        "z_loss",
    ),
    "evaluation": ("loss", "tokens", "bytes", "perplexity", "bits_per_byte"),
}
"""Of rows of other kinds, which rules name `machine.temperature_celsius`."""


def figure_names() -> list[str]:
    """Every name that can be given; of figures by name the part before the dot."""
    return [*STEP, *(f"{kind}.{name}" for kind, names in OTHERS.items() for name in names)]


def is_figure(name: str) -> bool:
    """Whether rows can hold a figure called `name`."""
    first, _, rest = name.partition(".")
    if first in OTHERS:
        return rest in OTHERS[first]
    return first in STEP and STEP[first] == bool(rest)
