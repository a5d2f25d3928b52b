"""Every metric, panel and alert that leaves a run, declared once.

From it come the Prometheus endpoint, the rules for Alertmanager, Grafana's dashboard and the table in the docs.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from stoker.monitoring.picture import Picture, RankPicture, extreme, number, part, share, slowest
from stoker.monitoring.rules import checkpoint_age

Values = Iterable[tuple[tuple[str, ...], float | None]]
"""Label values, without `run`, and the figure; None where there is none."""
Unit = Literal[
    "", "seconds", "bytes", "bytes_per_second", "tokens_per_second", "ratio", "celsius", "watts", "timestamp"
]


@dataclass(frozen=True)
class Metric:
    """One metric as Prometheus knows it."""

    name: str
    kind: Literal["gauge", "counter"]
    help: str
    read: Callable[[Picture], Values]
    labels: tuple[str, ...] = ()
    """Besides `run`."""
    unit: Unit = ""
    per_rank: bool = False
    """Only where the recipe asks for series of each rank."""


@dataclass(frozen=True)
class Panel:
    """One panel of the dashboard."""

    title: str
    unit: Unit
    queries: tuple[tuple[str, str], ...]
    """Query and legend; `$run` stands for the runs that are chosen."""
    logarithmic: bool = False


def _one(read: Callable[[Picture], float | None]) -> Callable[[Picture], Values]:
    return lambda picture: [((), read(picture))]


def _of_step(name: str) -> Callable[[Picture], Values]:
    return _one(lambda picture: number(picture.first, name))


def _by_name(field: str) -> Callable[[Picture], Values]:
    def read(picture: Picture) -> Values:
        named = part(picture.first, field)
        return [((name,), number(named, name)) for name in named]

    return read


def _counted(name: str) -> Callable[[Picture], Values]:
    return _one(lambda picture: float(picture.counts[name]))


def _worst(read: Callable[[RankPicture], float | None], largest: bool = True) -> Callable[[Picture], Values]:
    def worst(picture: Picture) -> float | None:
        found = extreme(((rank, read(own)) for rank, own in picture.ranks.items()), largest)
        return None if found is None else found[1]

    return _one(worst)


def _each(read: Callable[[RankPicture], float | None]) -> Callable[[Picture], Values]:
    def each(picture: Picture) -> Values:
        layout = picture.layout
        for rank, own in picture.ranks.items():
            stage = layout.coordinate(rank).pp if rank < layout.world_size else 0
            yield (str(rank), str(stage)), read(own)

    return each


def _largest(rows: Mapping[str, Mapping[str, object]], name: str) -> float | None:
    known = [value for row in rows.values() if (value := number(row, name)) is not None]
    return max(known, default=None)


def _held_out(picture: Picture) -> Values:
    return [((source,), number(row, "loss")) for source, row in picture.held_out.items()]


def _step_seconds(picture: Picture) -> float | None:
    return statistics.median(picture.seconds_per_step) if picture.seconds_per_step else None


def _slowest_rank(picture: Picture) -> float | None:
    found = slowest(picture.ranks, picture.recipe.alerts.rules.slow_rank.steps)
    return None if found is None else found[1]


def _network(own: RankPicture) -> float | None:
    return own.network[-1][1] / 8 if own.network else None


def _machine(name: str) -> Callable[[RankPicture], float | None]:
    return lambda own: number(own.machine, name)


def _waited(own: RankPicture) -> float | None:
    waits = [value for value in part(own.step, "waited").values() if isinstance(value, int | float)]
    return float(sum(waits)) if waits else None


METRICS: tuple[Metric, ...] = (
    Metric("stoker_step", "gauge", "Last completed optimizer step.", _of_step("step")),
    Metric(
        "stoker_planned_steps", "gauge", "Optimizer steps the recipe asks for.",
        _one(lambda picture: float(picture.recipe.training.steps)),
    ),
    Metric("stoker_ranks", "gauge", "Ranks that train.", _of_step("ranks")),
    Metric("stoker_loss", "gauge", "Loss of the last step's global batch, nats per token.", _of_step("loss")),
    Metric(
        "stoker_source_loss", "gauge", "Loss of the last step by source, nats per token.",
        _by_name("loss_by_source"), ("source",),
    ),
    Metric("stoker_held_out_loss", "gauge", "Held-out loss by source, nats per token.", _held_out, ("source",)),
    Metric(
        "stoker_loss_moves_in_a_row", "gauge", "Steps in a row in which the loss moved more than the rule allows.",
        _one(lambda picture: float(picture.moves_in_a_row)),
    ),
    Metric("stoker_gradient_norm", "gauge", "Global gradient norm before clipping.", _of_step("gradient_norm")),
    Metric("stoker_update_norm", "gauge", "Norm of the last update of all parameters.", _of_step("update_norm")),
    Metric("stoker_weight_norm", "gauge", "Norm of all parameters.", _of_step("weight_norm")),
    Metric("stoker_learning_rate", "gauge", "Learning rate of the last step.", _of_step("learning_rate")),
    Metric("stoker_loss_scale", "gauge", "Loss scale of fp16.", _of_step("loss_scale")),
    Metric(
        "stoker_largest_attention_logit", "gauge", "Largest attention logit of any module before softmax.",
        _one(lambda picture: _largest(picture.modules, "attention_logit")),
    ),
    Metric(
        "stoker_largest_expert_load_ratio", "gauge", "Load of the busiest expert over the mean of its router.",
        _one(lambda picture: _largest(picture.routing, "largest_load")), unit="ratio",
    ),
    Metric("stoker_tokens_total", "counter", "Tokens trained on.", _of_step("tokens_seen")),
    Metric(
        "stoker_tokens_per_second", "gauge", "Tokens a second of the whole run, over the last steps.",
        _one(lambda picture: picture.tokens_per_second), unit="tokens_per_second",
    ),
    Metric("stoker_step_seconds", "gauge", "Median of the last steps.", _one(_step_seconds), unit="seconds"),
    Metric(
        "stoker_phase_seconds", "gauge", "Duration of each phase of rank 0's last step.", _by_name("seconds"),
        ("phase",), unit="seconds",
    ),
    Metric(
        "stoker_last_progress_timestamp_seconds", "gauge", "Unix time of the last step, or of the start before it.",
        _one(lambda picture: picture.last_progress), unit="timestamp",
    ),
    Metric(
        "stoker_checkpoint_timestamp_seconds", "gauge", "Unix time at which the newest checkpoint was complete.",
        _one(lambda picture: picture.saved_time), unit="timestamp",
    ),
    Metric(
        "stoker_checkpoint_age_ratio", "gauge", "Steps since the newest checkpoint over those between two.",
        _one(checkpoint_age), unit="ratio",
    ),
    Metric(
        "stoker_checkpoints_total", "counter", "Checkpoints saved since the run began.", _counted("checkpoints")
    ),
    Metric(
        "stoker_failed_checkpoints_total", "counter", "Checkpoints that could not be saved.",
        _counted("failed_checkpoints"),
    ),
    Metric(
        "stoker_skipped_steps_total", "counter", "Steps left out while watched.", _counted("skipped_steps")
    ),
    Metric("stoker_rollbacks_total", "counter", "Times the run went back.", _counted("rollbacks")),
    Metric("stoker_failures_total", "counter", "Failures of ranks.", _counted("failures")),
    Metric("stoker_lost_nodes_total", "counter", "Nodes that were lost.", _counted("lost_nodes")),
    Metric(
        "stoker_slowest_rank_ratio", "gauge", "Slowest rank's own work over the others' median, less 1.",
        _one(_slowest_rank), unit="ratio",
    ),
    Metric(
        "stoker_accelerator_utilisation_ratio", "gauge", "Share of time in use, of the least used accelerator.",
        _worst(_machine("utilisation"), largest=False), unit="ratio",
    ),
    Metric(
        "stoker_accelerator_memory_ratio", "gauge", "Share of memory in use, of the fullest accelerator.",
        _worst(lambda own: share(own.machine, "memory_used_bytes", "memory_total_bytes")), unit="ratio",
    ),
    Metric(
        "stoker_host_memory_ratio", "gauge", "Share of host memory in use, of the fullest machine.",
        _worst(lambda own: share(own.machine, "host_memory_used_bytes", "host_memory_total_bytes")), unit="ratio",
    ),
    Metric(
        "stoker_network_bytes_per_second", "gauge", "Sent and received a second by the least busy machine.",
        _worst(_network, largest=False), unit="bytes_per_second",
    ),
    Metric(
        "stoker_network_latency_seconds", "gauge", "Longest round trip of a message between machines.",
        _worst(_machine("network_latency_seconds")), unit="seconds",
    ),
    Metric(
        "stoker_several_nodes", "gauge", "1 where the ranks are on several nodes.",
        _one(lambda picture: float(picture.several_nodes)),
    ),
    Metric(
        "stoker_rank_work_seconds", "gauge", "Each rank's own work in its last step.",
        _each(lambda own: own.work[-1] if own.work else None), ("rank", "stage"), "seconds", per_rank=True,
    ),
    Metric(
        "stoker_rank_wait_seconds", "gauge", "Time of each rank in its last step's collectives.", _each(_waited),
        ("rank", "stage"), "seconds", per_rank=True,
    ),
    Metric(
        "stoker_rank_memory_peak_bytes", "gauge", "Peak memory of each rank.",
        _each(lambda own: number(own.step, "memory_peak_bytes")), ("rank", "stage"), "bytes", per_rank=True,
    ),
    Metric(
        "stoker_rank_host_memory_bytes", "gauge", "Host memory of each rank.",
        _each(lambda own: number(own.step, "host_memory_bytes")), ("rank", "stage"), "bytes", per_rank=True,
    ),
    Metric(
        "stoker_rank_accelerator_utilisation_ratio", "gauge", "Share of time in use of each rank's accelerator.",
        _each(_machine("utilisation")), ("rank", "stage"), "ratio", per_rank=True,
    ),
    Metric(
        "stoker_rank_accelerator_temperature_celsius", "gauge", "Temperature of each rank's accelerator.",
        _each(_machine("temperature_celsius")), ("rank", "stage"), "celsius", per_rank=True,
    ),
    Metric(
        "stoker_rank_accelerator_power_watts", "gauge", "Power drawn by each rank's accelerator.",
        _each(_machine("power_watts")), ("rank", "stage"), "watts", per_rank=True,
    ),
    Metric(
        "stoker_rank_read_ahead_batches", "gauge", "Batches that lay ready when each rank took its last one.",
        _each(lambda own: number(own.step, "read_ahead")), ("rank", "stage"), per_rank=True,
    ),
)  # fmt: skip

OWN_FIGURE, FIRING, FINDINGS, CPU = (
    "stoker_own_rule_value",
    "stoker_alert_firing",
    "stoker_findings",
    "stoker_monitor_cpu_seconds_total",
)
OF_THE_MONITOR: Mapping[str, tuple[Literal["gauge", "counter"], str, tuple[str, ...], Unit]] = {
    OWN_FIGURE: ("gauge", "Figure of each rule of the recipe's own.", ("rule",), ""),
    FIRING: ("gauge", "1 while the monitor's own alert fires.", ("rule", "severity"), ""),
    FINDINGS: ("gauge", "Findings of the diagnosis that last, by severity.", ("severity",), ""),
    CPU: ("counter", "Processor time of the monitor.", (), "seconds"),
}
"""What the monitor knows besides the run's picture: kind, help, labels and unit."""


