"""Standard streams that cannot hurt: closed ones are opened, and what people only watch may fail to be shown."""

from __future__ import annotations

import io
import os
import sys
from typing import Any


class _Forgiving(io.FileIO):
    """Bytes that cannot be written (a full disk, a reader or a terminal that is gone) are dropped."""

    def write(self, content: Any) -> int:
        try:
            return super().write(content)
        except OSError:
            return len(content)


def make_streams_safe() -> None:
    """Call first, before any file is opened.

    A file opened while descriptor 0, 1 or 2 is closed gets that number, and what a library prints would end up
    in it: closed ones lead nowhere instead. Progress and messages on stderr never stop the work. A character
    that the terminal's encoding lacks is shown as an escape.
    """
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number: this one
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    elif isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(_Forgiving(2, "w", closefd=False)),
        encoding=getattr(sys.stderr, "encoding", None) or "utf-8",
        errors="backslashreplace",
        line_buffering=True,
    )
