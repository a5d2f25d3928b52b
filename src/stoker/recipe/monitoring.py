"""The sections `alerts` and `exporters`: when somebody is told of a run, and who else gets its figures."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from stoker.recipe.figures import figure_names, is_figure
from stoker.recipe.section import Section

Severity = Literal["warning", "critical"]


class Rule(Section):
    """What every rule has."""

    enabled: bool = True
    severity: Severity = "warning"
    for_seconds: float = Field(default=0.0, ge=0)
    """How long the condition must hold before the alert fires."""


class AcceleratorUtilisation(Rule):
    """The mean use of some rank's accelerator is low."""

    limit: float = Field(default=0.5, gt=0, le=1)
    """Share of the time; the alert fires below it."""
    for_seconds: float = Field(default=600.0, ge=0)


class MemoryShare(Rule):
    """Some rank's memory is nearly full."""

    limit: float = Field(default=0.9, gt=0, le=1)
    """Share of all memory; the alert fires above it."""
    for_seconds: float = Field(default=60.0, ge=0)


class NetworkRate(Rule):
    """Of a run over several nodes: the network carries little even at its busiest."""

    limit: float = Field(default=100e9, gt=0)
    """Bits a second, sent and received together; the alert fires when no interval of `for_seconds` reached it."""
    for_seconds: float = Field(default=600.0, ge=0)


class NetworkLatency(Rule):
    """Messages between nodes take long."""

    limit: float = Field(default=5e-3, gt=0)
    """Seconds; the alert fires above it."""
    for_seconds: float = Field(default=60.0, ge=0)


class LossMoves(Rule):
    """The loss jumps, up or down, several times in a row."""

    limit: float = Field(default=0.15, gt=0)
    """Share of the loss of the step before."""
    times: int = Field(default=3, ge=1)
    after_step: int = Field(default=20, ge=0)
    """A loss that falls from its initial value moves a lot, and is no reason to call anybody."""


class GradientNorm(Rule):
    """The gradient norm is very large, or not a number."""

    limit: float = Field(default=1e5, gt=0)
    severity: Severity = "critical"


class NoProgress(Rule):
    """No step has been completed for long."""

    limit: float = Field(default=600.0, gt=0)
    """Seconds since the last step …"""
    steps: float = Field(default=20.0, gt=0)
    """… which must also be this many times the usual step."""
    severity: Severity = "critical"


class SlowRank(Rule):
    """Some rank's own work takes longer than the others'."""

    limit: float = Field(default=0.2, gt=0)
    """Share above the median of the ranks, in the median of the last `steps`."""
    steps: int = Field(default=16, ge=3)
    for_seconds: float = Field(default=30.0, ge=0)


class CheckpointAge(Rule):
    """The newest checkpoint is old."""

    limit: float = Field(default=2.5, gt=1)
    """Multiples of `checkpoint.every` in steps since it."""
    severity: Severity = "critical"


class FindingSeverity(Rule):
    """The diagnosis of the run has a finding of this severity that lasts."""

    limit: Literal["warning", "alarm"] = "alarm"
    severity: Severity = "critical"


class BuiltIn(Section):
    """Rules that every run has. What a platform does not measure is not judged."""

    accelerator_utilisation: AcceleratorUtilisation = AcceleratorUtilisation()
    accelerator_memory: MemoryShare = MemoryShare()
    host_memory: MemoryShare = MemoryShare()
    network_rate: NetworkRate = NetworkRate()
    network_latency: NetworkLatency = NetworkLatency()
    loss_moves: LossMoves = LossMoves()
    gradient_norm: GradientNorm = GradientNorm()
    no_progress: NoProgress = NoProgress()
    slow_rank: SlowRank = SlowRank()
    checkpoint_age: CheckpointAge = CheckpointAge()
    finding: FindingSeverity = FindingSeverity()


class OwnRule(Rule):
    """A rule on any recorded figure."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=64)
    """Lower-case words; no built-in rule's name."""
    figure: str
    """`gradient_norm`, `loss_by_source.english`, `machine.temperature_celsius`, `module.attention_logit`. Of one
    that several ranks or modules have, the largest counts above a limit and the smallest below one."""
    above: float | None = None
    """The alert fires above it, and when the figure is not a number."""
    below: float | None = None
    """The alert fires below it."""

    @field_validator("figure")
    @classmethod
    def _is_recorded(cls, figure: str) -> str:
        if not is_figure(figure):
            names = figure_names()
            near = get_close_matches(figure, names, n=3, cutoff=0.5)
            near = near or [name for name in names if figure.split(".")[0] in name][:3]
            hint = f"; near it: {', '.join(near)}" if near else f"; there are {', '.join(names)}"
            if figure in names:
                hint = f"; it holds figures by name: write {figure}.NAME"
            raise ValueError(f"no row of the record holds a figure {figure!r}{hint}")
        return figure

    @model_validator(mode="after")
    def _has_one_limit(self) -> OwnRule:
        if (self.above is None) == (self.below is None):
            raise ValueError(f"rule {self.name!r} needs either `above` or `below`")
        return self