@dataclass(frozen=True)
class Alarm:
    """One alert for a Prometheus server. `{limit}` and the like come from the recipe's rule of this name."""

    rule: str
    expression: str
    summary: str


ALARMS: tuple[Alarm, ...] = (
    Alarm(
        "accelerator_utilisation",
        "avg_over_time(stoker_accelerator_utilisation_ratio[{window}]) < {limit} "
        "and stoker_accelerator_utilisation_ratio offset {window}",
        "An accelerator of {{{{ $labels.run }}}} is busy {{{{ $value | humanizePercentage }}}} of the time",
    ),
    Alarm(
        "accelerator_memory",
        "stoker_accelerator_memory_ratio > {limit}",
        "An accelerator's memory of {{{{ $labels.run }}}} is {{{{ $value | humanizePercentage }}}} full",
    ),
    Alarm(
        "host_memory",
        "stoker_host_memory_ratio > {limit}",
        "A machine's memory of {{{{ $labels.run }}}} is {{{{ $value | humanizePercentage }}}} full",
    ),
    Alarm(
        "network_rate",
        "8 * max_over_time(stoker_network_bytes_per_second[{window}]) < {limit} "
        "and stoker_network_bytes_per_second offset {window} and stoker_several_nodes == 1",
        "The network of {{{{ $labels.run }}}} carries at most {{{{ $value | humanize }}}}b/s",
    ),
    Alarm(
        "network_latency",
        "stoker_network_latency_seconds > {limit}",
        "A round trip between machines of {{{{ $labels.run }}}} takes {{{{ $value | humanizeDuration }}}}",
    ),
    Alarm(
        "loss_moves",
        "max_over_time(stoker_loss_moves_in_a_row[1m]) >= {times}",
        "The loss of {{{{ $labels.run }}}} jumps: {{{{ $value }}}} steps in a row",
    ),
    Alarm(
        "gradient_norm",
        "max_over_time(stoker_gradient_norm[1m]) > {limit} or stoker_gradient_norm != stoker_gradient_norm",
        "The gradient norm of {{{{ $labels.run }}}} is {{{{ $value | humanize }}}}",
    ),
    Alarm(
        "no_progress",
        "time() - stoker_last_progress_timestamp_seconds > {limit} and "
        "(time() - stoker_last_progress_timestamp_seconds > {steps} * stoker_step_seconds "
        "unless stoker_step >= stoker_planned_steps)",
        "{{{{ $labels.run }}}} has completed no step for {{{{ $value | humanizeDuration }}}}",
    ),
    Alarm(
        "slow_rank",
        "stoker_slowest_rank_ratio > {limit}",
        "A rank of {{{{ $labels.run }}}} works {{{{ $value | humanizePercentage }}}} longer than the others",
    ),
    Alarm(
        "checkpoint_age",
        "stoker_checkpoint_age_ratio > {limit}",
        "The newest checkpoint of {{{{ $labels.run }}}} is {{{{ $value | humanize }}}} intervals old",
    ),
    Alarm(
        "finding",
        'sum by (run) (stoker_findings{{severity=~"{severities}"}}) > 0',
        "The diagnosis of {{{{ $labels.run }}}} has {{{{ $value }}}} findings: stoker diagnose RUN",
    ),
)

