"""Causes that lie in the recipe or in the framework: schedule, optimizer, scales, weights that run away."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from stoker.diagnosis.causes.cause import RECORDED, Cause, Sign, from_confidence
from stoker.diagnosis.causes.incident import LOSS_KINDS, Incident
from stoker.diagnosis.causes.signs import of_members, said
from stoker.diagnosis.finding import UNKNOWN, Kind
from stoker.diagnosis.recent_past import as_numbers, likelihood

_OF_WEIGHTS: tuple[Kind, ...] = (
    "spike", "divergence", "step_rise", "nan", "gradient_growth", "loss_scale_collapse",
)  # fmt: skip
_AT_PEAK = 0.95
_EARLY_SHARE = 0.25
_UNCLIPPED, _TAKEN_IN = 3.0, 10.0
"""Times its usual, from which on a gradient counts as large, and from which on one alone may do harm."""
_AVERAGED, _SMALLER = 12, 0.75
_OF_NEEDED = 0.25
"""Of the steps that the averages need, which a warm-up should have at the very least."""


def _accumulation(incident: Incident) -> Iterator[Sign]:
    yield from of_members(incident, "gradient_shift")
    for jump in incident.of_kind("learning_rate_jump"):
        yield said("learning rate", "jumped", jump.first_step, -6.0, "as before")
        break
    for member in incident.of_kind("gradient_shift"):
        for other in incident.of_kind("divergence", "nan"):
            yield Sign(other.evidence[0], -RECORDED)
            break
        counts = as_numbers(incident.rows.table, "accumulation")
        known = counts[np.isfinite(counts)]
        expected, observed = member.evidence[0].expected, member.evidence[0].observed
        if known.size and isinstance(expected, float) and isinstance(observed, float) and known[-1] > 1:
            off = abs(abs(math.log(observed / expected)) - math.log(known[-1]))
            measure = "factor of the gradient norm, against the number of micro-batches"
            score = 2.0 if off < 0.25 else 0.0
            yield said(measure, observed / expected, member.first_step, score, float(known[-1]))
        return


def _rate(incident: Incident) -> Iterator[Sign]:
    yield from of_members(incident, "learning_rate_jump")


def _warmup(incident: Incident) -> Iterator[Sign]:
    """The rate is at its highest before the averages of the optimizer are worth anything, and it goes wrong
    soon."""
    yield from of_members(incident, "update_jump", cause="warmup_too_short")
    early = any(one.cause == "warmup_too_short" for one in incident.of_kind("update_jump"))
    rate, moved = incident.rows.curve("learning_rate").positive, incident.loss_moved
    moved = incident.first if early else moved
    optimizer = None if incident.rows.recipe is None else incident.rows.recipe.training.optimizer
    beta = getattr(optimizer, "beta2", None)
    if moved is None or not rate.steps.size or beta is None or rate.steps[0] > 4 * incident.rows.spacing:
        return
    reached = int(rate.steps[np.argmax(rate.values >= _AT_PEAK * rate.values.max())])
    needed = 2 / (1 - beta)
    if moved > max(_EARLY_SHARE * incident.rows.steps[-1], 0) or moved > reached + 2 * needed:
        return
    score = max(min(4.0 * math.log(_OF_NEEDED * needed / max(reached, 1)), 6.0), -6.0)
    yield said("steps of warm-up", float(reached), reached, score, needed)
    if not early:
        yield said("steps from the highest learning rate to the first large loss", float(moved - reached), moved,
                   2.0, f"more than {needed:.0f}")  # fmt: skip


def _clipping(incident: Incident) -> Iterator[Sign]:
    """A gradient far above its usual was not clipped, and the loss stays up after it, or updates stay small: the
    optimizer's average of squares has taken it in."""
    recipe, moved = incident.rows.recipe, incident.loss_moved
    clipped = incident.numbers("clipped")
    off = recipe is not None and recipe.training.gradient_clip is None
    if not off and (recipe is not None or not np.isfinite(clipped).any() or np.nan_to_num(clipped).any()):
        return
    norm = incident.departure(incident.rows.curve("gradient_norm"), rows=4)
    if norm is None or norm.factor < _UNCLIPPED:
        return
    yield Sign(norm.evidence("gradient norm, which nothing limits"), likelihood(norm.deviations) / 2)
    yield said("gradient_clip", "none", norm.step, 2.0, "a limit")
    if moved is not None:
        spike = incident.of_kind(*LOSS_KINDS)[0]
        rows = ((spike.last_step or moved) - moved) // incident.rows.spacing + 1
        score = 3.0 if rows > 3 else 0.0 if norm.factor > _TAKEN_IN else -4.0
        yield said("rows until the loss was back", float(rows), moved, score, "few")
    if norm.factor > _TAKEN_IN:
        yield from _small_updates(incident, norm.step)


