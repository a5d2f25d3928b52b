"""Locality-sensitive hashing: signatures cut into bands, and the pairs that share one (Indyk & Motwani 1998)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from stoker.data.kernels import compiled
from stoker.data.minhash import EMPTY, Hashes, Signatures, mixed
from stoker.recipe import Deduplication

_CHANCE_AT_THRESHOLD = 0.995
_DEVIATIONS_BELOW = 3


def bands_and_rows(settings: Deduplication) -> tuple[int, int]:
    """How a signature is cut: (bands, rows in each), as the recipe says or computed from the threshold.

    Computed, it is the most rows (fewest false proposals) with which a pair at the very threshold still shares a
    band with a probability of at least `_CHANCE_AT_THRESHOLD`; pairs above it are found with a higher one.
    """
    if settings.bands is not None and settings.rows is not None:
        return settings.bands, settings.rows
    for rows in range(settings.permutations, 1, -1):
        bands = settings.permutations // rows
        if 1 - (1 - settings.threshold**rows) ** bands >= _CHANCE_AT_THRESHOLD:
            return bands, rows
    return settings.permutations, 1


def least_agreeing(settings: Deduplication) -> int:
    """Equal entries below which a proposal is dismissed unread.

    Three standard deviations below what is expected of a pair at the threshold; one pair in 700 there is lost.
    """
    deviation = math.sqrt(settings.threshold * (1 - settings.threshold) / settings.permutations)
    return math.ceil((settings.threshold - _DEVIATIONS_BELOW * deviation) * settings.permutations)


def without_tokens(signatures: Signatures) -> npt.NDArray[np.bool_]:
    """Texts without a single token, which nothing resembles: bool [documents]."""
    return np.asarray((signatures == EMPTY).all(axis=1))


def band_keys(signatures: Signatures, bands: int, rows: int) -> Hashes:
    """One 64-bit key for each band and document, equal where all rows of the band are: [bands, documents]."""
    keys: Hashes = _band_keys(signatures, bands, rows)
    return keys


def band_links(signatures: Signatures, bands: int, rows: int) -> npt.NDArray[np.int32]:
    """For each document and band, the nearest earlier document with the same band, or -1: [documents, bands]."""
    links = np.full((len(signatures), bands), -1, dtype=np.int32)
    for band, keys in enumerate(band_keys(signatures, bands, rows)):
        order = np.argsort(keys, kind="stable")
        same = keys[order[1:]] == keys[order[:-1]]
        links[order[1:][same], band] = order[:-1][same]
    return links


def proposals(
    index: int,
    links: npt.NDArray[np.int32],
    gone: npt.NDArray[np.bool_],
    signatures: Signatures,
    stamps: npt.NDArray[np.int64],
    least: int,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Earlier documents that share a band with `index` and are not `gone`: (documents, agreeing entries).

    `links` are those of `band_links`; links over documents that are gone are shortened in place. Proposals with
    fewer than `least` equal entries are left out. `stamps` [documents] is working memory, -1 before the first call.
    """
    found: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] = _proposals(
        index, links, gone, signatures, stamps, least
    )
    return found


def unlike_proposals(
    index: int,
    links: npt.NDArray[np.int32],
    parents: npt.NDArray[np.int32],
    signatures: Signatures,
    stamps: npt.NDArray[np.int64],
    least: int,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """As `proposals`, of those in another component than `index` by `parents`; `links` stay as they are."""
    found: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] = _unlike_proposals(
        index, links, parents, signatures, stamps, least
    )
    return found


@compiled
def root(parents: Any, index: Any) -> Any:
    """The head of a component, with paths halved on the way (Tarjan & van Leeuwen 1984)."""
    while parents[index] != index:
        parents[index] = parents[parents[index]]
        index = parents[index]
    return index


@compiled
def join(parents: Any, left: Any, right: Any) -> None:
    """Make one component of two; the lower head stays."""
    left, right = root(parents, left), root(parents, right)
    parents[max(left, right)] = min(left, right)


@compiled
def agreement(left: Any, right: Any) -> int:
    """Equal entries of two signatures."""
    agreeing = 0
    for j in range(left.size):
        agreeing += left[j] == right[j]
    return agreeing


@compiled
def _band_keys(signatures: Any, bands: int, rows: int) -> Any:
    keys = np.empty((bands, signatures.shape[0]), np.uint64)
    for i in range(signatures.shape[0]):
        for band in range(bands):
            key = np.uint64(band)
            for j in range(band * rows, (band + 1) * rows):
                key = mixed((key + np.uint64(0x9E3779B97F4A7C15)) ^ np.uint64(signatures[i, j]))
            keys[band, i] = key
    return keys


@compiled
def _proposals(index: int, links: Any, gone: Any, signatures: Any, stamps: Any, least: int) -> Any:
    found = np.empty((2, 16), np.int64)
    count = 0
    for band in range(links.shape[1]):
        here = index
        while True:
            there = links[here, band]
            while there >= 0 and gone[there]:
                there = links[there, band]
            links[here, band] = there  # what is gone stays gone: the next walk skips it at once
            if there < 0:
                break
            here = there
            if stamps[here] == index:
                continue
            stamps[here] = index
            agreeing = agreement(signatures[index], signatures[here])
            if agreeing >= least:
                if count == found.shape[1]:
                    found = np.concatenate((found, np.empty((2, count), np.int64)), axis=1)
                found[0, count], found[1, count] = here, agreeing
                count += 1
    return found[0, :count], found[1, :count]


@compiled
def _unlike_proposals(index: int, links: Any, parents: Any, signatures: Any, stamps: Any, least: int) -> Any:
    found = np.empty((2, 16), np.int64)
    count = 0
    own = root(parents, index)
    for band in range(links.shape[1]):
        here = links[index, band]
        while here >= 0:
            if stamps[here] != index:
                stamps[here] = index
                if root(parents, here) != own:
                    agreeing = agreement(signatures[index], signatures[here])
                    if agreeing >= least:
                        if count == found.shape[1]:
                            found = np.concatenate((found, np.empty((2, count), np.int64)), axis=1)
                        found[0, count], found[1, count] = here, agreeing
                        count += 1
            here = links[here, band]
    return found[0, :count], found[1, :count]
