"""Filters: which documents are not worth training on, and why."""

from __future__ import annotations

from stoker.recipe import Cleaning, Kind

REASONS: dict[str, str] = {
    "empty": "nothing but blanks is left after cleaning",
    "too_short": "fewer characters than data.cleaning.minimum_characters",
    "too_large": "more bytes than data.cleaning.maximum_document_bytes",
}


def rejection(text: str, kind: Kind, language: str | None, settings: Cleaning) -> str | None:
    """Why the cleaned `text` is dropped (a key of `REASONS`), or None when it is kept."""
    if not text.strip():
        return "empty"
    if len(text) < settings.minimum_characters:
        return "too_short"
    if len(text) * 4 > settings.maximum_document_bytes and len(text.encode()) > settings.maximum_document_bytes:
        return "too_large"
    return None
