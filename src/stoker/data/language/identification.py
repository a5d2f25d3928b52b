"""Which language a text is in: what share of it each language has, judged on a sample of up to 1,600 characters.

A text is sampled in up to eight windows spread evenly over it, so a long document costs no more than a page. In a
window each alphabet is counted; where many languages share one, a model of hashed n-grams says how likely each is
(`features.py`), computer code being one of them. Shares are of the UTF-8 bytes of letters: a Chinese character
weighs as much as three Latin letters, which is about what it says.

The model was trained by `benchmarks/language_model.py`; `docs/language.md` says on what, and what it gets right.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt

from stoker.data.kernels import compiled
from stoker.data.language.alphabets import (
    ALPHABETS,
    BYTES,
    HAN,
    KANA,
    LANGUAGE_OF,
    SHARED,
    alphabet_table,
    plain_table,
)
from stoker.data.language.features import BUCKET_BITS, buckets_of, plain_form

CODE, MIXED = "code", "mixed"
WINDOW, WINDOWS = 200, 8
"""Characters of a window, and how many are looked at."""
_MIXED_FROM = 0.25
_KANA_OF_JAPANESE = 0.1
_BESIDE_CHINESE = {"en": 4.5, CODE: 2.5}
"""Of Latin letters among Chinese: by how much (in natural logarithms) these are likelier than other languages."""
_LAST_SHARED = max(SHARED)


@dataclass(frozen=True, slots=True)
class Identified:
    """What was found out about a text's language."""

    label: str | None
    """`zh`, `en` or another ISO 639-1 code; `code` for computer code; `mixed` where Chinese and English both have
    a quarter of the text; None for text without letters."""
    confidence: float
    """How much of the text is in that language, each piece by how likely it is; 0 to 1."""
    shares: Mapping[str, float]
    """The same for every language with a share, which together make 1 (0 without letters)."""


@dataclass(frozen=True)
class _Model:
    slots: npt.NDArray[np.int32]
    """Row in `vectors` of each bucket, or -1."""
    vectors: npt.NDArray[np.int8]
    rows: npt.NDArray[np.float32]
    labels: tuple[str, ...]
    alphabet: npt.NDArray[np.uint8]
    """Which alphabet each label is written in."""


@lru_cache(maxsize=1)
def _model() -> _Model:
    with files("stoker.data.language").joinpath("model.npz").open("rb") as stream, np.load(stream) as stored:
        slots = np.full(1 << BUCKET_BITS, -1, np.int32)
        slots[np.cumsum(stored["buckets"].astype(np.int64))] = np.arange(len(stored["vectors"]))
        labels = tuple(map(str, stored["labels"]))
        return _Model(slots, stored["vectors"], stored["rows"], labels, stored["alphabet"])


@lru_cache(maxsize=1)
def _english_and_code() -> npt.NDArray[np.float64]:
    return np.asarray([_BESIDE_CHINESE.get(label, 0.0) for label in _model().labels])


def languages() -> tuple[str, ...]:
    """Every label but `mixed`, in no order that matters."""
    return tuple(sorted({"zh", "ja", *LANGUAGE_OF.values(), *_model().labels}))


def identify(text: str) -> Identified:
    """The language of `text`, and the shares of all languages in it. Deterministic; never raises."""
    model = _model()
    sample, starts = _sampled(text)
    own = np.frombuffer(sample.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    of_alphabets, of_labels = _weighed(
        own,
        starts,
        plain_table(),
        alphabet_table(),
        BYTES,
        model.slots,
        model.vectors,
        model.rows,
        model.alphabet,
        _english_and_code(),
    )
    total = float(of_alphabets.sum() + of_labels.sum())
    if not total:
        return Identified(None, 0.0, {})
    shares: dict[str, float] = {}
    for names, weights in ((_names_of_alphabets(), of_alphabets), (model.labels, of_labels)):
        for number in np.flatnonzero(weights > 0).tolist():
            shares[names[number]] = shares.get(names[number], 0.0) + float(weights[number]) / total
    chinese, english = shares.get("zh", 0.0), shares.get("en", 0.0)
    if min(chinese, english) >= _MIXED_FROM:
        return Identified(MIXED, chinese + english, shares)
    label = max(sorted(shares), key=shares.__getitem__)
    return Identified(label, shares[label], shares)


def _sampled(text: str) -> tuple[str, npt.NDArray[np.int64]]:
    """The windows of a text, one after another, and where each starts (and the last ends)."""
    if len(text) <= WINDOW * WINDOWS:
        count = max(1, round(len(text) / WINDOW))
        return text, np.arange(count + 1, dtype=np.int64) * len(text) // count
    step = (len(text) - WINDOW) / (WINDOWS - 1)
    windows = [text[at : at + WINDOW] for at in (int(number * step) for number in range(WINDOWS))]
    return "".join(windows), np.arange(WINDOWS + 1, dtype=np.int64) * WINDOW


@lru_cache(maxsize=1)
def _names_of_alphabets() -> tuple[str, ...]:
    names = {HAN: "zh", KANA: "ja"} | LANGUAGE_OF
    return tuple(names.get(number, "") for number in range(ALPHABETS))


@compiled
def _weighed(
    own: Any,
    starts: Any,
    plain: Any,
    table: Any,
    letter_bytes: Any,
    slots: Any,
    vectors: Any,
    rows: Any,
    alphabet: Any,
    beside_chinese: Any,
) -> Any:
    """Bytes of letters by alphabet [alphabets], but for the shared ones, and by the model's labels [labels]."""
    of_alphabets, of_labels = np.zeros(letter_bytes.size), np.zeros(rows.shape[0])
    for window in range(starts.size - 1):
        part = own[starts[window] : starts[window + 1]]
        count = np.zeros(letter_bytes.size)
        for character in part:
            count[table[character]] += 1
        if count[KANA] > _KANA_OF_JAPANESE * count[HAN]:
            count[KANA] += count[HAN]
            count[HAN] = 0
        for letters in range(1, letter_bytes.size):
            if count[letters] == 0:
                continue
            weight = count[letters] * letter_bytes[letters]
            if letters > _LAST_SHARED:
                of_alphabets[letters] += weight
                continue
            text, shapes = plain_form(part, plain, table, letters)
            scores = _scores(buckets_of(text, shapes), letters, slots, vectors, rows, alphabet)
            if count[HAN] > 0:
                scores += beside_chinese
            likelihoods = np.exp(scores - scores.max())
            of_labels += weight * likelihoods / likelihoods.sum()
    return of_alphabets, of_labels


@compiled
def _scores(buckets: Any, letters: int, slots: Any, vectors: Any, rows: Any, alphabet: Any) -> Any:
    """The score of each label that is written in the alphabet, float64 [labels]; of others minus infinity."""
    sums = np.zeros(vectors.shape[1], np.int32)
    features = 0
    for bucket in buckets:
        slot = slots[bucket]
        if slot >= 0:
            for column in range(sums.size):
                sums[column] += vectors[slot, column]
            features += 1
    hidden = sums.astype(np.float32) / np.float32(np.sqrt(max(features, 1)))
    scores = np.full(rows.shape[0], -np.inf)
    for label in range(rows.shape[0]):
        if alphabet[label] == letters:
            scores[label] = np.sum(rows[label] * hidden)
    return scores
