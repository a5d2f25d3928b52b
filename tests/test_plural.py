"""One thing is called one, several are called several."""

from __future__ import annotations

import pytest

from stoker.plural import counted, first_of


@pytest.mark.parametrize(
    ("number", "many", "expected"),
    [
        (1, "ranks", "1 rank"),
        (2, "ranks", "2 ranks"),
        (0, "threads", "0 threads"),
        (1, "accumulated micro-batches", "1 accumulated micro-batch"),
        (1, "processes", "1 process"),
        (1, "sequences", "1 sequence"),
        (1, "bytes", "1 byte"),
        (1, "entries", "1 entry"),
        (1, "vocabulary", "1 vocabulary"),
        (12345, "tokens", "12,345 tokens"),
    ],
)
def test_a_number_and_its_word_agree(number: int, many: str, expected: str) -> None:
    assert counted(number, many) == expected


def test_of_thousands_of_names_some_are_said_and_how_many_there_are() -> None:
    assert first_of(["a", "b"]) == "a, b"
    assert first_of([f"s{number}" for number in range(2000)], 2) == "s0, s1 and 1,998 more"
