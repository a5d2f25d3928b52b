"""Text looks as it was meant: code as it is, rows, items, powers."""

from __future__ import annotations

import html

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.data.extraction import extract_text
from tests.data.extraction.pages import SENTENCE, article, page

CODE = "def f(x):\n\tif x < 1:\n\n\n        return x   # <done> &amp;"


@pytest.mark.parametrize(
    "block",
    [
        "<pre><code>{}</code></pre>",
        '<div class="highlight"><pre><span></span><span class="comment">{}</span></pre></div>',
        '<table><tr><td class="linenos"><pre>1\n2</pre></td><td><pre>{}</pre></td></tr></table>',
        '<div><pre><span class="lineno">1 </span>{}</pre><button>Copy</button></div>',
    ],
)
def test_code_keeps_every_blank_and_line(block: str) -> None:
    text = extract_text(page(article() + block.format(html.escape(CODE)) + article()))
    assert f"{SENTENCE}\n\n{CODE}\n\n{SENTENCE}" in text


@given(st.text(st.sampled_from("ab <>&\"'\t\n{}()#字"), min_size=1).filter(lambda code: code.strip("\n").strip()))
def test_any_code_comes_back_as_it_was(code: str) -> None:
    text = extract_text(page(f"{article()}<pre>\n{html.escape(code)}</pre>{article()}"))
    assert f"\n\n{code.strip(chr(10)).rstrip()}\n\n" in text


def test_lines_of_code_that_are_elements_stay_lines() -> None:
    lines = "<pre><div>a = 1</div><div>  b = 2</div>c = 3<br>d = 4</pre>"
    assert "a = 1\n  b = 2\nc = 3\nd = 4" in extract_text(page(article() + lines)).replace("\n\n", "\n")


def test_powers_are_not_run_into_their_base() -> None:
    body = f"<p>About 10<sup>5</sup> m<sup>2</sup>, the 5<sup>th</sup>, x<sup>n</sup>. {SENTENCE}</p>"
    assert extract_text(page(body)).startswith("About 10^5 m^2, the 5th, x^n.")


def test_tables_are_rows_and_lists_are_items() -> None:
    body = (
        f"{article()}<table><tr><th>Coal<th>Ash</tr><tr><td><p>7</p><td>0.2</tr></table>"
        f"<ol><li><p>wash</p><li>weigh</ol><dl><dt>Ash</dt><dd>What is left</dd></dl>"
    )
    assert extract_text(page(body)).endswith("Coal\tAsh\n7\t0.2\n\n1. wash\n\n2. weigh\n\nAsh\nWhat is left")


def test_items_have_the_numbers_that_the_page_says() -> None:
    text = extract_text(
        page(f'{article()}<ol start="3"><li>a</li><li value="7">b</li><li>c</li></ol><ol><li>d</li></ol>')
    )
    assert [line for line in text.split("\n") if line[:1].isdigit()] == ["3. a", "7. b", "8. c", "1. d"]


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("炉子里烧的煤，\n    已经洗净", "炉子里烧的煤，已经洗净"),
        ("これは\r\n石炭です。", "これは石炭です。"),
        ("炉子\n furnace", "炉子 furnace"),
        ("炉子 里", "炉子 里"),
        ("석탄은\n씻었다", "석탄은 씻었다"),
        ("coal\nwashed", "coal washed"),
    ],
)
def test_a_line_end_between_chinese_characters_is_no_space(written: str, shown: str) -> None:
    assert shown in extract_text(page(f"{article()}<p>{written}</p>"))


def test_lists_inside_of_lists_keep_their_nesting() -> None:
    body = (
        f"{article()}<ul><li>a<ul><li>b<ol start=9><li>c</li><li>d<ul><li>e</ul></li></ol></li><li>f</li></ul></li>"
        "<li>g</li></ul>"
    )
    assert extract_text(page(body)).endswith("\n\n- a\n  - b\n    9. c\n    10. d\n        - e\n  - f\n- g")


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ("<ul><li>a</li><ul><li>b</li></ul><li>c</li></ul>", "- a\n  - b\n- c"),
        ("<ul><li><p>a</p><ul><li><p>b</p></li></ul></li><li>c</li></ul>", "- a\n\n  - b\n\n- c"),
        ("<ul><li><ul><li>a</li><li>b</li></ul></li></ul>", "- - a\n  - b"),
        ("<ul><li>a<li>b<ul><li>c</ul><li>d</ul>", "- a\n- b\n  - c\n- d"),
        ("<ul><li>a<div><div><ul><li>b</li></ul></div></div></li></ul>", "- a\n  - b"),
        ("<ul><li>a</li></ul><ul><li>b</li></ul>", "- a\n\n- b"),
        ("<ul><li>a<ul><li></li></ul></li><li>b</li></ul>", "- a\n- b"),
    ],
)
def test_nesting_is_that_of_the_page_however_it_is_written(body: str, shown: str) -> None:
    assert extract_text(page(f"{article()}{body}")).endswith(f"\n\n{shown}")


def test_code_inside_of_a_list_is_not_moved() -> None:
    text = extract_text(page(f"{article()}<ul><li>a<ul><li>b<pre>if x:\n    y</pre></li></ul></li></ul>"))
    assert "\n\nif x:\n    y" in text


def test_deep_lists_do_not_make_a_page_grow() -> None:
    written = page(article() + "<ul><li>a" * 390 + "<li>b" * 5_000)
    assert len(extract_text(written)) < 6 * len(written)
