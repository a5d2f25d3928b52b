"""Removal of what is repeated: which documents repeat others, and which passages of text.

    digests ─ exact ─► signatures ─ bands ─► components ─ near ─► documents that go, and which they repeat

A pair of documents is *proposed* when their MinHash signatures share a band, and *verified* by the Jaccard
similarity of their shingles themselves. No document is removed on a proposal alone.
"""

from __future__ import annotations

from stoker.data.deduplication.duplicates import Duplicates
from stoker.data.deduplication.exact import exact_duplicates
from stoker.data.deduplication.near import near_duplicates, near_others
from stoker.data.deduplication.search import find_duplicates
from stoker.data.deduplication.signing import sign

__all__ = ["Duplicates", "exact_duplicates", "find_duplicates", "near_duplicates", "near_others", "sign"]
