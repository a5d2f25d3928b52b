"""What a run's evaluations said of each source."""

from __future__ import annotations

from collections.abc import Sequence

from stoker.errors import BadInput
from stoker.record import Record
from stoker.run_directory import RunDirectory


def last_losses(run: RunDirectory, names: Sequence[str]) -> tuple[int, dict[str, float]]:
    """The step of a run's last evaluation, and the held-out loss of each of `names` in it, in nats a token.

    Raises `BadInput` when the run has no evaluation, or its last one lacks a source.
    """
    rows = Record(run.record).evaluations()
    if not {"step", "source", "loss"} <= set(rows.columns) or not rows.height:
        raise BadInput(
            f"{run.path} has no evaluation in its record; `evaluation.every` says how often there is one"
        )
    step = max(rows["step"].drop_nulls().to_list())
    last = rows.filter(rows["step"] == step)
    losses = dict(zip(last["source"].to_list(), last["loss"].to_list(), strict=True))
    if missing := [name for name in names if losses.get(name) is None]:
        raise BadInput(
            f"the evaluation of {run.path} after step {step:,} has no loss of {', '.join(missing)}; it has "
            f"{', '.join(map(str, losses))}"
        )
    return int(step), {name: round(float(losses[name]), 6) for name in names}
