"""Whether a prepared corpus has enough text of every source to be trained on."""

from __future__ import annotations

from typing import Any

from stoker.data.corpus import Corpus
from stoker.errors import BadInput
from stoker.plural import counted, first_of
from stoker.recipe import Recipe


def require_enough_tokens(corpus: Corpus, recipe: Recipe) -> None:
    """Raise `BadInput` when a source that is to be trained on has less than one sequence, or nothing to predict."""
    needed = recipe.training.sequence_length
    taken = recipe.data.taken_sources
    short = []
    for source in corpus.manifest["sources"]:
        found = source["splits"]["train"]
        if source["name"] in taken and found["tokens"] < needed:
            lost = ", ".join(_losses(corpus, source["name"]))
            short.append(
                f"source `{source['name']}` has {counted(found['tokens'], 'training tokens')} in "
                f"{counted(found['documents'], 'documents')}" + (f" ({lost})" if lost else "")
            )
    if short:
        raise BadInput(
            f"every source needs at least one sequence of training.sequence_length ({needed:,}) tokens, but "
            + first_of(short, between="; ")
            + ". Give it more text, leave it out, set its weight to 0, or shorten training.sequence_length"
        )

    single = [
        source["name"]
        for source in corpus.manifest["sources"]
        if source["name"] in taken and _nothing_to_predict(corpus, source)
    ]
    if single:
        raise BadInput(
            f"nothing can be learnt from {', '.join(f'source `{name}`' for name in single)}: every document is a "
            "single token, and a token is predicted only from those before it in its document. Make documents "
            "longer (data.sources[].documents), or set tokenizer.add_bos"
        )


def _nothing_to_predict(corpus: Corpus, source: dict[str, Any]) -> bool:
    found = source["splits"]["train"]
    if found["tokens"] > found["documents"]:
        return False
    return bool(corpus.store(source["name"], "train").document_lengths.max() < 2)


def _losses(corpus: Corpus, source: str) -> list[str]:
    """Where a source's documents went, in words: `3 fault: truncated`."""
    return [
        f"{entry['documents']:,} {entry['stage'].replace('_', ' ')}"
        + (f": {entry['reason']}" if "reason" in entry else "")
        for entry in corpus.manifest["funnel"]
        if entry["source"] == source and entry["stage"] not in ("read", "kept") and entry["documents"]
    ]
