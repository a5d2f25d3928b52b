"""Repeated lines and paragraphs: the first copies stay, the later ones go, and nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stoker.data.deduplication.edits import Edits
from stoker.data.deduplication.keyed_file import KeyedFile
from stoker.data.deduplication.passages import passages, repeated_passages
from stoker.data.minhash import utf8
from tests.data.test_minhash import plain_tokens

LINES = [
    "A line of words.\n",
    "一行文字。\n",
    "a LINE of words\n",
    "\n",
    "  \n",
    "...\n",
    "short\n",
    "last line here",
]


def remaining(edits: Edits, texts: list[str]) -> list[str]:
    return [edits.applied(index, utf8(text)).tobytes().decode() for index, text in enumerate(texts)]


def cut(texts: list[str], unit: str, copies: int, characters: int, folder: Path) -> tuple[list[str], Edits]:
    edits = repeated_passages(
        np.arange(len(texts)),
        lambda index: utf8(texts[index]),
        unit,  # type: ignore[arg-type]
        copies,
        characters,
        folder,
    )
    return remaining(edits, texts), edits


def plainly(texts: list[str], copies: int, characters: int) -> list[str]:
    """The same for lines, where no blank ones stand between: line by line with a dictionary."""
    seen: dict[tuple[str, ...], int] = {}
    left = []
    for text in texts:
        kept = ""
        for line in text.splitlines(keepends=True):
            key = tuple(plain_tokens(line))
            seen[key] = seen.get(key, 0) + 1
            if not key or len(line.rstrip("\n")) < characters or seen[key] <= copies:
                kept += line
        left.append(kept)
    return left


@given(st.lists(st.lists(st.sampled_from([*LINES[:3], *LINES[5:7]]), max_size=6), max_size=6), st.integers(1, 3))
def test_lines_are_those_of_the_plain_rules(lines: list[list[str]], copies: int) -> None:
    texts = ["".join(one) for one in lines]
    assert cut(texts, "lines", copies, 1, Path("/tmp"))[0] == plainly(texts, copies, 1)


def test_blank_lines_go_with_the_line_before_and_short_ones_stay(tmp_path: Path) -> None:
    texts = ["Header of the site\n\n\nOne.\n", "Header of the site\n\nTwo.\n", "Two.\nHEADER of the site!"]
    left, edits = cut(texts, "lines", 1, 5, tmp_path)
    assert left == ["Header of the site\n\n\nOne.\n", "Two.\n", "Two.\n"]
    assert edits.characters.tolist() == [20, 19]
    assert edits.removed_bytes().tolist() == [20, 19]
    assert edits.reason == "repeated_lines"
    assert list(tmp_path.iterdir()) == []


def test_paragraphs_reach_to_the_next_blank_line(tmp_path: Path) -> None:
    texts = ["One line\nand another.\n\n第二段。\n", "第二段。\n \nOne line and another.\n\nOne line\n", "One line"]
    left, edits = cut(texts, "paragraphs", 1, 2, tmp_path)
    assert left == [texts[0], "One line\n", ""]
    assert edits.characters.tolist() == [30, 8]


@given(st.text(st.sampled_from("ab \n。中"), max_size=40), st.booleans())
def test_passages_are_in_order_and_within_the_text(text: str, paragraphs: bool) -> None:
    encoded = utf8(text)
    keys, spans = passages(encoded, paragraphs, 1)
    assert len(keys) == len(spans)
    assert (spans[1:, 0] >= spans[:-1, 1]).all()
    for start, stop in spans.tolist():
        assert 0 <= start < stop <= len(encoded)
        assert plain_tokens(encoded[start:stop].tobytes().decode())


def test_edits_are_read_as_they_were_written(tmp_path: Path) -> None:
    texts = ["Header of the site\n", "Header of the site\nText\n"]
    _, edits = cut(texts, "lines", 1, 1, tmp_path)
    with open(tmp_path / "edits", "wb") as stream:
        edits.write(stream)
        edits.write(stream)
    with open(tmp_path / "edits", "rb") as stream:
        for read in (Edits.read(stream), Edits.read(stream)):
            assert read.reason == edits.reason
            assert remaining(read, texts) == remaining(edits, texts)
            assert read.characters.tolist() == edits.characters.tolist()


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 100)), max_size=60), st.integers(1, 70))
def test_parts_hold_every_row_once_with_equal_keys_together(rows: list[tuple[int, int]], in_memory: int) -> None:
    keyed = KeyedFile(Path("/tmp"))
    for key, value in rows:
        keyed.add(np.asarray([key], np.uint64), np.asarray([value]))
    found, seen = [], set[int]()
    for keys, values in keyed.parts(in_memory):
        own = list(zip(keys.tolist(), values.tolist(), strict=True))
        assert own == sorted(own)
        assert not seen & {key for key, _ in own}
        seen |= {key for key, _ in own}
        found += own
    assert sorted(found) == sorted(rows)
