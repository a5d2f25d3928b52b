"""Corpora that leave documents out which needed more memory than a worker might take, tried again with more.

Such a corpus is what it is, and runs may be trained on it: it stays. What is made with more memory is another,
whose fingerprint follows from that of the first and from how much was too little, so that every command finds it.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from stoker.data.corpus import MANIFEST

LACKED_MEMORY = "lacked_memory"
"""Key of the manifest: bytes that a worker might take, too few for some document; missing where none lacked any."""


def attempt_of(prepared: Path, fingerprint: str, memory: int | None = None) -> str:
    """The fingerprint of the corpus in the folder `prepared` that stands for `fingerprint`.

    It is the last that was made with more memory. With `memory`, bytes that a worker may take now, it is the one
    that is to be made, where this is more than was too little for the last.
    """
    while (lacked := _lacked(prepared / fingerprint / MANIFEST)) is not None:
        following = hashlib.sha256(f"{fingerprint} with more than {lacked}".encode()).hexdigest()[:16]
        if not (prepared / following / MANIFEST).is_file() and (memory is None or memory <= lacked):
            break
        fingerprint = following
    return fingerprint


def _lacked(manifest: Path) -> int | None:
    try:
        written = json.loads(manifest.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):  # not there, or not ours: whoever opens the corpus says so
        return None
    lacked = written.get(LACKED_MEMORY) if isinstance(written, dict) else None
    return lacked if isinstance(lacked, int) else None
