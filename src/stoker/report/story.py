"""What a run was and what happened to it: headline, attempts, events, samples, machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import ValidationError

from stoker import wording
from stoker.diagnosis.in_a_line import in_a_line
from stoker.plural import counted, one_of
from stoker.recipe import Model
from stoker.recipe.size import parameter_count
from stoker.report.curves import seconds_per_step
from stoker.report.held_out import Score, overall_score
from stoker.report.plan_facts import peak_memory_bytes, tokens_per_second
from stoker.report.run_facts import RunFacts

_SAMPLES_SHOWN = 8
_EVENTS_SHOWN = 400
_ROUTINE_SHOWN = 12
_SPANS_SHOWN = 3
STATES = {
    "finished": "finished",
    "running": "still running",
    "terminated": "stopped when asked to",
    "non_finite": "stopped: not finite",
    "interrupted": "interrupted",
    "not_started": "not started",
}


@dataclass(frozen=True)
class Headline:
    """The figures on top of the page."""

    state: str
    state_words: str
    step: int
    steps_planned: int | None
    model: str
    parameters: float | None
    tokens: float | None
    loss: float | None
    """Training loss of the last step, raw."""
    held_out: Score | None
    seconds: float | None
    tokens_per_second: float | None
    peak_memory: float | None
    device: str
    ranks: int
    ranks_words: str
    """The number of ranks; over which steps, where it was not always the same."""
    ranks_changed: bool


def headline(facts: RunFacts, scores: list[Score]) -> Headline:
    """The run in a dozen figures."""
    steps = facts.steps
    last = steps.row(-1, named=True) if steps.height else {}
    seconds = np.nansum(seconds_per_step(facts))
    planned = facts.setting("training", "steps")
    return Headline(
        state=facts.state,
        state_words=STATES[facts.state],
        step=last.get("step") or 0,
        steps_planned=planned if isinstance(planned, int) else None,
        model=model_words(facts),
        parameters=parameters(facts),
        tokens=last.get("tokens_seen"),
        loss=last.get("loss"),
        held_out=overall_score(scores),
        seconds=float(seconds) if seconds else None,
        tokens_per_second=tokens_per_second(facts),
        peak_memory=peak_memory_bytes(facts),
        device=device_words(facts),
        ranks=last.get("ranks") or 1,
        ranks_words=ranks_words(facts),
        ranks_changed=len(facts.ranks_by_step) > 1,
    )


def ranks_words(facts: RunFacts) -> str:
    """`4 ranks`; `2 ranks up to step 60, then 4` where earlier attempts had another number."""
    spans = facts.ranks_by_step
    if len(spans) < 2:
        return counted(spans[0][2] if spans else 1, "ranks")
    (_, until, first), *later = spans
    begin = f"{counted(first, 'ranks')} up to step {wording.exact(until)}, then "
    if len(later) > _SPANS_SHOWN:
        numbers = sorted({ranks for _, _, ranks in spans})
        return begin + f"{numbers[0]} to {numbers[-1]}, at last {later[-1][2]}"
    return begin + ", ".join(
        str(ranks) + (f" up to step {wording.exact(last)}" if number < len(later) else "")
        for number, (_, last, ranks) in enumerate(later, 1)
    )


def model_words(facts: RunFacts) -> str:
    """The architecture in a few words."""
    model = facts.setting("model") or {}
    if not isinstance(model, dict):
        return wording.NOTHING
    kv = model.get("kv_heads") or model.get("heads")
    parts = [
        _said(model["layers"], "layers") if "layers" in model else "",
        f"width {model['hidden_size']}" if "hidden_size" in model else "",
        _said(model["heads"], "heads") + (f" ({kv} kv)" if kv != model["heads"] else "")
        if "heads" in model
        else "",
        f"context {facts.setting('training', 'sequence_length')}",
    ]
    return ", ".join(part for part in parts if part)


def _said(number: object, many: str) -> str:
    """`1 head`, `2 heads`; whatever a recipe that was written by hand has in the place of the number."""
    return f"{number} {one_of(many) if number == 1 else many}"


def parameters(facts: RunFacts) -> float | None:
    """Number of parameters, from the recipe's model and the corpus's vocabulary; None when either is unknown."""
    tokenizer = facts.corpus.get("tokenizer")
    vocabulary = tokenizer.get("vocabulary_size") if isinstance(tokenizer, dict) else None
    length = facts.setting("training", "sequence_length")
    if not isinstance(vocabulary, int) or not isinstance(length, int):
        return None
    try:
        return parameter_count(Model(**facts.setting("model")), vocabulary, length).total
    except (ValidationError, TypeError):
        return None


def device_words(facts: RunFacts) -> str:
    """What the run computed on."""
    device = facts.environment.get("device")
    return str(device.get("name") or wording.NOTHING) if isinstance(device, dict) else wording.NOTHING


@dataclass(frozen=True)
class Continuation:
    """What the model wrote after a prompt at one step."""

    step: int
    text: str


def samples_by_prompt(facts: RunFacts) -> list[tuple[str, list[Continuation]]]:
    """For each prompt its continuations at up to eight steps, first and last among them."""
    if facts.samples.is_empty():
        return []
    found = []
    for (prompt,), rows in facts.samples.group_by("prompt", maintain_order=True):
        chosen = np.unique(np.linspace(0, rows.height - 1, min(_SAMPLES_SHOWN, rows.height)).round().astype(int))
        texts = [Continuation(rows["step"][i] or 0, rows["text"][i] or "") for i in chosen.tolist()]
        found.append((str(prompt), texts))
    return found


@dataclass(frozen=True)
class Happening:
    """One event in words."""

    time: str
    attempt: str
    step: str
    event: str
    detail: str
    weight: str
    """`bad`, `notable` or `routine`; how it is shown."""


_WEIGHTS = {
    "non_finite": "bad", "save_failed": "bad", "record_write_failed": "bad", "record_rows_lost": "bad",
    "failure": "bad", "gave_up": "bad", "supervisor_died": "bad", "command_ended": "bad",
    "silent_corruption": "bad", "replicas_differ": "bad", "divergence": "bad", "saved": "routine",
}  # fmt: skip


def happenings(facts: RunFacts) -> tuple[list[Happening], int]:
    """The events in order, and how many were left out: of routine ones only the last are shown."""
    events = facts.events
    routine = [i for i, event in enumerate(events) if _WEIGHTS.get(str(event.get("event"))) == "routine"]
    hidden = set(routine[:-_ROUTINE_SHOWN])
    shown = [event for i, event in enumerate(events) if i not in hidden][-_EVENTS_SHOWN:]
    return [_happening(event) for event in shown], len(events) - len(shown)


def _happening(event: dict[str, Any]) -> Happening:
    name = str(event.get("event"))
    step, attempt = event.get("step"), event.get("attempt")
    return Happening(
        time=wording.moment(event.get("time")),
        attempt=wording.NOTHING if attempt is None else str(attempt),
        step=wording.NOTHING if step is None else wording.exact(step),
        event=wording.words(name),
        detail=in_a_line(event),
        weight=_WEIGHTS.get(name, "notable"),
    )


def environment_rows(facts: RunFacts) -> list[tuple[str, str]]:
    """The machine and versions as pairs of name and value."""
    rows = list(_flattened(facts.environment))
    return [(wording.words(name), value) for name, value in rows]


def _flattened(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            yield from _flattened(value, f"{name} · ")
        elif isinstance(value, list):
            for index, part in enumerate(value):
                whole = part if isinstance(part, dict) else {"": part}
                yield from _flattened(whole, f"{name} {index} · ")
        elif value is not None:
            spelled = wording.size(value) if str(key).endswith("_bytes") else str(value)
            yield name.removesuffix("_bytes").removesuffix(" · "), spelled