def _small_updates(incident: Incident, step: int) -> Iterator[Sign]:
    """What the update norm over the learning rate is some rows after `step`, to what it was before."""
    update, rate = incident.numbers("update_norm"), incident.numbers("learning_rate")
    steps = incident.rows.steps
    kept = np.isfinite(update) & np.isfinite(rate) & (rate > 0) & (update > 0)
    sizes, at = update[kept] / rate[kept], int(np.searchsorted(steps[kept], step))
    before, after = sizes[max(0, at - 32) : at], sizes[at + _AVERAGED : at + 3 * _AVERAGED]
    if before.size < 4 or after.size < 4:
        return
    expected, observed = float(np.median(before)), float(np.median(after))
    score = 4.0 if observed < _SMALLER * expected else -2.0
    yield said(f"update norm over the learning rate, {_AVERAGED} rows on", observed, step, score, expected)


def _optimizer(incident: Incident) -> Iterator[Sign]:
    yield from of_members(incident, "update_jump", cause=UNKNOWN)
    for member in incident.of_kind("update_jump"):
        if len(member.evidence) > 1:
            yield Sign(member.evidence[1], 3.0)
        return


def _random_state(incident: Incident) -> Iterator[Sign]:
    yield from of_members(incident, "repeated_data", cause="random_state_lost")


def _length(incident: Incident) -> Iterator[Sign]:
    yield from of_members(incident, "sequence_length_change")


def _logits(incident: Incident) -> Iterator[Sign]:
    yield from of_members(incident, "logit_growth", may_follow=True)
    yield from _after_a_jump(incident, "logit_growth")


def _router(incident: Incident) -> Iterator[Sign]:
    yield from of_members(incident, "router_collapse", may_follow=True)
    yield from _after_a_jump(incident, "router_collapse")


def _after_a_jump(incident: Incident, kind: Kind) -> Iterator[Sign]:
    """Weights that are moved by larger steps go astray: then that is what it comes of."""
    jump, own = next(iter(incident.of_kind("learning_rate_jump")), None), next(iter(incident.of_kind(kind)), None)
    if jump is None or own is None or jump.first_step is None or own.first_step is None:
        return
    if jump.first_step <= own.first_step + incident.rows.spacing:
        yield Sign(jump.evidence[0], -from_confidence(jump.confidence) / 2)


def _scale(incident: Incident) -> Iterator[Sign]:
    yield from of_members(incident, "loss_scale_collapse")


def _overfitting(incident: Incident) -> Iterator[Sign]:
    yield from of_members(incident, "overfitting")


