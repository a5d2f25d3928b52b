"""Is a checkpoint of this model, this number format and this optimizer, and if not, what differs."""

from __future__ import annotations

from collections.abc import Mapping

from stoker.checkpoint.manifest import Manifest
from stoker.checkpoint.state import MODEL
from stoker.errors import BadInput

_SHOWN = 5
Described = Mapping[str, tuple[str, tuple[int, ...]]]
"""Type and whole shape of tensors."""


def require_same(name: str, manifest: Manifest, described: Described, prefix: str, hint: str | None = None) -> None:
    """Every tensor of `prefix` that is `described` must be there, with that type and whole shape, and no other.

    Raises `BadInput` saying what differs, and `hint` or what the reason seems to be.
    """
    tensors = manifest.tensors.items()
    saved = {tensor: (entry.dtype, entry.shape) for tensor, entry in tensors if tensor.startswith(prefix)}
    wanted = {tensor: entry for tensor, entry in described.items() if tensor.startswith(prefix)}
    missing = [tensor for tensor in wanted if tensor not in saved]
    unexpected = [tensor for tensor in saved if tensor not in wanted]
    changed = [tensor for tensor in wanted if tensor in saved and wanted[tensor] != saved[tensor]]
    if not (missing or unexpected or changed):
        return
    differences = _listed("it lacks", missing) + _listed("it has besides", unexpected)
    differences += [
        f"{tensor} is {_said(saved[tensor])} there and {_said(wanted[tensor])} here" for tensor in changed[:_SHOWN]
    ]
    if len(changed) > _SHOWN:
        differences.append(f"{len(changed) - _SHOWN} more tensors differ")
    why = hint or _likely_reason(saved, wanted)
    raise BadInput(
        f"{name} does not fit: {'; '.join(differences)}. {why[0].upper()}{why[1:]}. "
        "Nothing was loaded; use the recipe it was trained with, or another run folder."
    )


def _said(entry: tuple[str, tuple[int, ...]]) -> str:
    return f"{entry[0]} {list(entry[1])}"


def _listed(what: str, names: list[str]) -> list[str]:
    if not names:
        return []
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return [f"{what} {', '.join(names[:_SHOWN])}{more}"]


def _likely_reason(saved: Described, wanted: Described) -> str:
    embedding = f"{MODEL}embedding.weight"
    if embedding in saved and embedding in wanted:
        there, here = saved[embedding][1], wanted[embedding][1]
        if there[0] != here[0]:
            return f"the vocabularies differ: {there[0]} tokens there, {here[0]} here"
    if saved.keys() == wanted.keys() and all(saved[name][1] == wanted[name][1] for name in saved):
        return "the weights' number formats differ: see training.precision"
    return "it is of another model"
