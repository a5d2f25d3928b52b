"""A prepared corpus of a run's own with bad text where certain steps read it.

Bad text is encoded with the corpus's own tokenizer and written over the tokens of the sequences; where documents
begin and end stays, and so do the tokens that say so. Digests of steps, and what `stoker data show` prints, are
those of what is there.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from stoker.data.corpus import MANIFEST, Corpus
from stoker.data.feeding import Feed
from stoker.data.feeding.feed import Span
from stoker.data.tokenizer import TextEncoder
from stoker.durable_files import sha256_of_file, write_json
from stoker.recipe import Recipe
from stoker.recovery.dynamics.bad_text import bad_text
from stoker.recovery.dynamics.batches import spread
from stoker.recovery.faults import Fault

Tokens = npt.NDArray[np.int64]


def spoil_corpus(corpus_folder: Path, recipe: Recipe, faults: Sequence[Fault], into: Path) -> dict[str, list[int]]:
    """Copy the corpus to `into`, with bad text as `faults` (`bad_data`) say; files that stay the same are linked.

    Returns the numbers of the samples that are bad, by fault.
    """
    shutil.rmtree(into, ignore_errors=True)
    shutil.copytree(corpus_folder, into, copy_function=_link)
    corpus = Corpus.open(into)
    feed = Feed(corpus, recipe)
    spoiling = _Spoiling(corpus, recipe)
    spoiled: dict[str, list[int]] = {}
    for fault in faults:
        last = min(fault.step + int(fault.option("steps")) - 1, recipe.training.steps)
        for step in range(fault.step, last + 1):
            samples = feed.samples(step)
            bad = set(samples[spread(len(samples), fault.option("strength"))].tolist())
            spoiled.setdefault(str(fault), []).extend(sorted(bad))
            for span in feed.spans(step):
                if span.sample in bad:
                    spoiling.spoil(span, fault.word("what"))
    spoiling.finish()
    return spoiled


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copy2(source, target)


class _Spoiling:
    def __init__(self, corpus: Corpus, recipe: Recipe) -> None:
        self._corpus = corpus
        self._encoder = TextEncoder(corpus.tokenizer_path, recipe.tokenizer)
        self._special = [one for one in (corpus.bos_id, corpus.eos_id) if one is not None]
        self._dice = random.Random(recipe.seed)
        self._written: dict[Path, npt.NDArray[np.uint16 | np.uint32]] = {}

    def spoil(self, span: Span, what: str) -> None:
        """Write bad text over a stretch of a document."""
        store = self._corpus.store(span.source, "train")
        start = int(store.document_starts[span.document])
        begin, end = start + span.start, start + span.stop
        ids = store.read(begin, end)
        ordinary = ~np.isin(ids, self._special)
        ids[ordinary] = self._bad(ids[ordinary], what)
        first = 0
        for path, tokens in self._shards_of(span.source):
            if begin < first + tokens and end > first:
                part = slice(max(begin - first, 0), min(end - first, tokens))
                taken = max(first - begin, 0)
                self._content(path)[part] = ids[taken : taken + part.stop - part.start]
            first += tokens

    def _shards_of(self, source: str) -> list[tuple[Path, int]]:
        """Its training text's files, in order, and the tokens of each."""
        (entry,) = (one for one in self._corpus.manifest["sources"] if one["name"] == source)
        shards = entry["splits"]["train"]["shards"]
        return [(self._corpus.folder / shard["file"], shard["tokens"]) for shard in shards]

    def _bad(self, ids: Tokens, what: str) -> Tokens:
        if not len(ids):
            return ids
        if what == "tokenizer":
            return self._of_another_tokenizer(ids)
        text = self._encoder.decode(ids)
        found = self._encoder.encode_documents([bad_text(what, text, self._dice)])[0].astype(np.int64)
        return np.resize(found[~np.isin(found, self._special)], len(ids))

    def _of_another_tokenizer(self, ids: Tokens) -> Tokens:
        """The same words under the numbers of another vocabulary."""
        ordinary = np.setdiff1d(np.arange(self._corpus.vocabulary_size), self._special)
        shuffled = np.random.default_rng(0).permutation(ordinary)
        return shuffled[np.searchsorted(ordinary, ids)]

    def _content(self, path: Path) -> npt.NDArray[np.uint16 | np.uint32]:
        """A shard's tokens, to be changed: in a file of its own from now on."""
        if path not in self._written:
            dtype = np.dtype(self._corpus.manifest["dtype"]).newbyteorder("<")
            own = path.with_suffix(".spoiled")
            shutil.copyfile(path, own)
            os.replace(own, path)
            self._written[path] = np.memmap(path, dtype, mode="r+")
        return self._written[path]

    def finish(self) -> None:
        """Write everything, and the manifest with the new digests."""
        for content in self._written.values():
            assert isinstance(content, np.memmap)
            content.flush()
        manifest = self._corpus.folder / MANIFEST
        said = json.loads(manifest.read_text(encoding="utf-8"))
        changed = {str(path.relative_to(self._corpus.folder)): sha256_of_file(path) for path in self._written}
        for source in said["sources"]:
            for split in source["splits"].values():
                for shard in split["shards"]:
                    shard["sha256"] = changed.get(shard["file"], shard["sha256"])
        manifest.unlink()  # it may be a link to the other corpus's
        write_json(manifest, said)
