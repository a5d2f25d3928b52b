"""Lines that recur on the pages of a host: in any words, in the same company, and none of the text's own."""

from __future__ import annotations

import random
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stoker.data.deduplication.host_furniture import LEAST_PAGES, host_furniture
from stoker.data.minhash import utf8
from tests.data.small_corpus import sentence


def without_furniture(texts: list[str], folder: Path, hosts: list[int] | None = None) -> list[str]:
    keys = np.asarray(hosts or [7] * len(texts), np.uint64)
    edits = host_furniture(np.arange(len(texts)), keys, lambda number: utf8(texts[number]), folder)
    return [edits.applied(number, utf8(text)).tobytes().decode() for number, text in enumerate(texts)]


def bodies(number: int) -> list[str]:
    draw = random.Random(number)
    return [f"{sentence(draw, 12)}\n\n{sentence(draw, 12)}" for _ in range(number)]


def test_menus_and_footers_in_words_nobody_listed_are_cut(tmp_path: Path) -> None:
    own = bodies(8)
    texts = [
        f"Kiln diary\nGlaze shelf\n\n{text}\n\nZurück zur Werkstatt\n{number} 次围观\n想看更多陶器"
        for number, text in enumerate(own)
    ]
    assert [text.strip() for text in without_furniture(texts, tmp_path)] == own


def test_a_sentence_that_recurs_by_itself_is_cut_and_a_heading_is_not(tmp_path: Path) -> None:
    own = [f"{text}\n\nExamples\n\n{text[::-1]}" for text in bodies(8)]
    notice = "Little jars are kept on this machine while you read."
    texts = [text.replace("\n\n", f"\n\n{notice}\n\n", 1) for text in own]
    assert without_furniture(texts, tmp_path) == own


def test_code_tables_markup_and_what_a_colon_introduces_are_never_cut(tmp_path: Path) -> None:
    same = (
        "import numpy\nimport torch\n\nint main() {\n}\n\n```\nHome\nNews\n```\n\n    Home\n    News\n\n"
        "| Home\n| News\n\nOptions:\n--verbose\n\n# Summary\n# Motivation\n\n.SH NAME\n.SH BUGS"
    )
    texts = [f"{text}\n\n{same}\n\n{text[::-1]}" for text in bodies(8)]
    assert without_furniture(texts, tmp_path) == texts


def test_a_line_recurs_on_a_host_and_not_on_the_web(tmp_path: Path) -> None:
    texts = [f"Kiln diary\nGlaze shelf\n\n{text}" for text in bodies(20)]
    assert without_furniture(texts, tmp_path, [1 + number % 5 for number in range(20)]) == texts
    left = without_furniture(texts, tmp_path, [1 + number // 10 for number in range(20)])
    assert not any("Kiln" in text for text in left)


def test_numbers_alone_make_no_lines_the_same(tmp_path: Path) -> None:
    texts = [
        f"{text}\n\nVersion {number}.4 mends what {number}.3 broke.\n\nBugfixes\n\n{text[::-1]}"
        for number, text in enumerate(bodies(9))
    ]
    texts += [f"{text}\n\nBugfixes\n\n{text[::-1]}" for text in bodies(10)]
    assert without_furniture(texts, tmp_path) == texts


WORDS = ("Kiln diary", "Glaze shelf", "Back to the wheel", "import os", "Notes:", "12 jars", "", "    indented")


@given(st.lists(st.lists(st.sampled_from(WORDS), max_size=6), max_size=12), st.randoms())
def test_the_order_of_pages_does_not_matter_and_rare_lines_stay(
    pages: list[list[str]], draw: random.Random
) -> None:
    with TemporaryDirectory() as name:
        _check_order(pages, draw, Path(name))


def _check_order(pages: list[list[str]], draw: random.Random, folder: Path) -> None:
    texts = ["\n".join(page) for page in pages]
    left = without_furniture(texts, folder)
    order = list(range(len(texts)))
    draw.shuffle(order)
    again = without_furniture([texts[number] for number in order], folder)
    assert again == [left[number] for number in order]
    for text, kept in zip(texts, left, strict=True):
        gone = set(text.split("\n")) - set(kept.split("\n")) - {""}
        assert all(sum(line in page for page in pages) >= LEAST_PAGES for line in gone)
        assert not gone & {"import os", "    indented"}
