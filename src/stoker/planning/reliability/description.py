"""A training run as it is described to the simulator: how large, what breaks, and how it recovers."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from stoker.planning.reliability.kinds import USUAL_KINDS, USUAL_PER_NODE, Kind
from stoker.planning.reliability.spacing import Spacing
from stoker.recipe.section import Section

MOST_ACCELERATORS = 1_000_000
OPTIMAL = "optimal"
LONGEST_SECONDS = 30 * 86400.0
_NODES_PER_SPARE = 128
_USUAL_DAYS = 60.0
_YEAR_HOURS = 366 * 24.0
_SHORTEST_HOURS = 0.001

Seconds = Annotated[float, Field(ge=0, le=LONGEST_SECONDS, allow_inf_nan=False)]
Interval = Annotated[float, Field(gt=0, le=LONGEST_SECONDS, allow_inf_nan=False)]
Hours = Annotated[float, Field(ge=_SHORTEST_HOURS, le=_YEAR_HOURS, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)]


class Failures(Section):
    """What interrupts the run, unasked."""

    per_1000_node_days: float | None = Field(default=None, ge=0, le=1e7, allow_inf_nan=False)
    """All kinds that have a rate per node, together, in 1,000 days of one of this run's nodes. It scales them and
    keeps their shares. By default they are taken as they are."""
    detection_factor: float = Field(default=1.0, ge=0, le=10, allow_inf_nan=False)
    """Every kind is found in so many times the seconds that it (or `recovery`) says; 0.5 halves all."""
    spacing: Spacing = "random"
    """As failures are injected in a drill: `regular` at equal intervals, `uniform` at intervals between nothing and
    twice the mean. Only with `replicas.mode: per_step`."""
    kinds: tuple[Kind, ...] = Field(default=USUAL_KINDS, min_length=1, max_length=100)

    @model_validator(mode="after")
    def _scales_something(self) -> Failures:
        if self.per_1000_node_days and not any(kind.per_1000_node_days for kind in self.kinds):
            raise ValueError(
                "per_1000_node_days: expected a kind with a rate per node, which this scales, got none; give the "
                "kinds per_1000_node_days, or leave it out"
            )
        return self


class Recovery(Section):
    """From a failure to the next step."""

    detection_seconds: Seconds = 60.0
    """Until a failure is known and its restart begins, for kinds that do not say."""
    restart_seconds: Seconds = 300.0
    """Processes, groups and compilation anew, without loading a checkpoint."""
    restart_seconds_per_1000_nodes: Seconds = 0.0
    """What each further 1,000 nodes add to every restart."""


class Checkpoint(Section):
    """A copy of the training state that is taken again and again, and where it lies."""

    where: Literal["memory", "peer", "store"] = "store"
    """`memory` of the own node outlives a process, that of a `peer` outlives a node, a `store` (disks, objects)
    outlives everything."""
    interval_seconds: Interval | Literal["optimal"] = "optimal"
    """Training between two copies, seconds; `optimal` takes what the formula says. Rounded to whole steps."""
    stall_seconds: Seconds = 5.0
    """The run stands still for each copy."""
    write_seconds: Seconds = 60.0
    """From its begin until a copy can be restored; a stall at least."""
    load_seconds: Seconds = 60.0
    """To restore it, part of a restart."""

    @model_validator(mode="after")
    def _is_written_after_its_stall(self) -> Checkpoint:
        if self.write_seconds < self.stall_seconds:
            raise ValueError(
                f"write_seconds: expected stall_seconds ({self.stall_seconds:g}) or more, got "
                f"{self.write_seconds:g}; a copy cannot be complete while the run still stands still for it"
            )
        if isinstance(self.interval_seconds, float) and self.interval_seconds < self.write_seconds:
            raise ValueError(
                f"interval_seconds: expected write_seconds ({self.write_seconds:g}) or more, got "
                f"{self.interval_seconds:g}; the next copy would begin before this one is complete"
            )
        return self


class Spares(Section):
    """Nodes that stand ready, and what becomes of broken ones."""

    count: int | None = Field(default=None, ge=0, le=MOST_ACCELERATORS)
    """By default one for each 128 nodes and two more."""
    swap_seconds: Seconds = 60.0
    """To put a node that stands ready in a broken one's place. Waiting until one stands ready is counted apart."""
    repair_hours: Hours = 24.0
    """Mean time until a broken node stands ready again (exponential; all are repaired at once)."""
    replace_hours: Hours | None = None
    """Mean time to get a node from elsewhere when none stands ready. By default only a repair brings one."""


