"""How figures travel to the page: one header in JSON, then columns of little-endian floats.

uint32  length of the header, which is padded with spaces so that the columns begin at a multiple of eight
header  JSON in UTF-8; `columns` says of each its name, its type (`f8`, `f4`) and its length
columns one after the other, each padded to a multiple of eight bytes
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from stoker.dashboard.columns import Numbers


def packed(header: Mapping[str, Any], exact: Mapping[str, Numbers], rounded: Mapping[str, Numbers]) -> bytes:
    """`exact` columns travel as float64, `rounded` ones as float32; what is not finite as NaN."""
    columns, parts = [], []
    for kind, group in (("f8", exact), ("f4", rounded)):
        for name, values in group.items():
            with np.errstate(over="ignore", invalid="ignore"):
                content = np.where(np.isfinite(values), values, np.nan).astype("<" + kind).tobytes()
            columns.append({"name": name, "type": kind, "length": len(values)})
            parts.append(content + bytes(-len(content) % 8))
    text = json.dumps({**header, "columns": columns}, ensure_ascii=False, allow_nan=False).encode()
    text += b" " * (-(len(text) + 4) % 8)
    return struct.pack("<I", len(text)) + text + b"".join(parts)
