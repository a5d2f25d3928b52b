"""What a kind of fault is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Kind:
    """One kind of fault."""

    what: str
    """What happens, in words."""
    phase: str = "forward"
    """In which phase of the step, unless the option `phase` says another."""
    options: Mapping[str, float] = field(default_factory=dict)
    """Numbers it takes, with their defaults."""
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Words it takes, each with those it may be, the default first; a name that only a recipe has when empty."""
    everywhere: bool = False
    """Whether it happens on all ranks alike, as what a recipe, a framework or the data does wrong."""
    cause: str = ""
    """What `stoker diagnose` calls it, where it breaks nothing and the run goes on."""
    keeps_weights: bool = True
    """Whether the run ends in the same weights for all that."""

    @property
    def goes_on(self) -> bool:
        """Whether it breaks nothing."""
        return bool(self.cause)
