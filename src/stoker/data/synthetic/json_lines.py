"""Files of one JSON object, or one prompt, in each line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stoker.errors import BadInput


def read_lines(path: Path, wanted: str) -> list[str]:
    """The lines of a text file, ended by LF or CR LF; a byte order mark at its beginning is no text.

    Raises `BadInput` where it cannot be read or is not UTF-8; `wanted` says what is to be given instead.
    """
    if path.exists() and not path.is_file():
        raise BadInput(f"{path} is no regular file; {wanted}")  # a device might never end
    try:
        content = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}; {wanted}") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is not UTF-8 (byte {error.start}); {wanted}") from error
    # Not `splitlines`: JSON has U+2028 and its like inside its strings.
    lines = [line.removesuffix("\r") for line in content.split("\n")]
    return lines if lines[-1] else lines[:-1]


def json_line(row: Mapping[str, Any]) -> bytes:
    """An object as one line of UTF-8, its end included; half of a surrogate pair stands as `\\ud800`."""
    # What Python writes for a character that cannot be encoded is what JSON calls it.
    return json.dumps(row, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"
