"""What the process finds on starting: streams that may be closed, a locale that may not be UTF-8."""

from __future__ import annotations

import io
import locale
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


def speak_utf8() -> None:
    """Start this Python anew in its UTF-8 mode where the locale says otherwise.

    Names of files in a recipe and the files of libraries are UTF-8, whatever the terminal shows; what is
    printed stays in the terminal's encoding.
    """
    if sys.getfilesystemencoding().lower() == "utf-8" and locale.getpreferredencoding(False).lower() == "utf-8":
        return
    if os.environ.get("PYTHONUTF8") == "1" or sys.flags.ignore_environment:
        return  # asked for already, or it would not be listened to
    os.environ["PYTHONUTF8"] = "1"
    if sys.stdout is not None:
        os.environ.setdefault("PYTHONIOENCODING", sys.stdout.encoding)
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


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
