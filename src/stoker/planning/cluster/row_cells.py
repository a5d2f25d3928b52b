"""Cells of other people's tables in one spelling: counts without units, `yes` and `no`, nothing for `unknown`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

COUNTS = {
    "layers": 2_000,
    "hidden": 1_000_000,
    "ffn": 4_000_000,
    "heads": 100_000,
    "kv_heads": 100_000,
    "vocab": 10_000_000,
    "seq_len": 100_000_000,
    "experts": 100_000,
    "topk": 100_000,
    "gpus_total": 10_000_000,
    "gpus_per_node": 100_000,
    "tp": 100_000,
    "pp": 10_000,
    "vpp": 10_000,
    "cp": 100_000,
    "ep": 100_000,
    "dp": 10_000_000,
    "micro_batch": 1_000_000,
    "global_batch_seqs": 100_000_000,
}
"""Whole numbers from 1 to so much: what is more is another unit."""

AMOUNTS = {
    "step_time_s": (1e-4, 86_400.0, "seconds"),
    "step_time_s_derived": (1e-4, 86_400.0, "seconds"),
    "tokens_per_s_per_gpu": (1e-3, 1e8, "tokens a second on one accelerator"),
    "tokens_per_s_per_gpu_derived": (1e-3, 1e8, "tokens a second on one accelerator"),
    "peak_mem_gib": (0.05, 4_096.0, "GiB"),
}

_BATCHES = ("micro_batch", "global_batch_seqs")
"""Means of several runs or of ramps, which may be no whole numbers."""
_WORDS = ("sp", "pretrain")
_NOTHING = re.compile(
    r"[-–—?. ]*|n/?a|n\.a\.|none|null|nan|unknown|auto|default|tbd|not (?:stated|given|said|known|used|reported)"
)
_NUMBER = re.compile(r"[~≈ ]*(\d+(?:\.\d+)?|\.\d+)(e[+-]?\d+)? ?([kmbt](?![a-z]))?(?: ?[a-wyz(/±+%].*)?")
_SCALES = {"k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}
_UNITS = (
    (r"\d ?(?:ms|msec|milliseconds?)\b", 1e-3),
    (r"\d ?(?:min|minutes?)\b", 60.0),
    (r"\d ?mi?b\b", 1 / 1024),
    (r"\d ?gb\b", 1e9 / 2**30),
)


def tidied(row: Mapping[str, str]) -> dict[str, str]:
    """`row` in one spelling. What cannot be understood stays as it is, for `problem_of` to name it."""
    found = {name: (value or "").strip() for name, value in row.items() if name}
    for column in COUNTS:
        if column in found:
            found[column] = _count(column, found[column])
    for column in AMOUNTS:
        if found.get(column):
            found[column] = _amount(found[column])
    for column in _WORDS:
        if column in found:
            found[column] = _yes_or_no(found[column])
    if "year" in found:
        year = re.search(r"(?:19|20)\d\d", found["year"])
        found["year"] = year[0] if year else ""
    if found.get("params_b"):
        found["params_b"] = _billions(found["params_b"])
    if "gpus_total" in found and not found["gpus_total"] and found.get("dp"):
        ranks = [as_number(found.get(name, "") or "1") for name in ("tp", "pp", "cp", "dp")]
        if all(ranks):
            found["gpus_total"] = str(int(math.prod(one or 1 for one in ranks)))
    return found


def problem_of(row: Mapping[str, str]) -> str | None:
    """The first cell of a tidied `row` that cannot be, with what was expected; None where all can."""
    for column, most in COUNTS.items():
        text = row.get(column, "")
        value = as_number(text)
        if text and (value is None or value != int(value) or not 1 <= value <= most):
            return f"column {column}: {text!r}; expected a whole number from 1 to {most:,}"
    for column, (least, greatest, unit) in AMOUNTS.items():
        text = row.get(column, "")
        value = as_number(text)
        if text and (value is None or not least <= value <= greatest):
            return f"column {column}: {text!r}; expected {unit}, from {least:g} to {greatest:g}"
    return None


def as_number(text: str) -> float | None:
    """None of what is no finite number."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _read(text: str, thousand: float = 1e3) -> float | None:
    """`16,384`, `~70`, `128k`, `8 (2 nodes)`, `16x8`."""
    plain = re.sub(r"(?<=\d)[,_'](?=\d{3})", "", text.lower())
    grid = re.fullmatch(r"(\d+) ?[x×*] ?(\d+)", plain)
    if grid:
        return float(grid[1]) * float(grid[2])
    found = _NUMBER.fullmatch(plain)
    if not found:
        return None
    scale = thousand if found[3] == "k" else _SCALES.get(found[3] or "", 1.0)
    value = as_number(found[1] + (found[2] or ""))
    return None if value is None else value * scale


def _count(column: str, text: str) -> str:
    """0 of something that need not be there means that it is not."""
    if _NOTHING.fullmatch(text.lower()) or text.strip() == "-1":
        return ""
    value = _read(text, 1024.0 if column == "seq_len" else 1e3)
    if value is None:
        return text
    if column in _BATCHES and value > 0:
        value = float(max(1, round(value)))
    if value == 0:
        return ""
    return str(int(value)) if value == int(value) else f"{value:g}"


def _amount(text: str) -> str:
    lowered = text.lower()
    if _NOTHING.fullmatch(lowered):
        return ""
    value = _read(text)
    if value is None:
        return text
    factor = next((factor for pattern, factor in _UNITS if re.search(pattern, lowered)), 1.0)
    return repr(value * factor) if factor != 1.0 else f"{value:.12g}"


def _yes_or_no(text: str) -> str:
    lowered = text.lower()
    if re.match(r"(?:no|n|false|off|0|disabled|without|sft|lora|fine)\b|fine.?tun", lowered):
        return "no"
    if _NOTHING.fullmatch(lowered):
        return ""
    return "yes"


def _billions(text: str) -> str:
    """`8B`, `350M`, `671/37` (all and active), or a plain count of parameters."""
    found = re.search(r"(\d+(?:\.\d+)?)(e\d+)?\s*([mbt])?", text.lower().replace(",", ""))
    if not found:
        return ""
    value = float(found[1] + (found[2] or ""))
    value *= {"m": 1e-3, "t": 1e3}.get(found[3] or "", 1.0)
    return f"{value / 1e9 if value > 1e6 else value:.12g}"
