"""The layout of a file of tensors: that of safetensors, which other readers open too.

Eight bytes of length, a JSON header, and the elements of each piece, row by row. All of it but the elements follows
from the list of pieces, so that a header is known before anything is written, and checked by making it again.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from stoker.checkpoint.parts import Piece

ALIGNMENT = 4096
"""Where elements begin, in bytes: a page."""
_NAMES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
}


@dataclass(frozen=True)
class TensorFile:
    """Where everything lies in a file."""

    pieces: tuple[Piece, ...]
    offsets: tuple[int, ...]
    """Of each piece, in bytes from the beginning of the file."""
    header: bytes
    bytes: int
    """Of the whole file."""


def lay_out(pieces: Sequence[Piece]) -> TensorFile:
    """The layout of a file of `pieces`. Wide numbers come first, so that every element is aligned."""
    ordered = sorted(pieces, key=lambda piece: (-piece.torch_dtype.itemsize, piece.name, piece.box))
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    place, places = 0, []
    for piece in ordered:
        places.append(place)
        entries[_name(piece)] = {
            "dtype": _NAMES[piece.dtype],
            "shape": list(piece.local_shape),
            "data_offsets": [place, place + piece.bytes],
        }
        place += piece.bytes
    text = json.dumps(entries, ensure_ascii=True, separators=(",", ":")).encode()
    start = -(-(len(text) + 8) // ALIGNMENT) * ALIGNMENT
    header = struct.pack("<Q", start - 8) + text.ljust(start - 8)
    return TensorFile(tuple(ordered), tuple(start + one for one in places), header, start + place)


def _name(piece: Piece) -> str:
    """The tensor's name; of a part of it with the box."""
    if piece.box == tuple((0, size) for size in piece.shape):
        return piece.name
    return f"{piece.name}[{','.join(f'{first}:{last}' for first, last in piece.box)}]"
