"""Chinese text from one script into the other, by OpenCC, which knows phrases: `头发` is 頭髮, `发展` is 發展.

Only what is in the other script is converted. A line that is in the wanted script already is left as it is, as
its characters would be taken for others (the 后 of a traditional 皇后 is no misspelt 後); a line that says
nothing (`里面`) follows its text. Lines with kana are Japanese and stay.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from itertools import groupby
from typing import Literal

from stoker.data.script.characters import script_characters
from stoker.data.script.detection import Scripts, scripts_of
from stoker.errors import BadInput

Script = Literal["simplified", "traditional"]

_KANA = re.compile("[\u3041-\u3096\u30a1-\u30fa]")
_FULL_WIDTH = {ord(wide): ord(wide) - 0xFEE0 for wide in map(chr, range(0xFF10, 0xFF5B)) if wide.isalnum()}


@lru_cache(maxsize=1)
def _of_one_script() -> dict[Script, re.Pattern[str]]:
    characters = script_characters()
    return {
        "simplified": re.compile(f"[{''.join(sorted(characters.only_simplified))}]"),
        "traditional": re.compile(f"[{''.join(sorted(characters.only_traditional))}]"),
    }


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
    lines = groupby(text.split("\n"), key=lambda line: _is_other(line, wanted, mostly_other))
    return "\n".join(convert("\n".join(group)) if other else "\n".join(group) for other, group in lines)


def half_width(text: str) -> str:
    """`text` with full-width Latin letters and digits in their usual width; punctuation stays full-width."""
    return text if text.isascii() else text.translate(_FULL_WIDTH)


def _is_other(line: str, wanted: Script, unsure: bool) -> bool:
    """Whether `line` is in the other script; `unsure` is the answer for a line that does not tell."""
    if line.isascii() or _KANA.search(line):
        return False
    patterns = _of_one_script()
    other: Script = "traditional" if wanted == "simplified" else "simplified"
    against, for_it = len(patterns[other].findall(line)), len(patterns[wanted].findall(line))
    return unsure if against == for_it else against > for_it
