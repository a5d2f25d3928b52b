"""The rules that FineWeb adds to those of Gopher and C4, for prose.

Penedo et al. 2024, *The FineWeb Datasets: Decanting the Web for the Finest Text Data at Scale* (arXiv 2406.17557),
section 3.6. FineWeb itself uses C4's rules without the one for lines that do not end a sentence:
`rules: [gopher, c4, fineweb]` with `off: [c4_line_end]`.
"""

from __future__ import annotations

from stoker.data.filters.rule import Rule

_SOURCE = "Penedo et al. 2024"

FINEWEB: tuple[Rule, ...] = (
    Rule(
        "fineweb_line_ends",
        "filter.sentence_line_share",
        "below",
        0.12,
        ("prose",),
        None,
        _SOURCE,
        "under 12% of the lines end a sentence",
    ),
    Rule(
        "fineweb_line_characters",
        "filter.duplicate_line_character_share",
        "above",
        0.1,
        ("prose",),
        None,
        _SOURCE,
        "over 10% is repeated lines",
    ),
    Rule(
        "fineweb_short_lines",
        "filter.short_line_share",
        "above",
        0.67,
        ("prose",),
        None,
        _SOURCE,
        "over 67% of the lines have at most 30 characters",
    ),
)
