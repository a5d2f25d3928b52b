"""No page costs more time or memory than its size explains, and none loses its text or raises."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.data.extraction import extract_text
from stoker.data.extraction.bounds import MOST_NESTED, bounded
from tests.data.extraction.pages import SENTENCE

DEEP = 100_000
HOSTILE = {
    "nested": "<div>" * DEEP + SENTENCE + "</div>" * DEEP,
    "nested and never closed": "<div>" * DEEP + SENTENCE,
    "nested behind end tags that close nothing": "<div></span>" * DEEP + SENTENCE,
    "nested behind end tags in comments": "<div><!--</div>-->" * DEEP + SENTENCE,
    "nested lists": "<ul><li>" * DEEP + SENTENCE,
    "nested tables": "<table><tr><td>" * DEEP + SENTENCE,
    "nested formatting": "<b><i><p>" * DEEP + SENTENCE,
    "nested foreign elements": "<math>" + "<mrow>" * DEEP + f"</math><p>{SENTENCE}",
    "attributes": "<p " + " ".join(f"a{n}" for n in range(DEEP)) + f">{SENTENCE}",
    "attributes with tags in them": "<p " + " ".join(f'a{n}="<b>"' for n in range(DEEP)) + f">{SENTENCE}",
    "attributes between slashes": "<p" + "".join(f"/a{n}" for n in range(DEEP)) + f">{SENTENCE}",
    "a huge attribute": f'<p title="{"x" * 10_000_000}">{SENTENCE}',
    "a huge class": f'<p class="{"ad " * 1_000_000}x">{SENTENCE}<p>{SENTENCE}',
    "quotes that never close": "<a b='" * 3 + f"<p>{SENTENCE}</p>'>{SENTENCE}",
    "tags that never close": "<a" * DEEP + f" ><p>{SENTENCE}</p>",
    "entities": "&amp;&#x4e2d;&bogus;" * DEEP + f"<p>{SENTENCE}</p>",
    "NUL": f"<p>\0{SENTENCE}\0</p>\0",
    "breaks": "<br>" * DEEP + SENTENCE,
    "items": "<li>a" * DEEP + f"<p>{SENTENCE}",
    "links": '<a href="x">a</a>' * DEEP + f"<p>{SENTENCE}",
    "headings": "<h1>a</h1>" * DEEP + f"<p>{SENTENCE}",
    "images in base64": f'<p>{SENTENCE}<img src="data:image/png;base64,{"iVBORw0KGgo" * DEEP}">' * 5,
    "a background in base64": f'<p style="background:url(data:image/png;base64,{"A" * 5_000_000})">{SENTENCE}',
    "a huge script": f"<script>{'var a=1;</div><div>' * DEEP}</script><p>{SENTENCE}",
    "a script that never closes": f"<p>{SENTENCE}</p><script>{'var a=1;</div><div>' * DEEP}",
    "a comment that never closes": f"<p>{SENTENCE}</p><!-- {'x' * 5_000_000}",
    "a huge drawing": f"<svg>{'<path d=M0/>' * DEEP}</svg><p>{SENTENCE}",
    "line ends": f"<p>字{chr(10) * 1_000_000}{SENTENCE}",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_page_keeps_its_text(kind: str) -> None:
    assert SENTENCE in extract_text(HOSTILE[kind])


@pytest.mark.parametrize("kind", ["nested", "attributes", "images in base64", "links", "items"])
def test_memory_is_bounded_by_the_page_and_its_tags(kind: str) -> None:
    """Of what Python allocates; the parser's own is a multiple of the page as well."""
    page = HOSTILE[kind]
    tracemalloc.start()
    try:
        extract_text(page)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 20 * len(page) + 1_000 * page.count("<")


def test_nesting_is_bounded_and_no_text_is_lost() -> None:
    flat = bounded("<div>a" * DEEP)
    assert flat.count("<div>") == MOST_NESTED
    assert flat.count("a") == DEEP


def test_an_ordinary_page_is_parsed_as_it_is() -> None:
    ordinary = '<div class="a b" id=c data-x="<>"><p>x<br/><img src=data:,x alt=\'y\'>' * 300
    assert bounded(ordinary) is ordinary


_SOUP_WORDS = (
    "<div> </div> <p> <table> <td> </table> <pre> </pre> <a_href=x> </a> <math> <mfrac> </math> <script> </script> "
    "<style> <!-- --> <svg> <template> <ul> <li> <sup> 2 &lt; < > \" ' = \0 字 text. <br> <h1> <article> <nav> "
    "<mjx-container> <title> <textarea> <frameset> <body> </body> </html> <plaintext>"
)
_SOUP = [word.replace("_", " ") for word in _SOUP_WORDS.split()]


@given(st.lists(st.sampled_from(_SOUP), max_size=60).map("".join))
def test_any_soup_gives_some_text(soup: str) -> None:
    text = extract_text(soup)
    assert text == text.strip("\n")
    assert "\n\n\n" not in text or "<pre>" in soup


def test_twice_the_page_costs_about_twice_the_time() -> None:
    """Counted in calls of the interpreter, not in seconds: the same on every machine."""
    import sys

    def calls(page: str) -> int:
        count = 0

        def profile(frame: object, event: str, argument: object) -> None:
            nonlocal count
            count += 1

        sys.setprofile(profile)
        try:
            extract_text(page)
        finally:
            sys.setprofile(None)
        return count

    for one in ("<div><p>a</p>", "<ul><li>a", f"<div><h2>b</h2><p>{SENTENCE}</p></div>", "<main>", "<pre>a</pre>"):
        assert calls(one * 2000) < 2.5 * calls(one * 1000), one
