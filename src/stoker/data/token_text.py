"""What each token of a vocabulary stands for, in bytes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer as Backend
from tokenizers import decoders

from stoker.data.encoding.byte_letters import byte_of_letter

_TAKEN_FOR_A_SIGN = re.compile(r"<(?=0x[0-9A-F]{2}>|id [0-9]+>)")
"""Text that reads as one of the signs of `shown`."""
_BYTE_ENTRY = re.compile(r"<0x([0-9A-F]{2})>")


@dataclass(frozen=True)
class TokenText:
    """The bytes of each id; empty for special tokens and for ids that the file leaves out."""

    contents: tuple[bytes, ...]
    exact: bool
    """Whether the tokens of a text, joined, are its bytes: true of byte-level vocabularies. Of others the bytes are
    what the entry says, and text may lose or gain blanks."""

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Bytes of each id: [ids]."""
        return np.asarray([len(content) for content in self.contents], np.int64)

    @property
    def characters(self) -> npt.NDArray[np.int64]:
        """Characters that begin in each id: [ids]. Summed over a text's tokens these are its characters."""
        return np.asarray([sum(byte & 0xC0 != 0x80 for byte in content) for content in self.contents], np.int64)


def shown(contents: Sequence[bytes], chosen: Sequence[int]) -> list[str]:
    """The chosen ids of a vocabulary for people, no two of the vocabulary alike.

    Bytes that are no UTF-8 stand as `<0xE4>`. Where several ids stand for the same bytes, each has its number
    behind it as `<id 5012>`. A `<` with which text itself would read so stands as `<0x3C>`.
    """
    counts = Counter(contents)
    return [
        _shown(contents[number]) + (f"<id {number}>" if counts[contents[number]] > 1 else "") for number in chosen
    ]


def _shown(content: bytes) -> str:
    # surrogateescape keeps each byte that is no UTF-8 as a code point of its own, from U+DC80 on.
    text = _TAKEN_FOR_A_SIGN.sub("<0x3C>", content.decode(errors="surrogateescape"))
    return re.sub("[\udc80-\udcff]", lambda found: f"<0x{ord(found[0]) - 0xDC00:02X}>", text)


def token_text(tokenizer: Path) -> TokenText:
    """The bytes of the tokens of a `tokenizer.json` that has been read before (see `TextEncoder`)."""
    backend = Backend.from_file(str(tokenizer))
    added = backend.get_added_tokens_decoder()
    vocabulary = backend.get_vocab(with_added_tokens=True)
    exact = isinstance(backend.decoder, decoders.ByteLevel)
    contents = [b""] * (1 + max(vocabulary.values()))
    for entry, number in vocabulary.items():
        if number in added:
            contents[number] = b"" if added[number].special else entry.encode()
        else:
            contents[number] = _bytes_of(entry) if exact else _bytes_as_written(entry)
    return TokenText(tuple(contents), exact)


def _bytes_of(entry: str) -> bytes:
    letters = byte_of_letter()
    return bytes(letters[letter] for letter in entry) if all(letter in letters for letter in entry) else b""


def _bytes_as_written(entry: str) -> bytes:
    """Of vocabularies that are written as text, with a sign for blanks, and bytes as <0x0A>."""
    if found := _BYTE_ENTRY.fullmatch(entry):
        return bytes([int(found.group(1), 16)])
    return entry.replace("\u2581", " ").encode()
