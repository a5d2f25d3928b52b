"""Line cleaning: furniture of pages goes, whatever could be text stays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.data.line_cleaning import KINDS, clean_lines
from tests.data.written_text import MANNERS, chinese, english

PAGE = """Home
About us
Login

Skip to main content

The boat left the harbour at dawn, and nobody on the quay had expected it to come back so soon.

Share on Facebook

We use cookies to improve your experience on this site.

The captain said nothing. He walked up the hill, opened the door, and sat down by the fire.

© 2021 Harbour News Ltd. All rights reserved.
Privacy | Terms | Cookies | Contact"""
CHINESE_PAGE = """首页 > 新闻中心 > 正文

清晨，小船离开了港口，码头上没有人想到它会这么快回来。

分享到：
微信
微博

船长什么也没说。他走上山坡，打开门，坐在火炉旁边。

责任编辑：张三
京ICP备12345678号-2
上一篇：港口的早晨"""
KEPT = {
    "verse": "Share this bread, O friend,\nRead more and more\nBack to the top of the hill,\nHome, home at last.",
    "Chinese verse": "床前明月光\n疑是地上霜\n举头望明月\n低头思故乡",
    "table": "| Home | About | Contact |\n|---|---|---|\n| Login | Register | Help |",
    "fenced code": "```\nHome\nLogin\nShare on Facebook\n```",
    "indented code": "Text before.\n\n    Home\n    Login\n    Subscribe to our newsletter",
    "list": "- flour\n- two eggs\n- a pinch of salt\n- milk",
    "formula": "$$\nx = y + z\n$$\n\n---\n\n* * *\n\n=====",
    "headings": "# Home\n\n## Contact\n\n## Related articles\n\nThe text.",
    "a sentence about cookies": "Most people share cookies with their neighbours; we use cookies at Christmas.",
    "a wrapped paragraph": "The rule says that in such a case the words are those which users of\nfacebook\nknow.",
    "one word alone": "Share\n\nThe first paragraph is long enough to be a paragraph of a text.",
    "years": "1914\n\nThe war began.\n\n1918\n\nThe war ended.\n\n1939\n\nAnother began.",
}


def test_a_page_keeps_its_paragraphs_and_loses_its_furniture() -> None:
    cleaned = clean_lines(PAGE)
    assert cleaned.text == (
        "The boat left the harbour at dawn, and nobody on the quay had expected it to come back so soon.\n\n"
        "The captain said nothing. He walked up the hill, opened the door, and sat down by the fire."
    )
    assert cleaned.removed == {"furniture": 8}
    assert cleaned.lines == 10


def test_a_chinese_page_keeps_its_paragraphs_and_loses_its_furniture() -> None:
    cleaned = clean_lines(CHINESE_PAGE)
    assert cleaned.text.split("\n\n") == [
        "清晨，小船离开了港口，码头上没有人想到它会这么快回来。",
        "船长什么也没说。他走上山坡，打开门，坐在火炉旁边。",
    ]


@pytest.mark.parametrize("name", KEPT)
def test_what_could_be_text_stays(name: str) -> None:
    assert clean_lines(KEPT[name]).text == KEPT[name]


@pytest.mark.parametrize("manner", MANNERS)
def test_clean_text_stays_as_it_is(manner: str) -> None:
    text = MANNERS[manner](0)
    assert clean_lines(text).text == text


@pytest.mark.parametrize("number", ["{}", "- {} -", "Page {} of 9", "第 {} 页 共 9 页"])
def test_page_numbers_that_count_up_go_with_the_head_that_stands_by_them(number: str) -> None:
    pages = [
        f"A Voyage North\n{number.format(page)}\n\n"
        + "\n".join(english(10 * page + line, 12) for line in range(10))
        for page in range(3, 8)
    ]
    cleaned = clean_lines("\n\n".join(pages))
    assert "A Voyage North" not in cleaned.text
    assert not any(number.format(page) in cleaned.text.split("\n") for page in range(3, 8))
    assert cleaned.removed["running_head"] == 10
    assert english(30, 12) in cleaned.text


def test_numbers_that_do_not_count_pages_stay() -> None:
    lines = "\n\n".join(f"{number}\n{english(number, 20)}" for number in (3, 9, 4, 12))
    assert clean_lines(lines).text == lines


@pytest.mark.parametrize("signs", ["★★★★★", "◆ ◆ ◆", "►►►"])
def test_rows_of_signs_go(signs: str) -> None:
    cleaned = clean_lines(f"{chinese(1, 40)}\n{signs}\n{chinese(2, 40)}")
    assert cleaned.text == f"{chinese(1, 40)}\n{chinese(2, 40)}"
    assert cleaned.removed == {"symbols": 1}


PIECES = [*"ab。 \n|#`~-12★", "Home\n", "Login\n", "首页\n", "分享到：", "Page 3\n"]


@given(st.lists(st.sampled_from(PIECES), max_size=60).map("".join))
def test_lines_are_taken_out_and_never_changed(text: str) -> None:
    cleaned = clean_lines(text)
    left = [line for line in cleaned.text.split("\n") if line and not line.isspace()]
    rest = iter(text.split("\n"))
    assert all(line in rest for line in left), "the lines that are left stand in their order"
    assert cleaned.lines - sum(cleaned.removed.values()) == len(left)
    assert set(cleaned.removed) <= set(KINDS)
    assert cleaned.removed or cleaned.text == text
