"""The `tokenizer` section: how text becomes tokens."""

from __future__ import annotations

from pydantic import Field

from stoker.recipe.section import Section

SMALLEST_VOCABULARY = 260
"""The 256 bytes, two special tokens, and a little that was learnt."""


class Tokenizer(Section):
    """How text becomes tokens."""

    path: str | None = None
    """A given `tokenizer.json`, relative to the recipe; without it a byte-level BPE is trained."""
    vocabulary_size: int = Field(default=4096, ge=SMALLEST_VOCABULARY, le=2**20)
    """Entries of a trained vocabulary, the 256 bytes and the special tokens included. Ignored with `path`."""
    add_bos: bool = True
    """Put exactly one beginning-of-text token before each document."""
    add_eos: bool = True
    """Put exactly one end-of-text token after each document."""
    bos_token: str = "<|begin_of_text|>"
    eos_token: str = "<|end_of_text|>"
    training_megabytes: float = Field(default=64, gt=0)
    """Text the vocabulary is trained on: a sample balanced over sources, in 10^6 bytes."""
