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
        "go back to a checkpoint before step {step} and continue with the steps left out or a lower learning rate: "
        "`recovery.on_divergence: rollback`, `recovery.lower_learning_rate`"
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
