"""What rejects a document of mathematics: little. Symbols, digits and repeated phrases belong to it."""

from __future__ import annotations

from stoker.data.filters.measures import commonest_share, lost_share, repeated_line_share, repeated_share, words

_MANY_TOKENS = 100


def mathematics_rejection(text: str) -> str | None:
    """The reason to drop a text of mathematics, or None."""
    if lost_share(text) > 0.005:
        return "replacement_characters"
    lines = [stripped for line in text.split("\n") if (stripped := line.strip())]
    if len(lines) >= 10 and repeated_line_share(lines) > 0.7:
        return "repetition"
    tokens = words(text)
    if len(tokens) >= _MANY_TOKENS and (repeated_share(tokens, 10) > 0.8 or commonest_share(tokens, 3) > 0.6):
        return "repetition"
    return None
