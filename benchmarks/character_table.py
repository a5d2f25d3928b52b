"""Makes `src/stoker/data/commonness.npz`: how common each character of Chinese is, in both scripts.

    python benchmarks/character_table.py JIEBA/dict.txt

Counted from the words of jieba's dictionary and how often each occurs (MIT); for the traditional script, from the
same words converted by OpenCC (Apache-2.0). Kept is the logarithm of each count alone, in eighths of a natural one.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import opencc

OUTCOME = Path(__file__).parents[1] / "src" / "stoker" / "data" / "commonness.npz"


def main() -> None:
    """Count, and write."""
    to_traditional = opencc.OpenCC("s2t")
    counts: Counter[str] = Counter()
    for line in Path(sys.argv[1]).read_text(encoding="utf-8").splitlines():
        word, often = line.split(" ")[:2]
        for written in {word, to_traditional.convert(word)}:
            for character in written:
                if character >= "\u2e80":
                    counts[character] += int(often)
    total = sum(counts.values())
    characters = sorted(counts)
    eighths = [min(255, round(-8 * math.log(counts[one] / total))) for one in characters]
    points = np.asarray([ord(one) for one in characters], np.uint32)
    np.savez_compressed(
        OUTCOME, steps=np.diff(points, prepend=0).astype(np.uint32), eighths=np.asarray(eighths, np.uint8)
    )
    print(f"{len(characters)} characters, {OUTCOME.stat().st_size} bytes")


if __name__ == "__main__":
    main()
