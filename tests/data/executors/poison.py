"""Worker processes in which words of a text do what hardly any text does: end the process, take all, or wait."""

from __future__ import annotations

import os
from pathlib import Path

_SITE = """
import ctypes
import sys
import time

if "executors.worker import serve" in str(sys.orig_argv):
    from stoker.data.operators import cleaning
    from stoker.data.reading import warc
    from stoker.data.stages import read_and_clean

    cleaned, sign, extract = cleaning.cleaned, read_and_clean.sign, warc.extract_text

    def poisoned(text, kind):
        if "segmentation" in text:
            ctypes.string_at(0)
        if "memory" in text:
            bytearray(8 << 30)
        if "half" in text:
            bytearray(2 << 30)
        if "endless" in text:
            while True:
                pass
        if "waiting" in text:
            time.sleep(3600)
        if "exception" in text:
            {}["no such key"]
        return cleaned(text, kind)

    def poisoned_signing(texts, settings):
        if any("signature" in text for text in texts):
            ctypes.string_at(0)
        return sign(texts, settings)

    def poisoned_extraction(page, engine):
        if "extraction" in page:
            ctypes.string_at(0)
        return extract(page, engine)

    cleaning.cleaned, read_and_clean.sign, warc.extract_text = poisoned, poisoned_signing, poisoned_extraction
"""
WORDS = ("segmentation", "memory", "endless", "exception", "signature")


def poisoned_workers(folder: Path) -> dict[str, str]:
    """Environment for worker processes that certain words end; `folder` takes what makes them do so."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(_SITE)
    inherited = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": os.pathsep.join(filter(None, [str(folder), inherited]))}
