"""What each token of a vocabulary stands for, in bytes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer as Backend
from tokenizers import decoders

from stoker.data.encoding.byte_letters import byte_of_letter

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