class Replicas(Section):
    """Data-parallel groups of nodes, each with a whole copy of the model, and what happens when one is missing."""

    count: int | None = Field(default=None, ge=1, le=MOST_ACCELERATORS)
    """By default one for each node."""
    mode: Literal["fixed", "shrink", "per_step"] = "fixed"
    """`fixed`: the run waits for a node. `shrink`: it restarts with fewer groups, and with more again when nodes
    are back. `per_step`: the others go on without the group, which joins again at a step; that step's work is
    all that is lost."""
    minimum: int = Field(default=1, ge=1)
    """With fewer groups than this the run waits."""
    batch: Literal["shrinks", "kept"] = "shrinks"
    """With fewer groups, a step of the same time makes fewer sequences, or the same batch takes longer."""
    reconfigure_seconds: Seconds = 1.0
    """With `per_step`: the groups that remain find each other again after each loss and each return."""
    heal_seconds: Seconds = 3.8
    """With `per_step`: by so much the step is longer in which a group comes back, because the others wait at its
    end for the one that is still being sent weights. As in the run of examples/simulate/torchft-60s.yaml."""


class Stragglers(Section):
    """What makes a step last longer than the average rank needs: it ends when the slowest has ended."""

    spread: Share = 0.005
    """How ranks differ for good: the standard deviation of their step times over the mean (normal)."""
    jitter: Share = 0.003
    """How a rank's step time varies from step to step: standard deviation over the mean (normal)."""
    network_jitter: Share = 0.0005
    """Mean of a delay that hits each node anew in each step, over the step time (exponential)."""
    slow_nodes_per_1000_node_days: float = Field(default=0.2, ge=0, le=1e6, allow_inf_nan=False)
    """Nodes that become slow without failing, in 1,000 days of a node."""
    slowdown: Share = 0.1
    """How much longer every step takes while such a node is in the run."""
    found_after_hours: Hours = 6.0
    """Mean time until it is found and replaced at a checkpoint (exponential)."""


class Planned(Section):
    """Interruptions that are announced. They are made right after a checkpoint, so no work is lost."""

    per_day: float = Field(default=0.0, ge=0, le=1000, allow_inf_nan=False)
    pause_seconds: Seconds = 600.0
    """From the end of training to the begin of the restart."""