class Alerts(Section):
    """Who is told when something is wrong with a run, and when."""

    enabled: bool = True
    """Judge the rules, and diagnose, while the run is under way."""
    diagnose_seconds: float = Field(default=10.0, gt=0)
    """Shortest time between two diagnoses of the newest rows."""
    share_of_core: float = Field(default=0.02, gt=0, le=1)
    """The most that all of it takes of one core, over minutes; looks become rarer where it would take more."""
    rules: BuiltIn = BuiltIn()
    own: tuple[OwnRule, ...] = ()
    webhook: str | None = None
    """URL that gets a JSON POST for each notice, or `$NAME` of an environment variable that holds it. Only its
    scheme and host are ever shown."""
    command: tuple[str, ...] = ()
    """Program and arguments that get each notice as JSON on stdin; no shell is involved."""
    log: bool = True
    """Say each notice on the command's stderr."""
    timeout_seconds: float = Field(default=10.0, gt=0)
    """How long a webhook or a command may take for one notice."""
    repeat_seconds: float = Field(default=14400.0, ge=60)
    """Time between notices of an alert that goes on firing."""
    resolved: bool = True
    """Give notice also when an alert is over."""

    @field_validator("webhook")
    @classmethod
    def _is_url(cls, webhook: str | None) -> str | None:
        if webhook is None or (webhook.startswith("$") and webhook[1:].isidentifier()):
            return webhook
        parts = urlsplit(webhook)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("expected http://… or https://…, or $NAME of an environment variable that holds it")
        return webhook

    @model_validator(mode="after")
    def _names_differ(self) -> Alerts:
        taken = set(BuiltIn.model_fields)
        for position, rule in enumerate(self.own):
            if rule.name in taken:
                raise ValueError(f"own[{position}]: there is a rule {rule.name!r} already; choose another name")
            taken.add(rule.name)
        return self

    @property
    def tells_somebody(self) -> bool:
        """Whether notices go anywhere but to the log."""
        return self.webhook is not None or bool(self.command)


class Prometheus(Section):
    """An endpoint that a Prometheus server scrapes. Needs `stoker[prometheus]`."""

    enabled: bool = False
    host: str = "127.0.0.1"
    """Address to listen on; `0.0.0.0` lets other machines in."""
    port: int = Field(default=9464, ge=0, le=65535)
    """0 takes a free one, and so does a port that is taken; the run says which."""
    per_rank: bool = False
    """Also series of each rank: as many as there are ranks."""


class JsonLogs(Section):
    """A file with one JSON object a line, in the field names of the Elastic Common Schema."""

    enabled: bool = False
    path: str | None = None
    """File to append to; by default `log.jsonl` in the run's folder."""
    every: int = Field(default=10, ge=1)
    """Steps from one line to the next. Events have a line each."""


class TensorBoard(Section):
    """Event files for TensorBoard. Needs `stoker[tensorboard]`."""

    enabled: bool = False
    folder: str | None = None
    """Where they are written; by default `tensorboard` in the run's folder."""
    every: int = Field(default=1, ge=1)
    """Steps from one point to the next."""


class WandB(Section):
    """A run of Weights & Biases. Needs `stoker[wandb]`."""

    enabled: bool = False
    mode: Literal["online", "offline"] = "online"
    """`offline` writes into the run's folder `wandb`, for `wandb sync` later."""
    project: str = "stoker"
    entity: str | None = None
    every: int = Field(default=1, ge=1)
    """Steps from one point to the next."""


class MLflow(Section):
    """A run of MLflow. Needs `stoker[mlflow]`."""

    enabled: bool = False
    tracking_uri: str | None = None
    """`http://…` of a tracking server, or `sqlite:///FILE`; by default `mlflow.db` in the run's folder."""
    experiment: str = "stoker"
    every: int = Field(default=1, ge=1)
    """Steps from one point to the next."""

    @field_validator("tracking_uri")
    @classmethod
    def _is_store(cls, uri: str | None) -> str | None:
        if uri is not None and ("://" not in uri or uri.startswith("file:")):
            raise ValueError(
                f"MLflow keeps metrics in a database or on a server, not in a folder: expected http://… or "
                f"sqlite:///FILE, got {uri!r}"
            )
        return uri


class Exporters(Section):
    """Who else gets the figures of a run. All are off by default, and none can hold up the training."""

    prometheus: Prometheus = Prometheus()
    json_logs: JsonLogs = JsonLogs()
    tensorboard: TensorBoard = TensorBoard()
    wandb: WandB = WandB()
    mlflow: MLflow = MLflow()

    @property
    def any_enabled(self) -> bool:
        """Whether anything is to be exported."""
        return any(
            one.enabled for one in (self.prometheus, self.json_logs, self.tensorboard, self.wandb, self.mlflow)
        )
