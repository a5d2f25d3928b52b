"""What a planted bug is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatch

from stoker.layout import Layout
from tests.verification.mutation import Edit, Plant, Value

ATTENTION, FEED_FORWARD = "blocks.*.attention*", "blocks.*.feed_forward*"


@dataclass(frozen=True)
class PlantedBug:
    """A mistake in one place, small enough to be made."""

    name: str
    layout: Layout
    """Where it shows."""
    model: str
    """Of `tiny_models.MODELS`."""
    changes: tuple[Edit | Value, ...]
    where: tuple[str, ...]
    """Patterns of the modules, parameters or figures that are right to be named for it: a name, or `kind: name`
    where anything of a kind is right (a sum of gradients that is wrong for all parameters)."""
    says: str
    """The mistake, in words."""

    @property
    def plant(self) -> Plant:
        """Makes the mistake, in the process that calls it."""
        return Plant(self.changes)

    def explains(self, kind: str, name: str) -> bool:
        """Whether this is a right place to look for it."""
        return any(fnmatch(f"{kind}: {name}" if ": " in pattern else name, pattern) for pattern in self.where)


def bug(
    name: str,
    layout: Layout,
    model: str,
    *changes: Edit | Value,
    where: str | Iterable[str],
    says: str,
) -> PlantedBug:
    """A `PlantedBug`."""
    return PlantedBug(name, layout, model, changes, (where,) if isinstance(where, str) else tuple(where), says)
