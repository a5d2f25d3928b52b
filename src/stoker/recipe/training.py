"""The `training` section: how long, how large a step, with which optimizer and schedule."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from stoker.recipe.memory import Memory
from stoker.recipe.section import Section

Precision = Literal["fp32", "bf16", "fp16", "pure_bf16"]
MOST_SEQUENCES = 10**7
"""In a step: batches are laid out before they are trained on, and one of so many is a slip of the pen."""


class AdamW(Section):
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019)."""

    name: Literal["adamw"] = "adamw"
    learning_rate: float = Field(default=3e-4, ge=0, allow_inf_nan=False)
    beta1: float = Field(default=0.9, ge=0, lt=1)
    beta2: float = Field(default=0.95, ge=0, lt=1)
    epsilon: float = Field(default=1e-8, gt=0)
    weight_decay: float = Field(default=0.1, ge=0)


class Muon(Section):
    """Momentum orthogonalised by Newton-Schulz for matrices in the blocks (Jordan 2024); AdamW for the rest."""

    name: Literal["muon"]
    learning_rate: float = Field(default=0.02, ge=0, allow_inf_nan=False)
    """For the matrices in the blocks."""
    momentum: float = Field(default=0.95, ge=0, lt=1)
    newton_schulz_steps: int = Field(default=5, ge=1)
    weight_decay: float = Field(default=0.1, ge=0)
    adamw_learning_rate: float = Field(default=3e-4, ge=0, allow_inf_nan=False)
    """For embeddings, head, norms and biases, which AdamW trains; follows the same schedule."""
    beta1: float = Field(default=0.9, ge=0, lt=1)
    beta2: float = Field(default=0.95, ge=0, lt=1)
    epsilon: float = Field(default=1e-8, gt=0)


class Adafactor(Section):
    """Adafactor with factored second moments (Shazeer & Stern 2018), with the given learning rate."""

    name: Literal["adafactor"]
    learning_rate: float = Field(default=1e-3, ge=0, allow_inf_nan=False)
    decay_exponent: float = Field(default=0.8, gt=0, le=1)
    """The second moment's decay at step t is 1 - t^-exponent."""
    clip_threshold: float = Field(default=1.0, gt=0)
    """Updates whose root mean square exceeds this are scaled down to it."""
    epsilon: float = Field(default=1e-30, gt=0)
    weight_decay: float = Field(default=0.0, ge=0)


class Lion(Section):
    """Sign of interpolated momentum (Chen et al. 2023)."""

    name: Literal["lion"]
    learning_rate: float = Field(default=1e-4, ge=0, allow_inf_nan=False)
    beta1: float = Field(default=0.9, ge=0, lt=1)
    beta2: float = Field(default=0.99, ge=0, lt=1)
    weight_decay: float = Field(default=0.1, ge=0)


def _adamw_unless_named(given: Any) -> Any:
    return {"name": "adamw", **given} if isinstance(given, dict) and "name" not in given else given


Optimizer = Annotated[
    AdamW | Muon | Adafactor | Lion, Field(discriminator="name"), BeforeValidator(_adamw_unless_named)
]


class Schedule(Section):
    """The learning rate as a factor of the optimizer's, a function of the step alone."""

    name: Literal["cosine", "linear", "wsd", "inverse_sqrt", "constant"] = "cosine"
    """`wsd` is warm-up, stable, decay (Hu et al. 2024): constant, then down over `decay_steps`."""
    warmup_steps: int = Field(default=0, ge=0)
    """The factor rises linearly from 1/warmup_steps to 1 over this many steps."""
    minimum: float = Field(default=0.1, ge=0, le=1)
    """Factor at the last step of cosine, linear and wsd."""
    decay_steps: int | None = Field(default=None, ge=1)
    """Length of wsd's final decay; by default a tenth of the steps."""


class BatchRamp(Section):
    """From `step` on (the first step is 1), a step holds `global_batch_size` sequences."""

    step: int = Field(ge=2)
    global_batch_size: int = Field(ge=1, le=MOST_SEQUENCES)


class LossScale(Section):
    """Dynamic loss scaling for fp16 (Micikevicius et al. 2018)."""

    initial: float = Field(default=2.0**16, gt=0)
    growth_interval: int = Field(default=2000, ge=1)
    """Steps without an overflow after which the scale doubles."""
    minimum: float = Field(default=1.0, gt=0)
    """Below this the run stops as non-finite: the gradients themselves are broken."""


def _shorter(warmup: int, decay: int, steps: int) -> str:
    """The change of one of the two with which both fit into `steps`."""
    return f"decay_steps={steps - warmup}" if warmup < steps else f"warmup_steps={max(0, steps - decay)}"


