"""What the published rules measure, as their papers define it.

Their words are what stands between blanks, so measures of words are absent in text of scripts without spaces.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial

import numpy as np
import numpy.typing as npt

from stoker.data.filters.scanning import begins_with_a_bullet, counted_runs, ends_a_sentence
from stoker.data.filters.stoker_measures import Measure
from stoker.data.filters.text import Text
from stoker.data.minhash import shingle_hashes

_GOPHER_STOP_WORDS = frozenset(("the", "be", "to", "of", "and", "that", "have", "with"))
_FINEWEB2_CHINESE_STOP_WORDS = frozenset("的年在月是和日了於·為有被人中为他與後也而由")
_SENTENCE_END = re.compile(r"[.!?][\"'”’)\]]*(?=\s|$)|[。．！？…]+[”’」』）]*")
_SHORT_LINE = 30


def _of_words(text: Text, count: float) -> float | None:
    return count / len(text.spaced_words) if text.is_spaced and len(text.spaced_words) else None


def _share(which: npt.NDArray[np.bool_]) -> float | None:
    return np.count_nonzero(which) / len(which) if len(which) else None


def spaced_words(text: Text) -> float | None:
    """Words between blanks that have a letter in them."""
    return float(text.spaced_words.with_letter) if text.is_spaced else None


def spaced_word_length(text: Text) -> float | None:
    """Characters in the mean word between blanks."""
    return _of_words(text, float(text.spaced_words.lengths.sum()))


def hash_ratio(text: Text) -> float | None:
    """Hash signs to a word."""
    return _of_words(text, text.text.count("#"))


def ellipsis_ratio(text: Text) -> float | None:
    """Ellipses to a word."""
    return _of_words(text, text.text.count("...") + text.text.count("…"))


def bullet_line_share(text: Text) -> float | None:
    """Lines that begin with a bullet, of all."""
    return _share(begins_with_a_bullet(text.lines.first))


def ellipsis_line_share(text: Text) -> float | None:
    """Lines that end in an ellipsis, of all."""
    if "..." not in text.text and "…" not in text.text:
        return 0.0 if text.text.strip() else None
    lines = [stripped for line in text.text.split("\n") if (stripped := line.rstrip())]
    return sum(line.endswith(("...", "…")) for line in lines) / len(lines) if lines else None


def word_with_letter_share(text: Text) -> float | None:
    """Words that have a letter in them, of all."""
    return _of_words(text, text.spaced_words.with_letter)


def english_stop_words(text: Text) -> float | None:
    """How many of `the be to of and that have with` occur."""
    if not text.is_spaced:
        return None
    if all(f" {word} " in text.lowered for word in _GOPHER_STOP_WORDS):  # as nearly always; words need not be cut
        return float(len(_GOPHER_STOP_WORDS))
    return float(len(_GOPHER_STOP_WORDS.intersection(text.lowered.split())))


def duplicate_line_share(text: Text) -> float | None:
    """Lines that occurred before, of all."""
    return _share(text.repeated_lines)


def duplicate_line_character_share(text: Text) -> float:
    """Characters in lines that occurred before, of all."""
    return float(text.lines.lengths[text.repeated_lines].sum() / len(text.text))


def duplicate_paragraph_share(text: Text) -> float | None:
    """Paragraphs that occurred before, of all."""
    count, repeated, _ = text.paragraphs
    return repeated / count if count else None


def duplicate_paragraph_character_share(text: Text) -> float:
    """Characters in paragraphs that occurred before, of all."""
    return text.paragraphs[2] / len(text.text)


def _commonest_words(text: Text, size: int) -> float | None:
    return int(text.runs_of_words.commonest[size]) / len(text.text) if text.is_spaced else None


def _repeated_words(text: Text, size: int) -> float | None:
    return int(text.runs_of_words.repeated[size]) / len(text.text) if text.is_spaced else None


def sentences(text: Text) -> float:
    """How many sentences there are, by the marks that end them."""
    return float(sum(1 for _ in _SENTENCE_END.finditer(text.text)))


def lorem_ipsum(text: Text) -> float:
    """1 where `lorem ipsum` occurs, else 0."""
    return float("lorem ipsum" in text.lowered)


def curly_brackets(text: Text) -> float:
    """1 where an opening curly bracket occurs, else 0."""
    return float("{" in text.text)


def sentence_line_share(text: Text) -> float | None:
    """Lines that end with a mark that ends a sentence, of all."""
    return _share(ends_a_sentence(text.lines.last))


def short_line_share(text: Text) -> float | None:
    """Lines of at most 30 characters, of all."""
    return _share(text.lines.lengths <= _SHORT_LINE)


def characters(text: Text) -> float:
    """How many characters there are."""
    return float(len(text.text))


def mean_line_length(text: Text) -> float:
    """Characters to a line, blank lines included."""
    return len(text.text) / (text.text.count("\n") + 1)


def han_share(text: Text) -> float:
    """Chinese characters, of all characters."""
    return text.characters.han / text.characters.total


def repeated_13_character_share(text: Text) -> float | None:
    """Runs of 13 Chinese characters (words, in other scripts) that occur more than once, of all."""
    runs = shingle_hashes(text.tokens, 13)
    return counted_runs(runs)[1] / len(runs) if len(text.tokens) > 13 else None


def chinese_stop_words(text: Text) -> float:
    """How many of 22 stop words of Chinese occur."""
    return float(len(_FINEWEB2_CHINESE_STOP_WORDS.intersection(text.text)))


PUBLISHED_MEASURES: Mapping[str, Measure] = {
    **{
        f"filter.{measure.__name__}": measure
        for measure in (
            spaced_words,
            spaced_word_length,
            hash_ratio,
            ellipsis_ratio,
            bullet_line_share,
            ellipsis_line_share,
            word_with_letter_share,
            english_stop_words,
            duplicate_line_share,
            duplicate_line_character_share,
            duplicate_paragraph_share,
            duplicate_paragraph_character_share,
            sentences,
            lorem_ipsum,
            curly_brackets,
            sentence_line_share,
            short_line_share,
            characters,
            mean_line_length,
            han_share,
            repeated_13_character_share,
            chinese_stop_words,
        )
    },
    **{f"filter.commonest_{n}_words_share": partial(_commonest_words, size=n) for n in range(2, 5)},
    **{f"filter.repeated_{n}_words_share": partial(_repeated_words, size=n) for n in range(5, 11)},
}
"""By their names in rules and in the ledger."""
