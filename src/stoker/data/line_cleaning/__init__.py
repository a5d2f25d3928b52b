"""Lines that are no part of a text: the furniture of web pages, running heads, page numbers, rows of signs."""

from __future__ import annotations

from stoker.data.line_cleaning.cleaning import KINDS, Cleaned, clean_lines

__all__ = ["KINDS", "Cleaned", "clean_lines"]
