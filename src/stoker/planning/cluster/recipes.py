"""What a recipe says, as a workload."""

from __future__ import annotations

from stoker.layout import Layout
from stoker.planning.cluster.workload import (
    NONE,
    Architecture,
    Experts,
    Latent,
    Offload,
    Operation,
    Parallelism,
    Precision,
    Recompute,
    Workload,
)
from stoker.recipe import Model, Recipe

_MOMENT_BYTES = {"adamw": 8.0, "muon": 4.0, "lion": 4.0, "adafactor": 0.0}
"""Of an optimizer's moments for a parameter, in fp32. Muon's matrices have one; Adafactor's rows hardly count."""
_CHEAP: frozenset[Operation] = frozenset({"pointwise"})


def workload_of(
    recipe: Recipe, vocabulary_size: int, layout: Layout | None = None, micro_batch_size: int | None = None
) -> Workload:
    """What `recipe` describes, at its largest batch.

    A given layout or micro-batch stands for its own.

    Where the recipe leaves the micro-batch open, what the trainer would take counts.
    """
    training, layout = recipe.training, layout or recipe.layout
    largest = max((training.global_batch_size, *(ramp.global_batch_size for ramp in training.batch_ramp)))
    step = next((ramp.step for ramp in training.batch_ramp if ramp.global_batch_size == largest), 1)
    pure = training.precision == "pure_bf16"
    width = 2.0 if pure else 4.0
    moments = _MOMENT_BYTES[training.optimizer.name] * width / 4
    return Workload(
        architecture=architecture_of(recipe.model, vocabulary_size),
        sequence_length=training.sequence_length,
        parallelism=parallelism_of(layout),
        micro_batch_size=micro_batch_size or recipe.micro_batch_size_at(step),
        global_batch_size=largest,
        recompute=_recompute_of(recipe),
        precision=_precision_of(recipe),
        optimizer=training.optimizer.name,
        parameter_bytes=4.0 if training.precision == "fp32" else 2.0,
        kept_parameter_bytes=width,
        gradient_bytes=width,
        optimizer_bytes=moments,
        offload=Offload(
            optimizer=float(training.memory.offload_optimizer or training.memory.offload_parameters),
            parameters=float(training.memory.offload_parameters),
            activations=float(training.memory.offload_activations),
        ),
    )


def _precision_of(recipe: Recipe) -> Precision:
    precision = recipe.training.precision
    return "bf16" if precision == "pure_bf16" else precision


def _recompute_of(recipe: Recipe) -> Recompute:
    wanted = recipe.training.memory.recompute
    match wanted.name:
        case "full":
            return Recompute(1 / wanted.every)
        case "operations":
            return Recompute(0.0, _CHEAP | frozenset[Operation](wanted.operations))
        case "budget":  # what it comes to is solved when the run begins; the cheap half is all that is sure
            return Recompute(0.0, _CHEAP)
        case _:
            return NONE


def architecture_of(model: Model, vocabulary_size: int) -> Architecture:
    """The shape of a recipe's model."""
    latent, moe = model.latent_attention, model.moe
    return Architecture(
        layers=model.layers,
        hidden_size=model.hidden_size,
        heads=model.heads,
        kv_heads=model.key_value_heads,
        ffn_hidden_size=model.ffn_hidden_size,
        vocabulary_size=vocabulary_size,
        head_size=model.size_of_head,
        gated=model.activation != "gelu",
        tied_embeddings=model.tie_embeddings,
        learned_positions=model.position == "learned",
        dropout=model.dropout > 0,
        latent=None
        if latent is None
        else Latent(
            latent.query_rank or 0,
            latent.kv_rank,
            latent.nope_head_size,
            latent.rope_head_size,
            latent.value_head_size,
        ),
        experts=None
        if moe is None
        else Experts(
            moe.experts,
            moe.experts_per_token,
            model.expert_width,
            moe.shared_experts * model.expert_width,
            moe.first_dense_layers,
        ),
        mtp_depth=model.mtp_depth,
        sliding_window=model.sliding_window,
    )


def parallelism_of(layout: Layout) -> Parallelism:
    """What Stoker's own layout says."""
    return Parallelism(
        tp=layout.tp,
        sequence_parallel=layout.tp > 1,
        pp=layout.pp,
        stages_per_rank=layout.stages // layout.pp,
        schedule=layout.pipeline_schedule,
        cp=layout.cp,
        cp_method=layout.cp_method,
        ep=layout.ep,
        expert_tp=layout.expert_tp_size,
        dp_replicate=layout.dp_replicate,
        dp_shard=layout.dp_shard,
        zero_stage=layout.zero_stage if layout.dp_shard > 1 else 0,
    )
