"""What a prepared corpus's manifest must hold before anything in it is believed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

TOKEN_TYPES: Mapping[str, str] = {"uint16": "<u2", "uint32": "<u4"}
"""Types of token ids by their name, and as they lie on disk."""
_WORDS = {str: "text", int: "a whole number that is not negative", bool: "true or false"}
_SPLITS = ("train", "held_out")
_SHARD = {"file": str, "sha256": str, "documents_sha256": str, "tokens": int, "documents": int}
_SPLIT = {"documents": int, "tokens": int, "bytes": int, "shards": [_SHARD]}
_SHAPE: Mapping[str, Any] = {
    "fingerprint": str,
    "dtype": str,
    "tokenizer": {
        "sha256": str,
        "vocabulary_size": int,
        "bos_id": (int, type(None)),
        "eos_id": (int, type(None)),
        "adds_bos": bool,
        "adds_eos": bool,
    },
    "sources": [{"name": str, "kind": str, "language": (str, type(None)), "splits": {}}],
    "funnel": [{"source": str, "stage": str, "documents": int}],
}
"""Types of the entries that are read: `[shape]` for lists, a tuple where a value may be missing."""


def problem_of(manifest: Mapping[str, Any]) -> str | None:
    """What in a manifest is not as `stoker prepare` writes it, None where all is.

    Beside types it looks at what would lead out of the corpus's folder (names, files of shards) and at sums.
    """
    if found := _mismatch(manifest, _SHAPE, ""):
        return found
    if manifest["dtype"] not in TOKEN_TYPES:
        return f"`dtype` must be one of {', '.join(TOKEN_TYPES)}, found {manifest['dtype']!r}"
    names = [source["name"] for source in manifest["sources"]]
    for name in names:
        if names.count(name) > 1:
            return f"the source {name!r} is there twice"
        if not is_name_of_source(name):
            return f"{name!r} is no name of a source"
    for source in manifest["sources"]:
        for name, split in source["splits"].items():
            if name not in _SPLITS:
                return f"`{name}` of the source `{source['name']}` is no split; there are {' and '.join(_SPLITS)}"
            if found := _problem_of_split(split, f"splits.{name} of the source `{source['name']}`"):
                return found
    return None


def is_name_of_source(name: str) -> bool:
    """Whether a name can be that of a folder of tokens, and be printed as it is."""
    return name.isprintable() and "/" not in name and name not in ("", ".", "..")


def _problem_of_split(split: Any, where: str) -> str | None:
    if found := _mismatch(split, _SPLIT, ""):
        return f"{where}: {found}"
    for shard in split["shards"]:
        path = PurePosixPath(shard["file"])
        if path.is_absolute() or ".." in path.parts or not shard["file"].isprintable():
            return f"{where}: {shard['file']!r} is no file of the corpus"
    for what in ("tokens", "documents"):
        if (total := sum(shard[what] for shard in split["shards"])) != split[what]:
            return f"{where} has {split[what]:,} {what}, but its shards have {total:,}"
    return None


def _mismatch(value: Any, shape: Any, place: str) -> str | None:
    """What is wrong with a value and everything in it; None where nothing is."""
    if isinstance(shape, list):
        if not isinstance(value, list):
            return f"`{place}` must be a list, found {type(value).__name__}"
        inner = ((one, shape[0], f"{place}[{number}]") for number, one in enumerate(value))
        return next(filter(None, (_mismatch(*one) for one in inner)), None)
    if isinstance(shape, Mapping):
        if not isinstance(value, dict):
            return f"`{place}` must be an object, found {type(value).__name__}"
        for key, own in shape.items():
            where = f"{place}.{key}" if place else key
            if key not in value:
                return f"`{where}` is missing"
            if found := _mismatch(value[key], own, where):
                return found
        return None
    kinds = shape if isinstance(shape, tuple) else (shape,)
    # True is an int to Python, and no number of anything.
    if type(value) not in kinds or (type(value) is int and value < 0):
        return f"`{place}` must be {_WORDS[kinds[0]]}, found {str(value)[:40]!r}"
    return None
