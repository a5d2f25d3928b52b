"""The main text of a web page, without its navigation, advertising and other furniture.

`bounds.py` makes any page safe to parse, `page.py` parses it into flat lists, `furniture.py` marks what is not
content, `main_content.py` finds what is, `rendering.py` writes it as text; `formulae.py` and `mathjax.py` turn
formulae into TeX, `code_tables.py` finds code that is shown as a table.
`engines.py` is the door: ours, or another library's extractor.
"""

from stoker.data.extraction.engines import extract_text

__all__ = ["extract_text"]
