"""Duplicates among any texts, from an iterator to the list of those that go, in bounded memory.

What the preparation of a corpus does with units of files, this does with a stream of texts: they and their
signatures go to temporary files, and come back where something must be verified.
"""

from __future__ import annotations

import hashlib
import tempfile
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from stoker.data.deduplication.components import components, groups
from stoker.data.deduplication.duplicates import Duplicates, Integers
from stoker.data.deduplication.exact import exact_duplicates
from stoker.data.deduplication.near import near_duplicates
from stoker.data.deduplication.preference import ranks
from stoker.data.deduplication.stored_rows import stored_rows
from stoker.data.minhash import Signatures, Utf8, sign_utf8
from stoker.recipe import Deduplication

_BATCH_BYTES = 4 << 20
_GROUP = 1 << 14


def find_duplicates(
    texts: Iterable[str],
    settings: Deduplication,
    quality: npt.NDArray[np.float64] | None = None,
    folder: Path | None = None,
) -> Duplicates:
    """The texts that go, exact and near duplicates by the settings, numbered in the order given.

    `quality` [texts] is what `keep: best` compares. Temporary files lie in `folder`, as large as the texts and a
    signature for each; by default in the system's own. The outcome is that of `stoker prepare` for one source
    without held-out text.
    """
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        stored = _Stored(texts, settings, Path(temporary))
        preferred = ranks(settings, stored.digests, stored.characters, quality)
        exact = exact_duplicates(stored.digests, preferred) if settings.exact else Duplicates.of(())
        if not settings.near:
            return exact
        left = np.delete(np.arange(len(stored.digests)), exact.index)
        found = [exact]
        component = components(lambda places: stored.signatures(left[places]), len(left), settings, Path(temporary))
        for places in groups(component, preferred[left], _GROUP):
            group = left[places]
            near = near_duplicates(stored.texts(group), settings, stored.signatures(group))
            found.append(Duplicates(group[near.index], group[near.duplicate_of], near.similarity))
        return Duplicates.joined(found)


class _Stored:
    """Texts and signatures on disk; in memory 56 bytes for each text."""

    def __init__(self, texts: Iterable[str], settings: Deduplication, folder: Path) -> None:
        self._permutations = settings.permutations
        self._settings = settings
        sizes, characters, digests = array("q"), array("q"), bytearray()
        batch: list[bytes] = []
        self._files = folder / "texts", folder / "signatures"
        with open(self._files[0], "wb") as written, open(self._files[1], "wb") as signed:
            waiting = 0
            for text in texts:
                encoded = text.encode("utf-8", "surrogatepass")
                batch.append(encoded)
                sizes.append(len(encoded))
                characters.append(len(text))
                digests += hashlib.sha256(encoded).digest()
                waiting += len(encoded)
                if waiting >= _BATCH_BYTES:
                    self._flush(batch, written, signed)
                    batch, waiting = [], 0
            self._flush(batch, written, signed)
        self._text = open(self._files[0], "rb", buffering=0)  # noqa: SIM115
        self._offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.frombuffer(sizes, np.int64))])
        self.characters: Integers = np.frombuffer(characters, np.int64)
        self.digests = np.frombuffer(digests, np.uint8).reshape(-1, 32)

    def _flush(self, batch: list[bytes], written: BinaryIO, signed: BinaryIO) -> None:
        joined = b"".join(batch)
        written.write(joined)
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum([len(one) for one in batch], dtype=np.int64)])
        buffer = np.frombuffer(joined, np.uint8)
        signed.write(sign_utf8(buffer, offsets, self._settings.shingle_size, self._permutations).tobytes())

    def signatures(self, places: Integers) -> Signatures:
        """Of some texts: [places, permutations]."""
        return stored_rows(self._files[1], places, self._permutations)

    def texts(self, places: Integers) -> _Some:
        """Some texts, fetched when they are asked for."""
        return _Some(self._text, self._offsets[places], self._offsets[places + 1])


class _Some(Sequence[Utf8]):
    def __init__(self, file: BinaryIO, starts: Integers, stops: Integers) -> None:
        self._file, self._starts, self._stops = file, starts, stops

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, index: int) -> Utf8:  # type: ignore[override]
        start = int(self._starts[index])
        self._file.seek(start)
        return np.frombuffer(self._file.read(int(self._stops[index]) - start), np.uint8)
