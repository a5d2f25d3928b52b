"""What every operator is: a pure function of one document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from stoker.data.document import Document


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an operator made of a document."""

    document: Document
    """As it goes on: changed, or the very one that was given."""
    reason: str | None = None
    """Why it goes on no further; None when it does."""
    measures: Mapping[str, float] = field(default_factory=dict)
    """What was measured, by name. Kept in the ledger, where thresholds are tried without reading text again."""
    detail: str | None = None
    """The same for people, where there is more to tell: which evaluation item was found, for instance."""


class Operator(Protocol):
    """A step of what happens to each document between reading and selection.

    Its outcome depends on the document and on what it was made with, and on nothing else: not on other documents,
    the clock, the locale, the process or the order. It is never given an empty text.
    """

    @property
    def name(self) -> str:
        """Of the stage, as the ledger and the funnel show it."""

    @property
    def measures(self) -> tuple[str, ...]:
        """Names of all measures its outcomes may have, `<name>.<measure>` where they are its own."""

    @property
    def reasons(self) -> Mapping[str, str]:
        """Reason codes that its outcomes may have, with their meaning in a sentence."""

    def __call__(self, document: Document) -> Outcome:
        """The outcome for one document."""
