"""One training configuration in neutral words: what is computed, how it is divided, and in which precision."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

PipelineName = Literal["gpipe", "1f1b", "interleaved_1f1b", "interleaved_zero_bubble", "zb_h2", "zbv", "dualpipe_v"]
Precision = Literal["fp32", "tf32", "bf16", "fp16", "fp8", "fp4"]
Operation = Literal[
    "attention_projections", "attention", "attention_output", "feed_forward", "experts", "pointwise"
]
"""What of a layer can be computed again: the recipe's operations; `pointwise` are norms, activations, rotations."""


@dataclass(frozen=True, slots=True)
class Latent:
    """Sizes of multi-head latent attention (DeepSeek-V2, arXiv:2405.04434)."""

    query_rank: int
    """0: queries are projected directly."""
    kv_rank: int
    nope_head_size: int
    rope_head_size: int
    value_head_size: int


@dataclass(frozen=True, slots=True)
class Experts:
    """The mixture of experts that stands for the feed-forward block."""

    count: int
    per_token: int
    ffn_hidden_size: int
    """Inner width of one."""
    shared_ffn_hidden_size: int = 0
    """Inner width of all shared ones together."""
    first_dense_layers: int = 0
    dense_every: int = 0
    """Each so manieth layer is dense besides; 0: none."""
    imbalance: float = 1.0
    """Rows of the busiest rank over the mean; 1 is even load."""

    def layers(self, layers: int) -> int:
        """How many of `layers` have experts."""
        rest = layers - self.first_dense_layers
        return rest - rest // self.dense_every if self.dense_every else rest


@dataclass(frozen=True, slots=True)
class Architecture:
    """A decoder-only transformer."""

    layers: int
    hidden_size: int
    heads: int
    kv_heads: int
    ffn_hidden_size: int
    vocabulary_size: int
    head_size: int = 0
    """0: hidden size over heads."""
    gated: bool = True
    """Three matrices in the feed-forward block (SwiGLU) instead of two."""
    tied_embeddings: bool = False
    learned_positions: bool = False
    dropout: bool = False
    latent: Latent | None = None
    experts: Experts | None = None
    mtp_depth: int = 0
    """Modules for further tokens (DeepSeek-V3), each a layer and a pass through the head."""
    sliding_window: int | None = None
    windowed_layers: float = 1.0
    """Share of the layers that the window holds for."""

    @property
    def size_of_head(self) -> int:
        """Width of a query and of a key."""
        if self.latent is not None:
            return self.latent.nope_head_size + self.latent.rope_head_size
        return self.head_size or self.hidden_size // self.heads

    @property
    def size_of_value(self) -> int:
        """Width of a head's value."""
        return self.latent.value_head_size if self.latent is not None else self.size_of_head

    @property
    def ffn_matrices(self) -> int:
        """Matrices of a feed-forward block."""
        return 3 if self.gated else 2


@dataclass(frozen=True, slots=True)
class Parallelism:
    """How ranks divide the work. Neighbours are tensor-parallel, then context-, data- and pipeline-parallel."""

    tp: int = 1
    sequence_parallel: bool = True
    """Whether the residual stream is divided over `tp` too (Korthikanti et al. 2022)."""
    pp: int = 1
    stages_per_rank: int = 1
    schedule: PipelineName = "1f1b"
    cp: int = 1
    cp_method: Literal["ring", "all_gather", "ulysses"] = "ring"
    ep: int = 1
    expert_tp: int = 1
    """Ranks that divide each expert; 1: experts are whole."""
    dp_replicate: int = 1
    """Copies that keep all of parameters, gradients and optimizer state (as far as dp_shard leaves)."""
    dp_shard: int = 1
    """Ranks over which one copy's state is divided, as far as `zero_stage` says."""
    zero_stage: Literal[0, 1, 2, 3] = 0
    """What is divided over dp_shard: 0 nothing, 1 optimizer state, 2 gradients too, 3 parameters too (FSDP)."""

    @property
    def dp(self) -> int:
        """Ranks with different samples."""
        return self.dp_replicate * self.dp_shard

    @property
    def world_size(self) -> int:
        """Ranks in all."""
        return self.tp * self.cp * self.dp * self.pp


@dataclass(frozen=True, slots=True)
class Recompute:
    """What of the forward pass is computed again in the backward pass."""

    layers: float = 0.0
    """Share of the layers that keep only their input: 1 is full recomputation, 1/k every k-th layer."""
    operations: frozenset[Operation] = frozenset()
    """Computed again in the other layers; `attention` is the core (scores to mix), as "selective" means."""


FULL, SELECTIVE, NONE = Recompute(1.0), Recompute(0.0, frozenset({"attention"})), Recompute()
ALL_BUT_PRODUCTS = Recompute(0.0, frozenset({"attention", "pointwise"}))


@dataclass(frozen=True, slots=True)
class Offload:
    """What waits in the host's memory between its uses, as shares."""

    optimizer: float = 0.0
    activations: float = 0.0
    parameters: float = 0.0
    """With their gradients. Then `optimizer` has the same share at least."""


@dataclass(frozen=True, slots=True)
class Workload:
    """What a step computes and how. Sizes in tokens and sequences."""

    architecture: Architecture
    sequence_length: int
    parallelism: Parallelism
    micro_batch_size: int
    global_batch_size: int
    recompute: Recompute = NONE
    precision: Precision = "bf16"
    """Of matrix products in blocks; sums, norms and loss are wider."""
    attention_kernel: Literal["flash", "flash2", "unfused"] = "flash"
    """`flash`: the best there is for the accelerator (FlashAttention-3, cuDNN); `flash2`: FlashAttention-2, which
    leaves what Hopper and later add unused; `unfused`: all scores are written to memory, as until 2022."""
    offload: Offload = field(default_factory=Offload)
    optimizer: Literal["adamw", "muon", "lion", "sgd", "adafactor"] = "adamw"
    parameter_bytes: float = 2.0
    """Of a parameter that forward and backward use."""
    kept_parameter_bytes: float = 2.0
    """Of a parameter between steps; where it is fp32 it is the master copy too."""
    gradient_bytes: float = 4.0
    """Of a gradient that is kept and summed."""
    optimizer_bytes: float = 12.0
    """Of master copy and moments, for a parameter, at the highest moment of the update."""
    cuda_graphs: bool = False
    """Whether the host issues whole graphs of kernels instead of each kernel."""
    keeps_stage_outputs: bool = False
    """Whether a pipeline stage keeps what it sent until the gradient of it has come."""

    @property
    def micro_batches(self) -> int:
        """Of one step, on each rank; at least 1."""
        return max(1, round(self.global_batch_size / (self.parallelism.dp * self.micro_batch_size)))

    @property
    def tokens(self) -> int:
        """Of one step on all ranks."""
        return self.global_batch_size * self.sequence_length
