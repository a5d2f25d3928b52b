"""Where a worker is in its work, noted so that it outlives the worker: what it died over can be named.

The note is a few bytes at the head of a file, which the kernel keeps when the process is gone, however it went.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, get_args

Step = Literal["reading", "extracting", "judging", "signing"]
_STEPS: dict[str, Step] = {step: step for step in get_args(Step)}
_NOTE_BYTES = 512
_MEGABYTE = 1 << 20


class Place(NamedTuple):
    """A document of a unit of input, and what was being done with it."""

    part: int
    """Index of the part of the unit."""
    step: Step
    position: str
    """As in `Document`. When reading: of the document before; empty at the beginning of the part."""


@dataclass(frozen=True)
class Limits:
    """What a piece of work may take, and who is told. Times are CPU seconds."""

    seconds: float | None
    """For a document of up to a megabyte, and again for each further megabyte; None for no limit."""
    arm: Callable[[float], None]
    """Sets the time after which this process ends; 0 for never."""


class Watch:
    """Notes each step of a unit's work in the file `note`, and knows which places are to be avoided."""

    def __init__(self, note: Path, limits: Limits, set_aside: Mapping[Place, str]) -> None:
        note.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(note, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        self._limits = limits
        # By what is noted of them: a note has no room for a long address.
        self._set_aside = {_note(place): why for place, why in set_aside.items()}

    def at(self, place: Place, size: int) -> str | None:
        """Begin a step on `size` bytes of text or, when reading, of a file. Why it must not be taken, or None."""
        note = _note(place)
        if (why := self._set_aside.get(note)) is not None:
            return why
        os.pwrite(self._file, note, 0)
        if self._limits.seconds is not None:
            self._limits.arm(self._limits.seconds * (1 + size / _MEGABYTE))
        return None

    def close(self) -> None:
        """End of the work."""
        self._limits.arm(0)
        os.close(self._file)


def _note(place: Place) -> bytes:
    """What is written of a place; of a long position the beginning, and a digest that tells it from others."""
    content = f"{place.part}\n{place.step}\n{place.position}".encode(errors="surrogateescape")
    if len(content) > _NOTE_BYTES:
        digest = hashlib.blake2b(content, digest_size=16).hexdigest().encode()
        content = content[: _NOTE_BYTES - len(digest)] + digest
    return content.ljust(_NOTE_BYTES, b"\0")


def noted_place(note: Path) -> Place | None:
    """What the note of a worker that is gone says; None where it did not get so far."""
    try:
        content = note.read_bytes()
    except FileNotFoundError:
        return None
    part, _, rest = content.rstrip(b"\0").decode(errors="surrogateescape").partition("\n")
    step, _, position = rest.partition("\n")
    named = _STEPS.get(step)
    return None if named is None else Place(int(part), named, position)
