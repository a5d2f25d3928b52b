"""The text an evaluation during training reads: held-out sequences, and prompts to continue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stoker.data.corpus import Corpus
from stoker.data.feeding import Feed, HeldOut
from stoker.data.tokenizer import TextEncoder
from stoker.recipe import Recipe


@dataclass(frozen=True)
class HeldOutText:
    """Fixed for the whole run, so that evaluations can be compared."""

    sources: list[HeldOut]
    prompts: list[list[int]]
    """Token ids of the recipe's prompts, each begun as a document is."""
    encoder: TextEncoder

    @classmethod
    def of(cls, corpus: Corpus, recipe: Recipe, feed: Feed) -> HeldOutText:
        """Read it from the corpus. Sources with nothing held out are left out."""
        encoder = TextEncoder(corpus.tokenizer_path, recipe.tokenizer)
        held_out = [feed.held_out(source.name, recipe.evaluation.sequences) for source in recipe.data.sources]
        prompts = [
            _without_end(ids.tolist(), encoder.eos_id)
            for ids in encoder.encode_documents(recipe.evaluation.prompts)
        ]
        return cls([source for source in held_out if source.batches], prompts, encoder)

    @property
    def eos_id(self) -> int | None:
        """The token that ends a document."""
        return self.encoder.eos_id

    def decode(self, ids: Sequence[int]) -> str:
        """The text that `ids` spell."""
        return self.encoder.decode(list(ids))


def _without_end(ids: list[int], eos_id: int | None) -> list[int]:
    return ids[:-1] if ids and ids[-1] == eos_id else ids
