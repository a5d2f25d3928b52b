"""Which tokenizers the engine encodes for: byte-level BPEs whose split pattern it reads, proved by comparison."""

from __future__ import annotations

import itertools
import json
import unicodedata
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from stoker.data.encoding.byte_letters import byte_of_letter
from stoker.data.encoding.engine import Engine, Ids
from stoker.data.encoding.merging import merge_table
from stoker.data.encoding.split_pattern import UnreadablePattern, alternatives_of
from stoker.data.encoding.splitting import split_table

GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""What `ByteLevel` splits by when it is told to split (Radford et al., 2019)."""


class NotForTheEngine(ValueError):
    """The tokenizer does something that the engine does not do; the message says what."""


@dataclass(frozen=True)
class Recognised:
    """A tokenizer that the engine encodes for."""

    engine: Engine
    normalise: Callable[[str], str] | None
    """How text is normalised before it is encoded (NFC), if it is."""
    found: tuple[str, ...]
    """Added tokens that are looked for in text; texts that hold one are left to the library."""

    def encode(self, texts: Sequence[str], by_library: Callable[[list[str]], list[Ids]]) -> list[Ids]:
        """The ids of each text: uint32 [tokens]."""
        ready = [self._normalised(text) for text in texts] if self.normalise is not None else texts
        if not self.found:
            return self.engine.encode(ready)
        left = {
            number
            for number, (text, written) in enumerate(zip(ready, texts, strict=True))
            if any(token in text or token in written for token in self.found)
        }
        fast = iter(self.engine.encode([text for number, text in enumerate(ready) if number not in left]))
        slow = iter(by_library([texts[number] for number in sorted(left)]))
        return [next(slow) if number in left else next(fast) for number in range(len(texts))]

    def _normalised(self, text: str) -> str:
        assert self.normalise is not None
        return text if text.isascii() or unicodedata.is_normalized("NFC", text) else self.normalise(text)


def recognise(backend: Any) -> Recognised:
    """The engine for a tokenizer of the `tokenizers` library.

    Raises `NotForTheEngine` with the reason when the tokenizer is of another kind, or when the engine's ids of the
    texts that are tried differ from the library's.
    """
    written = json.loads(backend.to_str())
    normalizer = written["normalizer"]
    if normalizer is not None and normalizer != {"type": "NFC"}:
        raise NotForTheEngine(f"it normalises text ({normalizer['type']})")
    recognised = Recognised(
        _engine(written),
        backend.normalizer.normalize_str if normalizer is not None else None,
        tuple(token["content"] for token in written["added_tokens"] if not token["special"]),
    )
    _compare(recognised, backend)
    return recognised


def _engine(written: dict[str, Any]) -> Engine:
    pattern = _pattern_of(written["pre_tokenizer"])
    try:
        split = split_table(alternatives_of(pattern))
    except UnreadablePattern as error:
        raise NotForTheEngine(f"its split pattern is of another form: {error}") from error
    model = _model_of(written["model"])
    vocabulary: dict[str, int] = model["vocab"]
    byte_of = byte_of_letter()
    try:
        byte_ids = {byte: vocabulary[letter] for letter, byte in byte_of.items()}
        merges = [
            (vocabulary[left], vocabulary[right], vocabulary[left + right])
            for left, right in (pair if isinstance(pair, list) else pair.split(" ") for pair in model["merges"])
        ]
    except KeyError as error:
        raise NotForTheEngine(f"its vocabulary lacks {error.args[0]!r}") from error
    whole = _whole_words(vocabulary, byte_of) if model.get("ignore_merges") else None
    return Engine(split, merge_table(merges, byte_ids), whole)


def _pattern_of(pre_tokenizer: Any) -> str:
    """The split pattern of a pre-tokenizer as it is written in the file."""
    kind = None if pre_tokenizer is None else pre_tokenizer["type"]
    parts = pre_tokenizer["pretokenizers"] if kind == "Sequence" else [pre_tokenizer]
    if kind is None or parts[-1]["type"] != "ByteLevel":
        raise NotForTheEngine("it does not work on bytes")
    if parts[-1]["add_prefix_space"]:
        raise NotForTheEngine("it puts a blank before the text")
    if len(parts) == 1 and parts[0]["use_regex"]:
        return GPT2_PATTERN
    if len(parts) != 2 or parts[0]["type"] != "Split" or parts[1]["use_regex"]:
        raise NotForTheEngine("it does not split text once, by one pattern")
    if parts[0]["behavior"] != "Isolated" or parts[0]["invert"] or "Regex" not in parts[0]["pattern"]:
        raise NotForTheEngine("it does not split text into what its pattern matches")
    return str(parts[0]["pattern"]["Regex"])


def _model_of(model: dict[str, Any]) -> dict[str, Any]:
    if model["type"] != "BPE":
        raise NotForTheEngine(f"its model is {model['type']}, not BPE")
    for setting in ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"):
        if model.get(setting):
            raise NotForTheEngine(f"its model has {setting}")
    return model


def _whole_words(vocabulary: dict[str, int], byte_of: dict[str, int]) -> dict[str, int]:
    """Entries of the vocabulary that may be words of a text, each with its id."""
    found = {}
    for letters, token in vocabulary.items():
        if letters and all(letter in byte_of for letter in letters):
            with suppress(UnicodeDecodeError):
                found[bytes(byte_of[letter] for letter in letters).decode()] = token
    return found


def _compare(recognised: Recognised, backend: Any) -> None:
    """Encode texts that lead through every alternative by both, one by one and as one."""
    texts = [*_PROBES, "".join(_PROBES), "\n".join(_PROBES)]

    def by_library(texts: list[str]) -> list[Ids]:
        encodings = backend.encode_batch_fast(texts, add_special_tokens=False)
        return [np.asarray(encoding.ids, np.uint32) for encoding in encodings]

    for text, ids, theirs in zip(texts, recognised.encode(texts, by_library), by_library(texts), strict=True):
        if not np.array_equal(ids, theirs):
            raise NotForTheEngine(f"its ids of {text[:40]!r} are not those of `tokenizers`")


_CONTEXTS = ("{0}", "a{0}", "{0}a", " {0} ", "{0}{0}'s {0}", "1{0}\n{0}", "\r\n {0}\t{0}  ", "，{0}中{0}")
_TRIED = (
    "the", "Word", "中文", "日本語ー", "ไทย", "é", "e\u0301", "\u0301", "ß", "ſ", "İ", "Ⅳ", "²", "٣", "7", "2024",
    "don't", "DON'T", "'LL", "we've", "'ſ", "x'red", "-", "=" * 70, "...", "$", "🙂", "👩\u200d🚀", "\u200b",
    "\u00a0", "\u3000", "\u2028", "\x85", "\x1c", "\x00", "\ufffd", "\ue000", "\U000e0041", "\U0003ffff",
    "\U0010ffff", "\n\n", " \n ", "\t", "   ", " " * 70, "\r", "a" * 70, "中" * 70, "ab" * 300,
    "_x1", "</s>", "۞", "ا\u064e",
)  # fmt: skip
_PROBES = tuple(context.format(text) for context, text in itertools.product(_CONTEXTS, _TRIED))
