"""The section `recovery`: what the supervisor of a run takes for a failure, and what it does about it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from stoker.recipe.section import Section

AfterTermination = Literal["stop", "requeue"]
Response = Literal["wait", "skip_step", "rollback", "ask"]
"""`wait` goes on and records it. `skip_step` leaves the update out. `rollback` goes back to the last checkpoint
before the cause, and leaves out the steps whose documents are at fault. `ask` stops with exit code 76, unsaved."""


class Recovery(Section):
    """How a run that fails goes on by itself, and when it gives up."""

    copy_every: int = Field(default=0, ge=0)
    """Steps between copies of weights and optimizer state in host memory, from which a failed run goes on
    without the disk; 0 makes none. Two copies are kept."""
    copy_gradients_every: int = Field(default=0, ge=0)
    """Micro-batches between copies of the gradients so far in host memory, from which a step that a failure cut
    short goes on; 0 makes none. Needs `copy_every: 1`. Two copies are kept."""
    same_failure: int = Field(default=3, ge=1)
    """How often the same step may fail in the same way before the run gives up."""
    longest_backoff_seconds: float = Field(default=60.0, ge=0)
    """Longest wait before a restart. The first restart is immediate; failures without a step between them wait
    1, 2, 4 … seconds."""
    hang_steps: float = Field(default=3.0, gt=0)
    """A rank that leaves no mark for so many median steps hangs, and so does …"""
    hang_seconds: float = Field(default=5.0, gt=0)
    """… nobody before so many seconds."""
    start_seconds: float = Field(default=600.0, gt=0)
    """How long a rank may be silent while it starts, compiles, or first does what is done only now and then."""
    replay: bool = True
    """Compute a step that is not finite or stands out once more from the same bits, on the same rank and on another
    one, before anything is updated: what does not come out again was the machine's fault and not the documents'."""
    on_non_finite: Literal["skip_step", "rollback", "ask"] = "skip_step"
    """What to do when the loss or the gradient norm is NaN or infinite; nothing is updated by it in any case."""
    on_spike: Response = "wait"
    """What to do when the loss or the gradient norm stands out from its recent past."""
    on_divergence: Response = "rollback"
    """What to do when it has stood out for `divergence_steps` steps in a row."""
    on_large_update: Literal["wait", "rollback"] = "rollback"
    """What to do when the norm of an update, over the learning rate that was planned, stands out from its recent
    past: go back to the last checkpoint and do the steps again, once; what comes out again is gone on with."""
    on_finding: Literal["wait", "rollback", "ask"] = "wait"
    """What to do when the monitor of a run finds something for which going back is the remedy: `rollback` goes back
    to the last checkpoint before it, and leaves out the steps at fault."""
    divergence_steps: int = Field(default=10, ge=2)
    window: int = Field(default=32, ge=8)
    """How many unremarkable steps the recent past holds; half of them must be there before anything stands out."""
    deviations: float = Field(default=8.0, gt=0)
    """How many robust standard deviations of the logarithm above the median stand out."""
    lower_learning_rate: float = Field(default=1.0, gt=0, le=1)
    """After going back the learning rate is multiplied by this …"""
    lowered_steps: int = Field(default=100, ge=1)
    """… for so many steps."""
    most_interventions: int = Field(default=20, ge=0)
    """Steps left out and times gone back, together, that a run may take by itself; beyond, it asks."""
    compare_every: int = Field(default=100, ge=0)
    """Steps between comparisons of weights and optimizer state over `dp_replicate`, bit for bit; also before every
    checkpoint. 0 compares never."""
    spot_check_every: int = Field(default=250, ge=0)
    """Steps between spot checks. In each every data-parallel rank's first micro-batch is computed once more by its
    neighbour, and the bits of losses and gradients are compared before the update. 0 checks never."""
    grace_seconds: float = Field(default=30.0, gt=0)
    """How long after SIGTERM this machine's scheduler kills: Slurm's KillWait, Kubernetes'
    terminationGracePeriodSeconds."""
    on_sigterm: AfterTermination = "stop"
    """`stop` ends with exit code 143 once the state is saved; `requeue` with 75, which asks the scheduler for
    another turn."""
    ranks_per_node: int | None = Field(default=None, ge=1)
    """Ranks on each node of a run over several; by default a node's CUDA devices, on processors the ranks divided
    by the nodes."""
    node_wait_seconds: float = Field(default=10.0, ge=0)
    """How long a run that has lost a node, and has no other to take its place, waits for one before it goes on with
    fewer data-parallel ranks."""