class RunDescription(Section):
    """A run. Times are in the unit that each name ends with."""

    name: str = Field(default="run", min_length=1, max_length=100)
    accelerators: int = Field(default=16384, ge=1, le=MOST_ACCELERATORS)
    """In the run, without spares."""
    accelerators_per_node: int = Field(default=USUAL_PER_NODE, ge=1, le=1024)
    """A node is what fails and is replaced as one."""
    price_per_accelerator_hour: float = Field(default=2.0, ge=0, le=1e6, allow_inf_nan=False)
    """In dollars, for those of spare nodes too."""
    step_seconds: float = Field(default=10.0, gt=0, le=86400, allow_inf_nan=False)
    """A step of an average rank, undisturbed."""
    ideal_days: float | None = Field(default=None, ge=1 / 1440, le=3660, allow_inf_nan=False)
    """Work: days of training at that speed. By default 60, where `wall_days` is not given."""
    wall_days: float | None = Field(default=None, ge=1 / 1440, le=3660, allow_inf_nan=False)
    """Days on the wall clock to look at, in place of `ideal_days`."""
    failures: Failures = Failures()
    recovery: Recovery = Recovery()
    checkpoints: tuple[Checkpoint, ...] = Field(default=(Checkpoint(),), max_length=3)
    """From the nearest (memory) to the farthest (store); each farther one is taken at some of the nearer ones."""
    spares: Spares = Spares()
    replicas: Replicas = Replicas()
    stragglers: Stragglers = Stragglers()
    planned: Planned = Planned()

    def with_derived(self) -> RunDescription:
        """The same run with the values that follow from others written out."""
        spares = self.spares.model_copy(update={"count": self.spare_count})
        replicas = self.replicas.model_copy(update={"count": self.replica_count})
        return self.model_copy(update={"ideal_days": self.work_days, "spares": spares, "replicas": replicas})

    @property
    def work_days(self) -> float | None:
        """Days of undisturbed training to be done; none where the run is described by its wall time."""
        return None if self.wall_days else self.ideal_days or _USUAL_DAYS

    @property
    def nodes(self) -> int:
        """In the run, without spares."""
        return self.accelerators // self.accelerators_per_node

    @property
    def replica_count(self) -> int:
        """Data-parallel groups."""
        return self.replicas.count or self.nodes

    @property
    def spare_count(self) -> int:
        """Nodes that stand ready when none is broken."""
        usual = min(self.nodes, self.nodes // _NODES_PER_SPARE + 2)
        return usual if self.spares.count is None else self.spares.count

    @model_validator(mode="after")
    def _is_a_whole_number_of_nodes(self) -> RunDescription:
        if self.accelerators % self.accelerators_per_node:
            below = self.accelerators - self.accelerators % self.accelerators_per_node
            above = below + self.accelerators_per_node
            raise ValueError(
                f"accelerators: expected a multiple of accelerators_per_node ({self.accelerators_per_node}), got "
                f"{self.accelerators}; take {f'{below} or {above}' if below else above}"
            )
        if self.spare_count > self.nodes:
            raise ValueError(
                f"spares.count: expected at most the run's {self.nodes} nodes, got {self.spare_count}; "
                "a second run would need no more"
            )
        if self.ideal_days is not None and self.wall_days is not None:
            raise ValueError("wall_days: expected one of ideal_days and wall_days, got both; keep one of the two")
        return self

    @model_validator(mode="after")
    def _has_groups_of_whole_nodes(self) -> RunDescription:
        count = self.replica_count
        if count > self.nodes or self.nodes % count:
            raise ValueError(
                f"replicas.count: expected a divisor of the run's {self.nodes} nodes, got {count}; "
                "a group is made of whole nodes"
            )
        if self.replicas.mode == "per_step" and count < 2:
            raise ValueError(
                "replicas.count: expected 2 or more with `mode: per_step`, got 1; there are no others to go on"
            )
        if self.replicas.minimum > count:
            raise ValueError(
                f"replicas.minimum: expected at most replicas.count ({count}), got {self.replicas.minimum}"
            )
        return self

    @model_validator(mode="after")
    def _has_checkpoints_to_return_to(self) -> RunDescription:
        order = [("memory", "peer", "store").index(checkpoint.where) for checkpoint in self.checkpoints]
        if order != sorted(set(order)):
            raise ValueError(
                "checkpoints: expected each of memory, peer and store at most once and in this order, got "
                f"{', '.join(checkpoint.where for checkpoint in self.checkpoints)}"
            )
        per_step = self.replicas.mode == "per_step"
        outlived = {"process": 0, "node": 1, "job": 2}
        farthest = order[-1] if order else -1
        for kind in self.failures.kinds:
            rate = kind.per_day or kind.per_1000_node_days
            if (
                rate
                and outlived[kind.loses] > farthest
                and not (per_step and kind.loses != "job" and not kind.silent)
            ):
                raise ValueError(
                    f"checkpoints: failures of the kind {kind.name!r} lose a {kind.loses}, and no copy outlives "
                    f"that; add `where: {('memory', 'peer', 'store')[outlived[kind.loses]]}`"
                )
        if self.failures.spacing != "random" and not (per_step and not self.checkpoints):
            raise ValueError(
                f"failures.spacing: `{self.failures.spacing}` is for failures injected into replica groups: it "
                "needs `replicas.mode: per_step` and `checkpoints: []`; take `random`"
            )
        return self
