# ruff: noqa: E501 (markup as it is on pages)
"""Code that is shown as a table comes out as one block; a table about code stays a table."""

from __future__ import annotations

import html

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.data.extraction import extract_text
from tests.data.extraction.pages import SENTENCE, article, page

CODE = ["def f(x):", "\tif x < 1:", "", "", "        return   x   # <done> &amp;"]


def rows(form: str, lines: list[str] = CODE) -> str:
    made = "".join(form.format(n=number, line=html.escape(line)) for number, line in enumerate(lines, 1))
    return f"<table class='highlight'>\n <tbody>{made}</tbody>\n</table>"


FORMS = {
    "github": '\n<tr>\n  <td id="L{n}" class="blob-num js-line-number" data-line-number="{n}"></td>\n  <td class="blob-code blob-code-inner js-file-line"><span class="pl-k">{line}</span></td>\n </tr>',
    "github, saved with numbers": '<tr><td class="blob-num">{n}</td><td class="blob-code">{line}\n</td></tr>',
    "gitea": '<tr><td class="lines-num"><span data-line-number="{n}">{n}</span></td><td class="lines-code"><code class="code-inner">{line}\n</code></td></tr>',
    "highlight.js": '<tr><td class="hljs-ln-line hljs-ln-numbers" data-line-number="{n}"><div class="hljs-ln-n"></div></td><td class="hljs-ln-line hljs-ln-code">{line}</td></tr>',
    "a cell beside its number": '<tr><td class="line-number">{n}</td><td>{line}</td></tr>',
    "two numbers": '<tr><td class="blob-num">{n}</td><td class="blob-num">{n}</td><td class="blob-code blob-code-context">{line}</td></tr>',
}


@pytest.mark.parametrize("form", FORMS)
def test_a_table_of_lines_is_one_block_of_code_without_numbers(form: str) -> None:
    text = extract_text(page(article() + rows(FORMS[form]) + article()))
    assert f"{SENTENCE}\n\n" + "\n".join(CODE).rstrip() + f"\n\n{SENTENCE}" in text


@given(
    st.lists(st.text(st.sampled_from("ab <>&\"'\t{}()#字1"), max_size=9), min_size=1, max_size=6).filter(
        lambda lines: lines[0].strip() and lines[-1].strip()
    )
)
def test_any_lines_come_back_as_they_were(lines: list[str]) -> None:
    text = extract_text(page(article() + rows(FORMS["github"], lines) + article()))
    assert f"\n\n{chr(10).join(lines).rstrip()}\n\n" in text


def test_a_page_of_nothing_but_code_is_its_code() -> None:
    text = extract_text(page(f"<nav><a href='/'>Home</a></nav>{rows(FORMS['github'])}"))
    assert text == "\n".join(CODE).rstrip()


def test_a_code_table_inside_of_a_table_of_layout_is_code() -> None:
    inner = rows(FORMS["github"])
    text = extract_text(page(f"{article()}<table><tr><td>Listing 7</td></tr><tr><td>{inner}</td></tr></table>"))
    assert text.endswith("Listing 7\n\n" + "\n".join(CODE).rstrip())


def test_a_comparison_says_what_was_added_and_removed() -> None:
    sides = (
        '<tr><td class="blob-num">1</td><td class="blob-code blob-code-context">a</td><td class="blob-num">1</td><td class="blob-code blob-code-context">a</td></tr>'
        '<tr><td class="blob-num">2</td><td class="blob-code blob-code-deletion">b</td><td class="blob-num">2</td><td class="blob-code blob-code-addition">c</td></tr>'
    )
    assert extract_text(page(f"{article()}<table>{sides}</table>")).endswith("\n\n a\n-b\n+c")


@pytest.mark.parametrize(
    "row",
    [
        '<tr><td class="code-line">sort()</td><td>puts in order</td></tr>',
        '<tr><td class="line-number">7</td><td>Harbour</td><td>Mill</td></tr>',
        '<tr><td class="blob-num">ash and clinker</td><td class="blob-code">x = 1</td></tr>',
        '<tr><td class="line-number">7</td><td><p>Harbour</p><p>Mill</p></td></tr>',
    ],
)
def test_a_table_with_other_text_in_it_keeps_it(row: str) -> None:
    text = extract_text(page(f"{article()}<table>{row * 3}</table>"))
    for word in ("sort()", "puts in order", "Harbour", "Mill", "ash and clinker", "x = 1"):
        assert text.count(word) == 3 * (word in row)
