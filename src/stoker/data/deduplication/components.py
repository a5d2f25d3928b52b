"""Which of many documents may repeat one another: components of proposals, found in bounded memory.

Signatures are read once, in order; their band keys go to a temporary file, one row for each band. Then one band
after another is sorted, and documents that share a key and agree in enough entries are joined. In memory are, for
each document, its place in the union-find (4 bytes) and the keys and the order of one band (24 bytes).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from stoker.data.deduplication.bands import (
    agreement,
    band_keys,
    bands_and_rows,
    join,
    least_agreeing,
    root,
    without_tokens,
)
from stoker.data.deduplication.duplicates import Integers
from stoker.data.kernels import compiled
from stoker.data.minhash import Hashes, Signatures
from stoker.recipe import Deduplication

_CHUNK = 1 << 16
"""Documents whose signatures are in memory at a time."""

Reader = Callable[[Integers], Signatures]
"""Signatures of some documents, by their places in ascending or any other order: [places, permutations]."""


def components(read: Reader, count: int, settings: Deduplication, folder: Path, chunk: int = _CHUNK) -> Integers:
    """The component of each of `count` documents, known by its lowest member: int64 [count].

    Two documents are joined when they share a band and agree in as many entries as a pair at the threshold does but
    for three standard deviations. A document without tokens stays alone. `folder` holds the temporary file. Where
    more than `chunk` documents share one key, each is compared with those of its own part of them and the first.
    """
    bands, rows = bands_and_rows(settings)
    least = least_agreeing(settings)
    parents = np.arange(count, dtype=np.int32 if count < 2**31 else np.int64)
    empty = np.zeros(count, bool)
    with tempfile.TemporaryFile(dir=folder) as file:
        for start in range(0, count, chunk):
            places = np.arange(start, min(count, start + chunk))
            signatures = read(places)
            empty[places] = without_tokens(signatures)
            for band, keys in enumerate(band_keys(signatures, bands, rows)):
                file.seek(8 * (band * count + start))
                file.write(keys.tobytes())
        for band in range(bands):
            for documents, ends in _shared(_row(file, band, count), empty, chunk):
                _join_like(documents, ends, read(documents), parents, least)
    _flatten(parents)
    return parents.astype(np.int64)


def groups(component: Integers, ranks: Integers, most: int) -> Iterator[Integers]:
    """Documents of components of two or more, whole components together, about `most` documents at a time.

    Within a component they are ordered by `ranks`; a component of more than `most` comes by itself.
    """
    sizes = np.bincount(component, minlength=len(component))
    members = np.flatnonzero(sizes[component] > 1)
    members = members[np.lexsort((ranks[members], component[members]))]
    heads = component[members]
    starts = np.append(np.flatnonzero(np.append(True, heads[1:] != heads[:-1])), len(members))
    begin = 0
    for start, stop in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        if stop - begin > most and start > begin:
            yield members[begin:start]
            begin = start
    if len(members) > begin:
        yield members[begin:]


def _row(file: BinaryIO, band: int, count: int) -> Hashes:
    file.seek(8 * band * count)
    return np.frombuffer(file.read(8 * count), np.uint64)


def _shared(keys: Hashes, empty: npt.NDArray[np.bool_], chunk: int) -> Iterator[tuple[Integers, Integers]]:
    """Documents that share a key with another, about `chunk` at a time: (documents, where each bucket ends)."""
    order = np.argsort(keys)
    order = order[~empty[order]]
    if not len(order):
        return
    ordered = keys[order]
    same = ordered[1:] == ordered[:-1]
    inside = np.append(same, False) | np.append(False, same)
    order, first = order[inside], ~np.append(False, same)[inside]
    ends = np.append(np.flatnonzero(first)[1:], len(order)) if len(order) else order
    bucket, start = 0, 0
    while bucket < len(ends):
        last = max(bucket + 1, int(np.searchsorted(ends, start + chunk, side="right")))
        stop = int(ends[last - 1])
        if stop - start <= chunk:
            yield order[start:stop], ends[bucket:last] - start
        else:  # one bucket of very many
            for part in range(start + 1, stop, chunk):
                documents = np.append(order[start], order[part : min(stop, part + chunk)])
                yield documents, np.asarray([len(documents)])
        bucket, start = last, stop


@compiled
def _join_like(documents: Any, ends: Any, signatures: Any, parents: Any, least: int) -> None:
    start = 0
    for end in ends:
        different = 1  # components among the documents of this bucket so far; never fewer than there are
        for i in range(start + 1, end):
            joined = False
            for j in range(start, i):
                if root(parents, documents[i]) == root(parents, documents[j]):
                    joined = True
                elif agreement(signatures[i], signatures[j]) >= least:
                    join(parents, documents[i], documents[j])
                    different -= joined
                    joined = True
                if joined and different == 1:
                    break
            different += not joined
        start = end


@compiled
def _flatten(parents: Any) -> None:
    for i in range(parents.size):
        parents[i] = root(parents, i)
