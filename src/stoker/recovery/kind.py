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
    """What `stoker diagnose` calls it, where it breaks nothing: the run goes on, another one than it was to be."""

    @property
    def goes_on(self) -> bool:
        """Whether the run goes on, and ends in other weights than it would have."""
        return bool(self.cause)
