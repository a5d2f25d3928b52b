"""The engines that take the main text out of a page: ours, and two other libraries'."""

from __future__ import annotations

from typing import Literal

from stoker.errors import BadInput

Engine = Literal["stoker", "trafilatura", "resiliparse"]


def extract_text(page: str, engine: Engine = "stoker") -> str:
    """The main text of an HTML page; paragraphs are separated by blank lines. Any page gives some answer.

    Raises `BadInput` where the engine is another library and it is not installed.
    """
    if engine == "trafilatura":
        return _by_trafilatura(page)
    if engine == "resiliparse":
        return _by_resiliparse(page)
    return _by_stoker(page)


def require_engine(engine: Engine, where: str) -> None:
    """Raises `BadInput` naming the field `where` and what to install, where an engine cannot be used."""
    import importlib.util

    if engine != "stoker" and importlib.util.find_spec(engine) is None:
        raise BadInput(
            f"{where}: `{engine}` is not installed; run `pip install 'stoker[{engine}]'`, or let it be `stoker`"
        )


def _by_stoker(html: str) -> str:
    from stoker.data.extraction.code_tables import blocks_of_code
    from stoker.data.extraction.main_content import find_main
    from stoker.data.extraction.measuring import measure
    from stoker.data.extraction.page import parse
    from stoker.data.extraction.rendering import render

    page = parse(html)
    blocks_of_code(page)
    if not page.tags:
        return ""
    found = find_main(page, measure(page))
    text = render(page, found.start, found.dropped)
    if found.title is None:
        return text
    title = render(page, found.title, found.dropped)
    return f"{title}\n\n{text}".strip()


def _by_trafilatura(page: str) -> str:
    from trafilatura import extract

    return extract(page, include_comments=False) or ""


def _by_resiliparse(page: str) -> str:
    from resiliparse.extract.html2text import extract_plain_text

    return str(extract_plain_text(page, main_content=True, alt_texts=False))
