"""Signs that several causes have in common."""

from __future__ import annotations

import math
from collections.abc import Iterator

from stoker.diagnosis.causes.cause import RECORDED, Sign, from_confidence
from stoker.diagnosis.causes.incident import Incident
from stoker.diagnosis.finding import Evidence, Finding, Kind

_LATER = 3.0
_REPLAYED = 4.0
_LOSS_MOVED, _GRADIENTS_MOVED = 1.05, 2.0
"""Times its usual, from which on a replay can tell whose doing it was."""


def of_members(
    incident: Incident, *kinds: Kind, cause: str | None = None, may_follow: bool = False
) -> Iterator[Sign]:
    """The evidence of the incident's members of these kinds, of which detectors have said that it is `cause`.

    What a large loss may have as its effect (`may_follow`) counts for little where it begins after the loss was at
    its highest.
    """
    for member in incident.of_kind(*kinds):
        if cause is None or member.cause == cause:
            score = from_confidence(member.confidence)
            if may_follow and _comes_later(incident, member):
                score /= _LATER
            for number, evidence in enumerate(member.evidence[:2]):
                yield Sign(evidence, score if number == 0 else 0.5)
            return


def _comes_later(incident: Incident, member: Finding) -> bool:
    peak = incident.loss_peaked
    return peak is not None and member.first_step is not None and member.first_step > peak + incident.near


def of_text(incident: Incident, *features: str, share: float = 1.0) -> Iterator[Sign]:
    """How the text of its first steps stands out in the most telling of these features."""
    from stoker.diagnosis.text_features import WORDS

    known = [incident.text[feature] for feature in features if feature in incident.text]
    if not known:
        return
    best = max(known, key=lambda one: one.score)
    yield Sign(
        Evidence(measure=WORDS[best.feature], expected=best.expected, observed=best.observed, step=best.step),
        share * best.score,
    )


def against_text(incident: Incident, *features: str, share: float = 1.0) -> Iterator[Sign]:
    """What speaks for another kind of bad text speaks against this one."""
    for sign in of_text(incident, *features, share=share):
        if sign.score > 0:
            yield Sign(sign.evidence, -sign.score)


def of_replay(incident: Incident, *, batch: bool) -> Iterator[Sign]:
    """What computing the batch once more says: for causes that lie in the batch, or (not `batch`) for those that do
    not.

    On another state the loss of a bad batch is as high; where it is not, the state or the machine was wrong. Where
    the loss was as usual, the gradient norm is looked at. What two processes compute from the same bits is the
    same, unless a machine is wrong now.
    """
    step = incident.finding.first_step
    replay = incident.rows.replays.get(step) if step is not None else None
    if replay is None:
        return
    if replay.repeats is False and not batch:
        measure = "losses and gradients of two processes, from the same weights and batch"
        yield Sign(Evidence(measure=measure, expected="the same", observed="different", step=step), _REPLAYED)
    what, excess = "loss", replay.excess()
    seen = incident.departure(incident.rows.curve("loss"), step)
    if seen is None or seen.factor < _LOSS_MOVED:
        what, excess = "gradient norm", replay.gradient_excess
        seen = incident.departure(incident.rows.curve("gradient_norm"), step)
        if seen is None or seen.factor < _GRADIENTS_MOVED:
            return
    if excess is None:
        return
    share = excess / math.log(seen.factor)
    score = _REPLAYED if share > 0.6 else -_REPLAYED if share < 0.3 else 0.0
    evidence = Evidence(
        measure=f"{what} of its batch over a usual one's, on the weights of step {replay.trials[0].state}",
        expected=seen.factor if batch else 1.0,
        observed=math.exp(excess),
        step=step,
    )
    yield Sign(evidence, score if batch else -score)


def recorded(
    measure: str, observed: float | str | None, step: int | None, expected: float | str | None = None
) -> Sign:
    """What the record says outright."""
    return Sign(Evidence(measure=measure, expected=expected, observed=observed, step=step), RECORDED)


def said(
    measure: str, observed: float | str | None, step: int | None, score: float, expected: float | str | None = None
) -> Sign:
    """An observation with a score of its own."""
    return Sign(Evidence(measure=measure, expected=expected, observed=observed, step=step), score)
