"""Pages for the tests of extraction."""

from __future__ import annotations

SENTENCE = "The furnace is fed with coal that was washed and weighed before the shift began."
CHINESE = "炉子里烧的煤在交班之前已经洗净、称重，并且按照等级分别堆放在仓库里。"


def page(body: str, title: str = "Coal - Northgate") -> str:
    """A whole page."""
    return f"<!DOCTYPE html><html><head><title>{title}</title></head><body>{body}</body></html>"


def article(sentence: str = SENTENCE, paragraphs: int = 4) -> str:
    """Paragraphs of running text."""
    return f"<p>{sentence * 2}</p>" * paragraphs


def links(*labels: str) -> str:
    """A list of links."""
    return "<ul>" + "".join(f'<li><a href="/{n}">{label}</a></li>' for n, label in enumerate(labels)) + "</ul>"
