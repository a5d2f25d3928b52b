"""What every search for repeated documents answers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Duplicates:
    """Removed documents; arrays of shape [removed], ordered by `index`."""

    index: Integers
    """Places of the removed documents among those that were given."""
    duplicate_of: Integers
    """Place of the document that each repeats: one that is kept, or, for an identical text, one that may have gone
    in turn because it resembles a third."""
    similarity: npt.NDArray[np.float64]
    """Verified Jaccard similarity of the two, 1.0 for an identical text."""

    def __len__(self) -> int:
        return len(self.index)

    @classmethod
    def of(cls, rows: Iterable[tuple[int, int, float]]) -> Duplicates:
        """From rows of (index, duplicate_of, similarity)."""
        ordered = sorted(rows)
        return cls(
            np.asarray([row[0] for row in ordered], np.int64),
            np.asarray([row[1] for row in ordered], np.int64),
            np.asarray([row[2] for row in ordered], np.float64),
        )

    @classmethod
    def joined(cls, parts: Iterable[Duplicates]) -> Duplicates:
        """Several searches' answers over the same documents as one."""
        listed = list(parts)
        order = np.argsort(np.concatenate([part.index for part in listed]))
        return cls(
            np.concatenate([part.index for part in listed])[order],
            np.concatenate([part.duplicate_of for part in listed])[order],
            np.concatenate([part.similarity for part in listed])[order],
        )

    def rows(self) -> list[tuple[int, int, float]]:
        """As rows of (index, duplicate_of, similarity)."""
        return list(zip(self.index.tolist(), self.duplicate_of.tolist(), self.similarity.tolist(), strict=True))
