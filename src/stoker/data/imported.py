"""What is known of a corpus whose tokens others wrote, and how a damaged corpus is made again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FETCHED = "url-"
"""How the name of a folder begins that holds what was fetched from the URL of one corpus."""
IMPORTED = "imported"
"""What `encoded_by` of an imported corpus's tokenizer says in its manifest."""


def is_imported(manifest: Mapping[str, Any]) -> bool:
    """Whether the corpus with this manifest was made of tokens that others wrote."""
    tokenizer = manifest.get("tokenizer")
    return isinstance(tokenizer, Mapping) and tokenizer.get("encoded_by") == IMPORTED


def import_note(manifest: Mapping[str, Any]) -> str | None:
    """What an imported corpus is, and what its ledger cannot say; None for one that was prepared from text."""
    if not is_imported(manifest):
        return None
    files = ", ".join(manifest.get("imported_from", []))
    return (
        f"tokens that were imported{f' from {files}' if files else ''}: the ledger begins with the import. It "
        "knows which documents a step trains on, and how they read; what was read, dropped or changed before these "
        "files were written it cannot know"
    )


def remedy(folder: Path) -> str:
    """How a prepared corpus that is damaged, or lacks something, is made again."""
    if folder.name.startswith(FETCHED):
        return f"delete {folder}, then the same command fetches it anew"
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        manifest = None
    if isinstance(manifest, dict) and is_imported(manifest):
        files = manifest.get("imported_from") or ["PREFIX..."]  # of a manifest that may be damaged itself
        command = f"stoker data import-megatron {' '.join(map(str, files))} --tokenizer FILE --output {folder}"
        return f"delete {folder}, then `{command}` makes it again from the files that it was imported from"
    return f"delete {folder}, then `stoker prepare RECIPE` makes it again from the text"
