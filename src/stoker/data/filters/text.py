"""A text under the filters' eyes: what several measures need of it is worked out once, and only if asked for."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from stoker.data.filters.phrases import STOCK_PHRASES
from stoker.data.filters.scanning import Characters, Lines, count_characters, cut_lines, seen_before
from stoker.data.filters.spaced_words import RunsOfWords, SpacedWords, cut_spaced_words, runs_of
from stoker.data.minhash import Hashes, code_points, token_hashes
from stoker.recipe import Kind


class Text:
    """One document's text with what is known of it."""

    def __init__(self, text: str, kind: Kind, language: str | None = None) -> None:
        self.text, self.kind, self.language = text, kind, language

    @cached_property
    def code_points(self) -> npt.NDArray[np.uint32]:
        """Its characters [characters]."""
        return code_points(self.text)

    @cached_property
    def characters(self) -> Characters:
        """How many characters of each class it has."""
        return count_characters(self.code_points)

    @cached_property
    def is_ascii(self) -> bool:
        """Whether it has no character beyond ASCII."""
        return self.text.isascii()

    @cached_property
    def lines(self) -> Lines:
        """Its lines that are not blank."""
        return cut_lines(self.code_points)

    @cached_property
    def repeated_lines(self) -> npt.NDArray[np.bool_]:
        """Which of `lines` occurred before [lines]."""
        return seen_before(self.lines.hashes)

    @cached_property
    def paragraphs(self) -> tuple[int, int, int]:
        """(its paragraphs between blank lines, those that occurred before, characters of these)."""
        seen: set[str] = set()
        count = repeated = characters = 0
        for paragraph in self.text.split("\n\n"):
            if not (own := paragraph.strip()):
                continue
            count += 1
            if own in seen:
                repeated += 1
                characters += len(own)
            seen.add(own)
        return count, repeated, characters

    @cached_property
    def tokens(self) -> Hashes:
        """Hashes of its words (characters, in scripts without spaces), without symbols and punctuation [tokens]."""
        return token_hashes(self.text, symbols=False)

    @cached_property
    def stock_phrases(self) -> tuple[int, int]:
        """(how many stock phrases stand in it, how many different ones)."""
        return STOCK_PHRASES.count(self.code_points)

    @cached_property
    def is_spaced(self) -> bool:
        """Whether nearly all of its letters are of scripts that put spaces between words."""
        count = self.characters
        return count.unspaced_letters < 0.05 * count.letters

    @cached_property
    def spaced_words(self) -> SpacedWords:
        """Its words as rules count them that know only the blanks between them."""
        return cut_spaced_words(self.code_points)

    @cached_property
    def runs_of_words(self) -> RunsOfWords:
        """What the runs of `spaced_words` cover that occur more than once."""
        return runs_of(self.spaced_words)

    @cached_property
    def lowered(self) -> str:
        """It without capitals."""
        return self.text.lower()
