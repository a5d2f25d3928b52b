"""Chinese text from one script into the other, by OpenCC, which knows phrases: `头发` is 頭髮, `发展` is 發展.

Only what is in the other script is converted. A line that is in the wanted script already is left as it is, as
its characters would be taken for others (the 后 of a traditional 皇后 is no misspelt 後); a line that says
nothing (`里面`) follows its text. Lines with kana are Japanese and stay.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import groupby
from typing import Literal

from stoker.data.script.detection import Scripts, scripts_of, scripts_of_lines
from stoker.errors import BadInput

Script = Literal["simplified", "traditional"]

_FULL_WIDTH = {ord(wide): ord(wide) - 0xFEE0 for wide in map(chr, range(0xFF10, 0xFF5B)) if wide.isalnum()}


@lru_cache(maxsize=2)
def _converter(wanted: Script) -> Callable[[str], str]:
    """OpenCC's conversion into `wanted`. Raises `BadInput` where OpenCC is not installed."""
    try:
        from opencc import OpenCC
    except ImportError:
        raise BadInput(
            f"data.cleaning.script is `{wanted}`, which takes OpenCC: pip install 'stoker[chinese]', or `keep`"
        ) from None
    # Without characters that hardly any font has, such as 𫚢 for 鰋: readers of simplified text write 鰋, too.
    convert: Callable[[str], str] = OpenCC(
        "t2s" if wanted == "simplified" else "s2t", include_tofu_risk_dictionaries=False
    ).convert
    return convert


def require_converter(wanted: Script) -> None:
    """Raise `BadInput` now when text could not be converted later."""
    _converter(wanted)


def converted(text: str, wanted: Script, found: Scripts | None = None) -> str:
    """`text` with its Chinese in the script `wanted`.

    `found` are its counts where they are known already. Japanese stays as it is.
    """
    found = found or scripts_of(text)
    against = found.traditional if wanted == "simplified" else found.simplified
    if not against or found.is_japanese:
        return text
    convert = _converter(wanted)
    mostly_other = 2 * against > found.simplified + found.traditional
    if against == found.simplified + found.traditional and not found.kana:
        return convert(text)
    lines = zip(text.split("\n"), _of_other_script(text, wanted, mostly_other), strict=True)
    parts: list[str] = []
    for other, group in groupby(lines, key=lambda one: one[1]):
        part = "\n".join(line for line, _ in group)
        parts.append(convert(part) if other else part)
    return "\n".join(parts)


def half_width(text: str) -> str:
    """`text` with full-width Latin letters and digits in their usual width; punctuation stays full-width."""
    return text if text.isascii() else text.translate(_FULL_WIDTH)


def _of_other_script(text: str, wanted: Script, mostly_other: bool) -> list[bool]:
    """Which lines are in the other script; `mostly_other` is the answer for a line that does not tell."""
    found = scripts_of_lines(text)
    against, for_it = found.traditional, found.simplified
    if wanted == "traditional":
        against, for_it = for_it, against
    chinese = (found.han > 0) & (found.kana == 0)
    return [bool(one) for one in chinese & ((against > for_it) | ((against == for_it) & mostly_other))]
