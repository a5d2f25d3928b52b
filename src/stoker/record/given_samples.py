"""The samples that a step was given in place of the recipe's, as a row's `given_samples` spells them."""

from __future__ import annotations

import json

_LARGEST_SAMPLE = 2**62
_MOST_SAMPLES = 2**24
"""More than any global batch has: a row that claims more is damaged, and nobody lists its samples."""


def given_stretches(spelled: str) -> list[list[int]]:
    """`[[first, last + 1], …]` in their order; none of a text that spells no stretches of samples."""
    try:
        told = json.loads(spelled)
        stretches = [[first, after] for first, after in told]
    except (ValueError, TypeError):
        return []
    if not all(type(first) is int and type(after) is int for first, after in stretches):
        return []
    if not all(0 <= first < after < _LARGEST_SAMPLE for first, after in stretches):
        return []
    return stretches if sum(after - first for first, after in stretches) <= _MOST_SAMPLES else []
