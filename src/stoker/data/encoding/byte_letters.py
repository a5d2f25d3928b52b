"""How byte-level vocabularies write bytes: each by a letter of its own, so that every token is readable text."""

from __future__ import annotations

from functools import cache


@cache
def byte_of_letter() -> dict[str, int]:
    """The byte that each letter stands for, in the order of the letters.

    Bytes that are printable characters of Latin-1 are these; the others are written by the letters from U+0100 on
    (Radford et al., 2019).
    """
    own = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = (byte for byte in range(256) if byte not in own)
    return {chr(byte): byte for byte in sorted(own)} | {chr(256 + n): byte for n, byte in enumerate(others)}


@cache
def letter_of_byte() -> tuple[str, ...]:
    """The letter of each byte: [256]."""
    return tuple(sorted(byte_of_letter(), key=byte_of_letter().__getitem__))
