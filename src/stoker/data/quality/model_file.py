"""Files of the models of quality: safetensors, with what the model is and a checksum beside the arrays.

The arrays can be read by anything that reads safetensors. The metadata has one entry, `stoker`, a JSON object:
`model` (which of the models it is), `description`, and `sha256` of the description and the arrays.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load, save

from stoker.data.file_stamp import NO_FILE, Stamp, stamp_of
from stoker.durable_files import write_bytes
from stoker.errors import BadInput

Arrays = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Stored:
    """What a file holds."""

    description: dict[str, Any]
    arrays: dict[str, npt.NDArray[Any]]


def write_model(path: Path, what: str, description: Mapping[str, Any], arrays: Arrays) -> None:
    """Write a model, whole or not at all. The same model gives the same bytes."""
    written = json.dumps(description, ensure_ascii=False, sort_keys=True)
    plain = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    # One entry only: the library writes several in an order that differs from process to process.
    facts = {"model": what, "description": written, "sha256": _digest(written, plain)}
    write_bytes(path, save(plain, {"stoker": json.dumps(facts, ensure_ascii=False)}))


def read_model(path: Path, what: str, made_by: str) -> Stored:
    """What `write_model` wrote.

    Raises `BadInput` where `path` is no such file, is of another model, or was changed; `made_by` is the command
    that makes one.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}; `{made_by}` makes such a file") from error
    try:
        length = int.from_bytes(content[:8], "little")
        facts = json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["stoker"])
        found, written, digest = facts["model"], facts["description"], facts["sha256"]
        arrays = dict(load(content))
    except (ValueError, KeyError, TypeError, SafetensorError) as error:
        raise BadInput(f"{path} is no model of quality; `{made_by}` makes one") from error
    if found != what:
        raise BadInput(f"{path} is a {found}, and a {what} is wanted here; `{made_by}` makes one")
    if digest != _digest(written, arrays):
        raise BadInput(f"{path} was changed after it was written: its checksum is wrong. Copy or train it again")
    return Stored(json.loads(written), arrays)


def file_state(path: Path) -> Stamp:
    """The stamp of a file, zeros where there is none: another state, another file."""
    try:
        return stamp_of(path.stat())
    except OSError:
        return NO_FILE


def _digest(description: str, arrays: Arrays) -> str:
    digest = hashlib.sha256(description.encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"\n{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
