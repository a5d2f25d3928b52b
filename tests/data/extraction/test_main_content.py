"""What is navigation, advertising or comment is left out, and what only looks like it is kept."""

from __future__ import annotations

import pytest

from stoker.data.extraction import extract_text
from tests.data.extraction.pages import CHINESE, SENTENCE, article, links, page

TITLES = ("How steel is made", "Why boilers burst", "A walk through the works")


@pytest.mark.parametrize(
    "furniture",
    [
        f"<nav>{links(*TITLES)}</nav>",
        f'<div class="sidebar"><p>{SENTENCE}</p></div>',
        f'<div id="comments"><p>{SENTENCE}</p><p>How true.</p></div>',
        f'<div class="cookie-banner"><p>{SENTENCE}</p></div>',
        f'<div class="post-related"><h3>Related</h3>{links(*TITLES)}</div>',
        f'<div role="dialog"><p>{SENTENCE}</p></div>',
        f'<div class="siteFooter"><p>{SENTENCE}</p></div>',
        f"<footer><p>{SENTENCE}</p></footer>",
        f'<div style="display: none"><p>{SENTENCE}</p></div>',
        f"<div>{links(*TITLES)}</div>",
        f"<noscript><p>{SENTENCE}</p></noscript>",
    ],
)
@pytest.mark.parametrize("sentence", [SENTENCE, CHINESE])
def test_furniture_is_left_out_wherever_it_stands(furniture: str, sentence: str) -> None:
    furniture = furniture.replace(SENTENCE, sentence.replace("The", "No").replace("炉", "锅"))
    text = article(sentence)
    for body in (furniture + text, text + furniture, f"<div>{furniture}<div>{text}</div></div>"):
        assert extract_text(page(body)) == "\n\n".join([sentence * 2] * 4)


def test_a_wrapper_that_is_called_furniture_keeps_its_text() -> None:
    wrapped = f'<div class="sidebar-layout menu"><div class="footer-fixed">{article()}</div></div>'
    assert extract_text(page(wrapped)).count(SENTENCE) == 8


def test_a_section_of_a_manual_is_not_what_its_name_says() -> None:
    manual = "".join(
        f'<section id="{name.lower()}"><h2>{name}</h2><p>{SENTENCE}</p></section>'
        for name in ("Comments", "Navigation", "Footer", "Sharing", "Ads")
    )
    assert extract_text(page(f'<div role="main">{manual}</div>')).count(SENTENCE) == 5


def test_comments_that_are_longer_than_the_article_are_left_out() -> None:
    comments = "".join(f"<div class='comment'><p>{SENTENCE} I am {n}.</p></div>" for n in range(40))
    text = extract_text(page(f'<div class="entry-content">{article()}</div><div id="comments">{comments}</div>'))
    assert text.count(SENTENCE) == 8


def test_a_column_of_titles_without_a_name_is_left_out() -> None:
    column = "".join(f'<div><a href="/{n}">{title}</a></div>' for n, title in enumerate(TITLES * 3))
    beside = f'<div class="x3">{column}<p>New: {SENTENCE}</p></div>'
    body = f'<div class="x1"><div class="x2">{article()}</div>{beside}</div>'
    assert "New:" not in extract_text(page(body))


def test_the_title_is_taken_from_outside_of_the_text_and_only_once() -> None:
    outside = f'<div class="head"><h1>Coal</h1></div><div class="entry-content">{article()}</div>'
    inside = f'<div class="entry-content"><h1>Coal</h1>{article()}</div>'
    for body in (outside, inside):
        text = extract_text(page(body))
        assert text.startswith(f"Coal\n\n{SENTENCE}")
        assert text.count("Coal") == 1
    assert extract_text(page(outside, title="Northgate")).startswith(SENTENCE)


def test_lines_of_furniture_inside_the_text_are_left_out() -> None:
    body = f"<article>{article()}<p>Share on Facebook</p><p>上一篇：没有了</p>{article()}</article>"
    assert extract_text(page(body)) == "\n\n".join([SENTENCE * 2] * 8)


def test_a_page_of_lists_keeps_its_lists() -> None:
    index = links(*(f"{title} {n}" for n in range(20) for title in TITLES))
    around = f'<div class="nav">{links("Home")}</div>', f'<div class="footer">{SENTENCE}</div>'
    text = extract_text(page(f'<div role="main"><h1>Index</h1>{index}</div>'.join(around)))
    assert text.count("boilers") == 20
    assert SENTENCE not in text


@pytest.mark.parametrize("label", ["Whole story", "Onwards to the furnaces", "查看整篇", "去往下一座高炉"])
@pytest.mark.parametrize(
    "block", ['<p><a href="/1">{}</a></p>', '<div class="c7"><a href="/1"><b>{}</b></a></div>']
)
def test_a_paragraph_that_is_a_few_linked_words_is_a_button_whatever_they_are(label: str, block: str) -> None:
    text = extract_text(page(f'<div class="x1">{article()}{block.format(label)}{article()}</div>'))
    assert label not in text
    assert text.count(SENTENCE) == 16


@pytest.mark.parametrize(
    "kept",
    [
        '<p><a href="/1">Furnaces are fed at noon.</a></p>',
        '<p>See <a href="/1">Furnaces</a></p>',
        "<p>Furnaces</p>",
        '<h2><a href="/1">Furnaces</a></h2>',
        '<ul><li><p><a href="/1">Furnaces</a></p></li></ul>',
        '<table><tr><td><div><a href="/1">Furnaces</a></div></td></tr></table>',
        '<dl><dt>a</dt><dd><p><a href="/1">Furnaces</a></p></dd></dl>',
        '<p><a href="/1"><code>Furnaces</code></a></p>',
        '<p><a href="/1">Furnaces.feed()</a></p>',
        '<p><a href="/1">https://Furnaces.example</a></p>',
        f'<p><a href="/1">Furnaces {"and more of them " * 3}</a></p>',
    ],
)
def test_links_that_are_sentences_entries_titles_or_references_stay(kept: str) -> None:
    assert "Furnaces" in extract_text(page(f'<div class="x1">{article()}{kept}{article()}</div>'))


def test_in_a_page_without_running_text_links_are_the_text() -> None:
    listed = "".join(f'<p><a href="/{n}">Furnace {n}</a></p>' for n in range(30))
    assert extract_text(page(f'<div role="main">{listed}</div>')).count("Furnace") == 30