class Training(Section):
    """One training run."""

    steps: int = Field(ge=1, le=10**12)
    """Optimizer steps."""
    sequence_length: int = Field(ge=2, le=10**9)
    """Tokens per sequence."""
    global_batch_size: int = Field(ge=1, le=MOST_SEQUENCES)
    """Sequences per optimizer step, over all ranks."""
    batch_ramp: tuple[BatchRamp, ...] = ()
    """Later sizes of the global batch, in order of step; `global_batch_size` holds until the first."""
    micro_batch_size: int | None = Field(default=None, ge=1)
    """Sequences per forward pass on one rank; derived when not given. Accumulation follows from it."""
    optimizer: Optimizer = AdamW()
    schedule: Schedule = Schedule()
    decay_all_parameters: bool = False
    """Apply weight decay to norms, biases and embeddings too."""
    gradient_clip: float | None = Field(default=1.0, gt=0)
    """Largest global gradient norm; larger gradients are scaled down to it."""
    precision: Precision = "fp32"
    """`bf16` and `fp16` compute in 16 bits with fp32 weights; `pure_bf16` keeps the weights in 16 bits too."""
    gradient_reduction: Literal["fp32", "bf16"] = "fp32"
    """Type in which gradients of different ranks are summed: bf16 sends half the bytes and rounds each sum."""
    loss_scale: LossScale = LossScale()
    document_mask: bool = True
    """A token attends only to tokens of its own document."""
    compile: bool = False
    """Compile each block with torch.compile."""
    memory: Memory = Memory()
    deterministic: Literal["same_layout", "across_layouts"] = "same_layout"
    """`same_layout`: the same recipe and layout give the same bits. `across_layouts`: so does every split of the
    batch over dp_replicate, dp_shard and accumulation, at the price of more memory and communication."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: int | None = Field(default=None, ge=1, le=1024)
    """Processor threads per rank; by default the processors divided by the ranks of this machine."""
    timeout_seconds: float = Field(default=600, gt=0)
    """A collective that takes longer ends the run."""

    @model_validator(mode="after")
    def _sizes_fit(self) -> Training:
        steps = [ramp.step for ramp in self.batch_ramp]
        if steps != sorted(set(steps)):
            raise ValueError("batch_ramp must be ordered by step, each step once")
        if self.schedule.warmup_steps > self.steps:
            raise ValueError(
                f"schedule.warmup_steps ({self.schedule.warmup_steps}) exceeds steps ({self.steps}): "
                "the learning rate would never arrive; give fewer as well, such as "
                f"training.schedule.warmup_steps={self.steps // 10}"
            )
        if self.deterministic == "across_layouts" and isinstance(self.optimizer, Adafactor):
            raise ValueError(
                "deterministic: across_layouts is not possible with adafactor, whose means over rows and columns "
                "are rounded as they are divided; use adamw, muon or lion"
            )
        decay = self.schedule.decay_steps if self.schedule.name == "wsd" else None
        if decay is not None and self.schedule.warmup_steps + decay > self.steps:
            raise ValueError(
                f"schedule.warmup_steps ({self.schedule.warmup_steps}) and decay_steps ({decay}) together exceed "
                f"steps ({self.steps}); give fewer of one as well, such as "
                f"training.schedule.{_shorter(self.schedule.warmup_steps, decay, self.steps)}"
            )
        return self

    @model_validator(mode="after")
    def _memory_is_possible(self) -> Training:
        memory, name = self.memory, self.optimizer.name
        of_parts = [field for field in ("offload_optimizer", "release_gradients") if getattr(memory, field)]
        if of_parts and not isinstance(self.optimizer, AdamW | Lion):
            raise ValueError(
                f"memory.{of_parts[0]} needs an optimizer whose update of a weight needs nothing but that weight: "
                f"optimizer.name adamw or lion, but it is {name}"
            )
        if not memory.release_gradients:
            return self
        for wrong, remedy in (
            (self.gradient_clip is not None, "gradient_clip=null: the global norm is known only after backward"),
            (self.precision == "fp16", "precision=bf16: whether fp16 overflowed is known only after backward"),
            (
                self.precision == "pure_bf16",
                "precision=bf16: pure_bf16 counts the weights that an update did not move, all at once",
            ),
            (
                self.deterministic == "across_layouts",
                "deterministic=same_layout: a fixed order adds gradients up after backward",
            ),
        ):
            if wrong:
                raise ValueError(f"memory.release_gradients needs training.{remedy}")
        return self

    def batch_size_at(self, step: int) -> int:
        """Sequences in the global batch of `step` (the first step is 1)."""
        size = self.global_batch_size
        for ramp in self.batch_ramp:
            if step >= ramp.step:
                size = ramp.global_batch_size
        return size

    def samples_of(self, step: int) -> tuple[int, int]:
        """Numbers of the first sequence of `step`, and of the first one after it."""
        first = self.samples_before(step)
        return first, first + self.batch_size_at(step)

    def samples_before(self, step: int) -> int:
        """Sequences trained on in all steps before `step` (the first step is 1); closed form, O(ramps)."""
        total, start, size = 0, 1, self.global_batch_size
        for ramp in self.batch_ramp:
            if ramp.step >= step:
                break
            total += (ramp.step - start) * size
            start, size = ramp.step, ramp.global_batch_size
        return total + (step - start) * size