RECIPE = (
    Cause(
        name="accumulation_normalisation",
        group="recipe",
        kinds=("gradient_shift", "gradient_growth", *_OF_WEIGHTS),
        shows=("gradient_shift",),
        signature="From one step to the next all gradients change by the same factor, often the number of "
        "micro-batches or of ranks, and keep it; the loss does not change at that step.",
        evidence=_accumulation,
        remedy="check_accumulation",
        false_friends="A larger batch makes gradients less noisy and so a little smaller; what a model learns "
        "changes its gradients over many steps, and not all parts alike.",
        source="huggingface/transformers#35203: losses of micro-batches divided by a count of another scope",
    ),
    Cause(
        name="learning_rate_jump",
        group="recipe",
        kinds=("learning_rate_jump", "update_jump", "step_drop", *_OF_WEIGHTS),
        shows=("learning_rate_jump",),
        signature="The recorded learning rate leaves the line that it was on, by a quarter or more. The loss "
        "follows within tens of steps.",
        evidence=_rate,
        remedy="check_learning_rate",
        false_friends="The end of a warm-up, and the beginning of a decay: there the slope changes, not the "
        "rate. A rate that the run itself lowers after going back.",
        source="Gupta et al. 2023, Continual Pre-Training of Large Language Models: How to (re)warm your model? "
        "(arXiv:2308.04014)",
    ),
    Cause(
        name="warmup_too_short",
        group="recipe",
        kinds=("spike", "divergence", "step_rise", "gradient_growth", "nan", "update_jump"),
        signature="The loss jumps soon after the start, and the learning rate was at its highest in fewer steps "
        "than the 2/(1 - beta2) over which the optimizer's average of squares forms.",
        evidence=_warmup,
        remedy="longer_warmup",
        false_friends="A learning rate that is too high for any warm-up: then the loss stays up. Later spikes "
        "have other causes.",
        source="Ma and Yarats 2019, On the Adequacy of Untuned Warmup for Adaptive Optimization (arXiv:1910.04209)",
    ),
    Cause(
        name="clipping_off",
        group="recipe",
        kinds=_OF_WEIGHTS,
        signature="A gradient many times its usual goes into the weights unclipped, and the loss stays up for "
        "several rows after it.",
        evidence=_clipping,
        remedy="set_clip",
        false_friends="The batch that had the gradient may be at fault as well: text that stands out is named "
        "before.",
        source="Pascanu, Mikolov and Bengio 2013, On the difficulty of training recurrent neural networks "
        "(arXiv:1211.5063)",
    ),
    Cause(
        name="optimizer_state_lost",
        group="recipe",
        kinds=("update_jump", "step_drop", *_OF_WEIGHTS),
        shows=("update_jump",),
        signature="Updates grow at once, over the learning rate, while the gradients of the step are usual, and "
        "shrink over as many steps as the averages need to form anew. Often at the first step after a resume.",
        evidence=_optimizer,
        remedy="check_optimizer_state",
        false_friends="Large gradients make large updates too: these are told apart by the gradient norm of the "
        "row.",
        source="deepspeedai/DeepSpeed#7786: moments of bf16 training never written to the checkpoint",
    ),
    Cause(
        name="random_state_lost",
        group="recipe",
        kinds=("repeated_data", "spike", "divergence", "step_rise", "step_drop", "gradient_growth"),
        shows=("repeated_data",),
        signature="From a step on the run has other samples than recipe and step say: those of earlier steps in "
        "their order, or an order that nothing explains.",
        evidence=_random_state,
        remedy="check_sampler",
        false_friends="One batch again and again is a repeated batch; other shares of the sources are a mixture; "
        "a second epoch has its own order.",
        source="allenai/OLMo#650: the saved position in the data applied again in every later epoch",
    ),
    Cause(
        name="sequence_length_change",
        group="recipe",
        kinds=("sequence_length_change", "throughput_drop", "step_drop", "memory_growth", *_OF_WEIGHTS),
        shows=("sequence_length_change",),
        signature="A sample has more or fewer tokens from one step to the next; with longer context the loss "
        "falls, and steps take longer by the tokens.",
        evidence=_length,
        remedy="check_length",
        false_friends="A larger batch has more tokens, and as many to a sample as before.",
        source="Li, Zhang and He 2022, The Stability-Efficiency Dilemma: Investigating Sequence Length Warmup "
        "for Training GPT Models (arXiv:2108.06084)",
    ),
    Cause(
        name="attention_logit_growth",
        group="recipe",
        kinds=("logit_growth", *_OF_WEIGHTS),
        shows=("logit_growth",),
        signature="The largest logit before the softmax of some block leaves the line it grew on, row by row, "
        "and the entropy of its attention falls; tens to hundreds of steps later gradients and loss move.",
        evidence=_logits,
        remedy="limit_logits",
        false_friends="Logits grow in every run as it learns: what counts is that they grow faster than they did.",
        source="Wortsman et al. 2023, Small-scale proxies for large-scale Transformer training instabilities "
        "(arXiv:2309.14322)",
    ),
    Cause(
        name="router_collapse",
        group="recipe",
        kinds=("router_collapse", *_OF_WEIGHTS),
        shows=("router_collapse",),
        signature="A few experts of a block get more and more of the tokens and others none.",
        evidence=_router,
        remedy=None,
        false_friends="The first steps, in which routers find their places.",
        source="Fedus, Zoph and Shazeer 2022, Switch Transformers (arXiv:2101.03961)",
    ),
    Cause(
        name="loss_scale_collapse",
        group="recipe",
        kinds=("loss_scale_collapse", "nan", "divergence", "spike"),
        shows=("loss_scale_collapse",),
        signature="The fp16 loss scale halves again and again, and updates are left out.",
        evidence=_scale,
        remedy="use_bf16",
        false_friends="A scale that begins too high falls to its place in the first steps.",
        source="Micikevicius et al. 2018, Mixed Precision Training (arXiv:1710.03740)",
    ),
    Cause(
        name="overfitting",
        group="recipe",
        kinds=("overfitting",),
        signature="The loss on held-out text rises while that on training text falls; the text is in its later "
        "epochs.",
        evidence=_overfitting,
        remedy=None,
        false_friends="A mixture that moves away from a held-out source: then only that source's loss rises.",
        source="Muennighoff et al. 2023, Scaling Data-Constrained Language Models (arXiv:2305.16264)",
    ),
)
