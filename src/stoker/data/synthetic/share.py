"""Keeps synthetic text within the share of the training text that the recipe allows."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from stoker.recipe import Data
from stoker.recipe.synthetic import share_follows_size

Integers = npt.NDArray[np.int64]
OVER_SHARE = "over_synthetic_share"
"""Reason under which documents are dropped here."""


class Texts(Protocol):
    """Documents as selection knows them."""

    names: list[str]
    sources: Integers
    bytes: Integers
    contents: npt.NDArray[np.uint8]


def over_share(texts: Texts, training: Integers, data: Data) -> Integers:
    """Of the `training` documents, those of synthetic sources that are too much, in order.

    Where weights decide the share the recipe was refused if it is too high, and nothing is dropped. Where text is
    taken in proportion to its size, documents are drawn by their content until their bytes are the share that is
    allowed, beside the bytes of real text.
    """
    most = data.synthetic_share_at_most
    if most is None or not share_follows_size(data.sources, data.mixture):
        return training[:0]
    written = {source.name for source in data.sources if source.synthetic}
    by_source = np.asarray([name in written for name in texts.names], np.bool_)
    synthetic = by_source[texts.sources[training]]
    room = int(texts.bytes[training[~synthetic]].sum()) * most / (1 - most)
    own = training[synthetic]
    # The first bytes of a content's hash decide whether it is held out; these are others.
    drawn = np.ascontiguousarray(texts.contents[own, 8:16]).view(">u8").ravel()
    order = own[np.argsort(drawn, kind="stable")]
    return np.sort(order[np.cumsum(texts.bytes[order]) > room])
