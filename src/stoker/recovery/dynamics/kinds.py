"""The kinds of faults of training dynamics, and the cause that `stoker diagnose` should name for each.

`strength` is 1 where the fault is plain to see and smaller where it is less so; `steps` is how long it lasts, and 0
where that is to the end of the run.
"""

from __future__ import annotations

from stoker.recovery.kind import Kind

BAD_TEXT = ("garbled", "html", "language", "repetition", "tokenizer", "hard")
"""What text of a step can be; the last is honest, if hard to predict."""
_CAUSES_OF_TEXT = {
    "garbled": "garbled_text",
    "html": "html_text",
    "language": "wrong_language",
    "repetition": "repeated_text",
    "tokenizer": "tokenizer_mismatch",
    "hard": "hard_documents",
}
LENGTHS = ("shorter", "longer")

DYNAMICS: dict[str, Kind] = {
    "bad_data": Kind(
        "a share `strength` of the sequences of `steps` steps is bad text, written into the run's own copy of the "
        "corpus: `what` is garbled, html, language, repetition, tokenizer or, honest and hard to predict, hard",
        phase="data",
        options={"strength": 1.0, "steps": 2.0},
        words={"what": BAD_TEXT},
        everywhere=True,
        cause="garbled_text",
        keeps_weights=False,
    ),
    "repeat_batch": Kind(
        "a share `strength` of the sequences of `steps` steps are those of the step before, again",
        phase="data",
        options={"strength": 1.0, "steps": 8.0},
        everywhere=True,
        cause="repeated_batch",
        keeps_weights=False,
    ),
    "oversample": Kind(
        "a share `strength` of the mixture goes to `source` (by default the smallest) for `steps` steps",
        phase="data",
        options={"strength": 1.0, "steps": 20.0},
        words={"source": ()},
        everywhere=True,
        cause="oversampled_source",
        keeps_weights=False,
    ),
    "mixture_shift": Kind(
        "the weights of all sources move towards those in the reverse order of size, by `strength` of the way, for "
        "`steps` steps",
        phase="data",
        options={"strength": 1.0, "steps": 0.0},
        everywhere=True,
        cause="mixture_shift",
        keeps_weights=False,
    ),
    "lost_rng": Kind(
        "the order of samples begins anew, for a share `strength` of each batch, as where the random state is lost",
        phase="data",
        options={"strength": 1.0, "steps": 0.0},
        everywhere=True,
        cause="random_state_lost",
        keeps_weights=False,
    ),
    "length_change": Kind(
        "sequences are 2^`strength` times `what` (shorter, longer) for `steps` steps, as in another stage",
        phase="data",
        options={"strength": 1.0, "steps": 0.0},
        words={"what": LENGTHS},
        everywhere=True,
        cause="sequence_length_change",
        keeps_weights=False,
    ),
    "lr_jump": Kind(
        "the learning rate is 10^`strength` times what the schedule says, for `steps` steps",
        phase="data",
        options={"strength": 1.0, "steps": 20.0},
        everywhere=True,
        cause="learning_rate_jump",
        keeps_weights=False,
    ),
    "accumulation_bug": Kind(
        "gradients are the number of a step's micro-batches, to the power of `strength`, times too large, for "
        "`steps` steps: as if each were divided by its own count of tokens",
        phase="data",
        options={"strength": 1.0, "steps": 0.0},
        everywhere=True,
        cause="accumulation_normalisation",
        keeps_weights=False,
    ),
    "lost_optimizer_state": Kind(
        "the optimizer's state of a share `strength` of the parameters becomes zero, as where it is not loaded",
        phase="data",
        options={"strength": 1.0},
        everywhere=True,
        cause="optimizer_state_lost",
        keeps_weights=False,
    ),
    "overflow": Kind(
        "a gradient of the rank overflows, whatever the loss scale, in 12 times `strength` steps, so that it "
        "halves as often (fp16)",
        phase="data",
        options={"strength": 1.0},
        cause="loss_scale_collapse",
        keeps_weights=False,
    ),
    "gradient_burst": Kind(
        "to the gradients of the step something drawn is added, 100 times `strength` times as large as they are, "
        "as by a batch that the model cannot bear",
        phase="data",
        options={"strength": 1.0},
        everywhere=True,
        cause="clipping_off",
        keeps_weights=False,
    ),
    "logit_growth": Kind(
        "the gains of queries and keys grow by 3% times `strength` at each of `steps` steps",
        phase="data",
        options={"strength": 1.0, "steps": 60.0},
        everywhere=True,
        cause="attention_logit_growth",
        keeps_weights=False,
    ),
    "router_collapse": Kind(
        "a bias of every router towards one expert grows by 0.02 times `strength` at each of `steps` steps",
        phase="data",
        options={"strength": 1.0, "steps": 60.0},
        everywhere=True,
        cause="router_collapse",
        keeps_weights=False,
    ),
    "slow_rank": Kind(
        "the rank takes 1 + `strength` times as long to compute for `steps` steps",
        phase="data",
        options={"strength": 1.0, "steps": 20.0},
        cause="slow_compute",
    ),
    "throttle": Kind(
        "the rank takes longer and longer to compute for `steps` steps: from nothing to `strength` times as long "
        "more over 30 steps, and then stays there",
        phase="data",
        options={"strength": 1.0, "steps": 0.0},
        cause="throttled_rank",
    ),
    "jitter": Kind(
        "what ranks sum together takes the rank longer by drawn times, which are together `strength` times the "
        "usual step's on average, for `steps` steps",
        phase="data",
        options={"strength": 1.0, "steps": 40.0},
        cause="communication_jitter",
    ),
    "slow_network": Kind(
        "what ranks sum together takes the rank longer by always the same time, together `strength` times the "
        "usual step's, for `steps` steps",
        phase="data",
        options={"strength": 1.0, "steps": 0.0},
        cause="slow_network",
    ),
    "loader_stall": Kind(
        "to make a batch takes the rank's loader 1 + `strength` times as long as the usual step, for `steps` steps",
        phase="data",
        options={"strength": 1.0, "steps": 20.0},
        cause="loader_starvation",
    ),
    "leak": Kind(
        "the rank keeps 0.5% times `strength` more of the host memory that it had at each of `steps` steps",
        phase="data",
        options={"strength": 1.0, "steps": 0.0},
        cause="memory_leak",
    ),
}


def cause_of(kind: str, what: str) -> str:
    """What the doctor should call a fault of this kind; `what` is the kind's word, where it has one."""
    return _CAUSES_OF_TEXT[what] if kind == "bad_data" else DYNAMICS[kind].cause
