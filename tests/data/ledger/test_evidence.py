"""What a measure found in a text is pointed at, however long the text is."""

from __future__ import annotations

import tracemalloc

import pytest

from stoker.data.ledger.evidence import LOOKED_AT, evidence


def test_what_counts_most_comes_first_and_of_what_counts_for_nothing_there_is_none() -> None:
    text = "a <b>word</b> and <b>another</b><br>"
    assert evidence("filter.markup_share", text) == "tags: '<b' 2 times, '</b' 2 times, '<br' 1 time"
    assert evidence("filter.repeated_line_share", "one\ntwo\nthree") is None
    assert evidence("filter.digit_share", "1 2 3") is None


@pytest.mark.parametrize("measure", ["filter.repeated_phrase_share", "filter.repeated_line_share"])
def test_of_a_very_long_text_the_beginning_is_looked_at_and_that_is_said(measure: str) -> None:
    words = " ".join(f"w{number}" for number in range(80_000))
    line = "the same line of ten words stands here again and again\n"
    text = line * 40 + words + " behind it all" * 400_000
    assert len(text) > 6 * LOOKED_AT
    tracemalloc.start()
    found = evidence(measure, text)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found is not None
    assert found.endswith("(in its first 1,000,000 characters)")
    assert peak < 250 * LOOKED_AT
