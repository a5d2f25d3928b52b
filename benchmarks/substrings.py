"""Repeated substrings by minimizers and by a suffix array: the same bytes, at what cost?

    python benchmarks/substrings.py FOLDER [--megabytes 20] [--length 200]

FOLDER holds text as `*.jsonl.gz` with a field `text`. The peer is a suffix array over all of the text with the
common prefixes of its neighbours (`pip install pydivsufsort`): a stretch of so many bytes is a repetition where
another document, or the same one, has it before. Each search has a process of its own; seconds are CPU seconds.
"""

from __future__ import annotations

import argparse
import gzip
import json
import resource
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import numpy.typing as npt

from stoker.data.deduplication import substrings
from stoker.data.minhash import Utf8, utf8

Bytes = npt.NDArray[np.uint8]
Covered = npt.NDArray[np.bool_]


def texts_of(folder: Path, size: int) -> list[Utf8]:
    """About `size` bytes, a like share of every file, document after document."""
    files = sorted(folder.glob("*.jsonl.gz"))
    found: list[Utf8] = []
    for file in files:
        left = size // len(files)
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            for line in lines:
                text = utf8(json.loads(line)["text"])[: max(left, 0)]
                left -= len(text)
                if not len(text):
                    break
                found.append(text)
    return found


def by_minimizers(texts: list[Utf8], length: int) -> Covered:
    """Marks of the bytes that Stoker's search cuts, before it gives way to whole words and characters."""
    marked: list[npt.NDArray[np.int64]] = []
    whole_words = substrings._at_whole_words

    def kept(text: Utf8, spans: npt.NDArray[np.int64], starts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        marked.append(spans)
        return whole_words(text, spans, starts)

    substrings._at_whole_words = kept
    with tempfile.TemporaryDirectory() as folder:
        substrings.repeated_substrings(np.arange(len(texts)), texts.__getitem__, length, Path(folder))
    covered = np.zeros(sum(map(len, texts)) + 1, np.int64)
    for spans in marked:
        np.add.at(covered, spans[:, 0], 1)
        np.add.at(covered, spans[:, 1], -1)
    return np.cumsum(covered)[:-1] > 0


def by_suffix_array(texts: list[Utf8], length: int) -> Covered:
    """The same by the definition: of equal stretches within documents, all but the first."""
    from pydivsufsort import divsufsort, kasai

    whole = np.concatenate(texts)
    order = divsufsort(whole)
    common = kasai(whole, order)
    ends = np.repeat(np.cumsum([len(text) for text in texts]), [len(text) for text in texts])
    inside = np.arange(len(whole)) + length <= ends
    group = np.cumsum(np.concatenate([[True], common[: len(order) - 1] < length]))
    places = np.asarray(order)[inside[order]].astype(np.int64)
    groups = group[inside[order]]
    first = np.full(int(group[-1]) + 1, len(whole), np.int64)
    np.minimum.at(first, groups, places)
    repeated = places[places != first[groups]]
    covered = np.zeros(len(whole) + 1, np.int64)
    np.add.at(covered, repeated, 1)
    np.add.at(covered, repeated + length, -1)
    return np.cumsum(covered)[:-1] > 0


def measured(
    search: Callable[[list[Utf8], int], Covered], folder: Path, size: int, length: int
) -> tuple[float, float, Covered]:
    """(CPU seconds, MiB of memory beyond the text and the libraries, what was marked); compiled beforehand."""
    texts = texts_of(folder, size)
    search([texts[0][:5000], texts[0][:5000]], length)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    marked = search(texts, length)
    seconds = time.process_time() - began
    return seconds, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024, marked


def main() -> None:
    """Print both searches side by side."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--megabytes", type=float, default=20)
    parser.add_argument("--length", type=int, default=200, help="bytes")
    given = parser.parse_args()
    results = {}
    for search in (by_minimizers, by_suffix_array):
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as apart:
            size = int(given.megabytes * 1e6)
            results[search] = apart.submit(measured, search, given.folder, size, given.length).result()
            seconds, memory, marked = results[search]
            told = f"{seconds:7.1f} CPU s  {memory:7.0f} MiB  {int(marked.sum()):,} bytes repeat"
            print(f"{search.__name__:<16} {told}", flush=True)
    ours, peer = (results[search][2] for search in (by_minimizers, by_suffix_array))
    print(f"{len(ours):,} bytes of text; marked by one and not by the other: {int((ours != peer).sum()):,}")


if __name__ == "__main__":
    main()
