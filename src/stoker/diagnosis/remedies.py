"""What can be done about a finding, and how it is said."""

from __future__ import annotations

from typing import Any

from stoker.diagnosis.finding import Remedy

REMEDIES: dict[str, str] = {
    "none": "nothing: it has passed",
    "watch": "nothing yet: run `stoker diagnose` again later",
    "look_at_samples": "look at the documents of these steps: `stoker data show RUN --step {step}`",
    "skip_samples": (
        "look at the documents (`stoker data show RUN --step {step}`); a run that is to leave such steps out by "
        "itself has `recovery.on_spike: rollback`"
    ),
    "roll_back": (
        "go back to a checkpoint before step {step} and continue with the steps left out or a lower learning "
        "rate: `recovery.on_divergence: rollback`, `recovery.lower_learning_rate`"
    ),
    "use_bf16": "train in bf16, whose range needs no loss scale (`training.precision`), from before step {step}",
    "clip_or_lower_rate": (
        "lower `training.gradient_clip` or the learning rate before the loss follows; keep a checkpoint from "
        "before step {step}"
    ),
    "check_learning_rate": "compare the learning rate at step {step} with the schedule that was meant",
    "check_mixture": "compare the mixture and the sources' text around step {step}",
    "check_for_repeats": "check that the text from step {step} on is not repeated or much easier than before",
    "check_phase": "look for what slows {phase} down since step {step}",
    "check_machine": "take the machine of rank {ranks} out, or test it: `stoker bench collectives`",
    "find_leak": "find what keeps memory: at this rate {growth_bytes_per_1000_steps} bytes more every 1,000 steps",
    "balance_experts": "balance experts more (`model.moe.auxiliary_loss`), and go back to before step {step}",
    "stop_or_add_data": "stop at the checkpoint of step {step}, the best on held-out text, or add other text",
    "check_sampler": (
        "see what gave step {step} its samples: a run goes on in the order that recipe and step say only where "
        "the sampler keeps no state of its own; go back to before step {step}"
    ),
    "check_accumulation": (
        "see by what the loss of a micro-batch is divided since step {step}: it is the step's tokens that count, "
        "over all micro-batches and ranks"
    ),
    "check_optimizer_state": (
        "go back to a checkpoint before step {step} that holds the optimizer's state, and load it: `stoker "
        "train` does"
    ),
    "limit_logits": (
        "normalise queries and keys (`model.qk_norm`), lower the learning rate, or go back to before step {step}"
    ),
    "check_length": "nothing, where another sequence length was meant from step {step} on",
    "check_network": (
        "test the network between the ranks (`stoker bench collectives`) and see who else uses it since step {step}"
    ),
    "leave_out_documents": (
        "leave these documents out: `stoker data show RUN --step {step}` prints them, a filter in `data` keeps "
        "such text away, and `recovery.on_spike: rollback` leaves such steps out"
    ),
    "longer_warmup": (
        "begin again with a longer `training.schedule.warmup_steps`, or a lower learning rate; step {step} is "
        "too early for the optimizer's averages"
    ),
    "set_clip": "set `training.gradient_clip`, and go back to before step {step}",
    "feed_faster": (
        "have batches made faster: look at the storage and the processors of rank {ranks} since step {step}"
    ),
    "cool_machine": "take the machine of rank {ranks} out, or look at its temperature, power and clocks",
    "check_storage": "free room or mend the storage; older checkpoints stand",
    "layout_changed": "nothing, where the other layout was meant; `stoker plan` says what it is expected to do",
    "recovered": "nothing: the run went on {how}; only if it repeats, {then}",
    "recovered_often": "the run went on each time, but it repeats: {then}",
    "go_on": "the same command goes on from the newest copy or checkpoint",
    "read_failure": "read what failed; the same command goes on from the newest checkpoint",
    "check_progress": "see whether the run still goes on, and what it waits for",
}
"""By `action`, in words; names in braces are arguments."""


def remedy(action: str, **arguments: Any) -> Remedy:
    """One of `REMEDIES`."""
    assert action in REMEDIES
    return Remedy(action=action, arguments=arguments)


def in_words(chosen: Remedy) -> str:
    """The remedy as a sentence."""
    spelled = {
        name: ", ".join(map(str, value)) if isinstance(value, list | tuple) else value
        for name, value in chosen.arguments.items()
    }
    return REMEDIES[chosen.action].format_map(spelled)


def fitting(action: str, arguments: dict[str, Any]) -> Remedy:
    """One of `REMEDIES` with those of the `arguments` that it names."""
    return remedy(action, **{name: value for name, value in arguments.items() if f"{{{name}}}" in REMEDIES[action]})
