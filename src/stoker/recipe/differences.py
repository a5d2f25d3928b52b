"""What changed between a run's recipe and a new one, and what may change under an existing run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from stoker.errors import BadInput
from stoker.recipe import Recipe
from stoker.recipe.fields import Place, dotted
from stoker.recipe.mistakes import shown


@dataclass(frozen=True)
class Freedom:
    """Fields that may change under an existing run, and what the change means for it."""

    pattern: str
    """Regular expression over the whole dotted name."""
    note: str = ""
    """What to know about it; nothing where the trained model stays the same to the last bit."""


FREE = (
    Freedom(r"name|run"),
    Freedom(r"training\.steps", "the schedule and the last step follow the new number from the next step on"),
    Freedom(r"checkpoint\..*"),
    Freedom(r"recovery\..*"),
    Freedom(r"evaluation\..*"),
    Freedom(r"telemetry\..*"),
    Freedom(r"(alerts|exporters)\..*"),
    Freedom(r"layout\..*", "the same samples in the same order, but sums are rounded in another order"),
    Freedom(r"training\.micro_batch_size", "the same model up to rounding, not bit for bit"),
    Freedom(r"training\.threads", "the same model up to rounding, not bit for bit"),
    Freedom(r"training\.timeout_seconds"),
    Freedom(r"training\.memory\..*", "the same bits, but of compiled blocks the same up to rounding"),
    Freedom(r"data\.mixture\..*", "for steps still to come; what would change the mixture of others is refused"),
    Freedom(r"data\.workers"),
    Freedom(r"data\.prepared(_cache)?"),
)


@dataclass(frozen=True)
class Difference:
    """One value that is not the same in two recipes."""

    field: str
    old: Any
    new: Any

    @property
    def freedom(self) -> Freedom | None:
        """Why the change is allowed under an existing run; None when it is not."""
        return next((freedom for freedom in FREE if re.fullmatch(freedom.pattern, self.field)), None)

    def __str__(self) -> str:
        return f"{self.field}: {_short(self.old)} → {_short(self.new)}"


_ABSENT = object()


def differences(old: Recipe, new: Recipe) -> tuple[Difference, ...]:
    """Every value that differs, in the order of the recipe. Sources are compared by name."""
    found: list[Difference] = []
    _compare(old.model_dump(mode="json"), new.model_dump(mode="json"), (), found)
    return tuple(found)


def require_compatible(old: Recipe, new: Recipe) -> tuple[Difference, ...]:
    """Raise `BadInput` that lists what may not change under an existing run; return what did change and may.

    `old` is the recipe the run was begun with (or last resumed with), `new` the one it shall go on with.
    """
    found = differences(old, new)
    refused = [difference for difference in found if difference.freedom is None]
    if refused:
        raise BadInput(
            "the recipe has changed under this run:\n"
            + "\n".join(f"  {difference}" for difference in refused)
            + "\nPut the old values back, or choose another folder (--run FOLDER, or another `name`). What may "
            "change under a run: training.steps, training.micro_batch_size, training.threads, "
            "training.timeout_seconds, layout, checkpoint, recovery, evaluation, telemetry, alerts, "
            "exporters, data.mixture (of steps still to come), data.workers, data.prepared, data.prepared_cache."
        )
    return tuple(difference for difference in found if difference.freedom is not None)


def _compare(old: Any, new: Any, place: Place, found: list[Difference]) -> None:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys([*old, *new]):
            _compare(old.get(key, _ABSENT), new.get(key, _ABSENT), (*place, key), found)
    elif _named(old) and _named(new):
        before, after = ({element["name"]: element for element in elements} for elements in (old, new))
        if list(before) != list(after) and set(before) == set(after):
            found.append(Difference(f"{dotted(place)} (order)", list(before), list(after)))
        _compare(before, after, place, found)
    elif old is _ABSENT or new is _ABSENT or old != new:
        found.append(Difference(dotted(place), old, new))


def _named(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(e, dict) and "name" in e for e in value)


def _short(value: Any) -> str:
    if value is _ABSENT:
        return "(not there)"
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        text = ", ".join(value)
        return f"[{text if len(text) <= 80 else text[:77] + '...'}]"
    return shown(value)