_RUN = '{run=~"$run"}'
PANELS: tuple[Panel, ...] = (
    Panel("Loss", "", ((f"stoker_loss{_RUN}", "{{run}}"),)),
    Panel("Loss by source", "", ((f"stoker_source_loss{_RUN}", "{{source}}"),)),
    Panel("Held-out loss", "", ((f"stoker_held_out_loss{_RUN}", "{{source}}"),)),
    Panel("Gradient norm", "", ((f"stoker_gradient_norm{_RUN}", "{{run}}"),), logarithmic=True),
    Panel("Learning rate", "", ((f"stoker_learning_rate{_RUN}", "{{run}}"),)),
    Panel("Step", "", ((f"stoker_step{_RUN}", "done"), (f"stoker_planned_steps{_RUN}", "planned"))),
    Panel("Tokens a second", "tokens_per_second", ((f"stoker_tokens_per_second{_RUN}", "{{run}}"),)),
    Panel("Tokens", "", ((f"stoker_tokens_total{_RUN}", "{{run}}"),)),
    Panel("Seconds by phase", "seconds", ((f"stoker_phase_seconds{_RUN}", "{{phase}}"),)),
    Panel("Step time", "seconds", ((f"stoker_step_seconds{_RUN}", "{{run}}"),)),
    Panel(
        "Since the last step",
        "seconds",
        ((f"time() - stoker_last_progress_timestamp_seconds{_RUN}", "{{run}}"),),
    ),
    Panel("Checkpoint age", "ratio", ((f"stoker_checkpoint_age_ratio{_RUN}", "{{run}}"),)),
    Panel(
        "What happened",
        "",
        (
            (f"stoker_failures_total{_RUN}", "failures"),
            (f"stoker_rollbacks_total{_RUN}", "rollbacks"),
            (f"stoker_skipped_steps_total{_RUN}", "steps left out"),
        ),
    ),
    Panel("Findings", "", ((f"stoker_findings{_RUN}", "{{severity}}"),)),
    Panel("Alerts", "", ((f"stoker_alert_firing{_RUN}", "{{rule}}"),)),
    Panel("Host memory", "ratio", ((f"stoker_host_memory_ratio{_RUN}", "{{run}}"),)),
    Panel(
        "Monitor's share of a core",
        "ratio",
        ((f"rate(stoker_monitor_cpu_seconds_total{_RUN}[1m])", "{{run}}"),),
    ),
)
ACCELERATOR_PANELS: tuple[Panel, ...] = (
    Panel("Accelerator use", "ratio", ((f"stoker_accelerator_utilisation_ratio{_RUN}", "{{run}}"),)),
    Panel("Accelerator memory", "ratio", ((f"stoker_accelerator_memory_ratio{_RUN}", "{{run}}"),)),
)
SEVERAL_RANKS_PANELS: tuple[Panel, ...] = (
    Panel("Slowest rank", "ratio", ((f"stoker_slowest_rank_ratio{_RUN}", "{{run}}"),)),
    Panel(
        "Network",
        "bytes_per_second",
        ((f"stoker_network_bytes_per_second{_RUN}", "{{run}}"),),
    ),
)
"""Panels that only some runs have figures for."""
