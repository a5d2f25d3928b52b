"""Mojibake: how much of drawn damage is repaired to the letter, and how many clean lines are changed, in one run.

    python benchmarks/language_repair.py --text FOLDER [--manuals MAN] [--half final]

FOLDER holds `*.jsonl.gz` with fields `language` and `text`, MAN Debian's translated manual pages. A line is damaged
by writing it in one encoding and reading it in another; where that loses bytes, nobody could repair it, and it is
not counted. Each damaged line stands between clean ones. Thresholds were set on the half `building` of the lines;
each line is in the half that its own hash says.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import time
from pathlib import Path

import language_text as sources
from language import in_half
from stoker.data.mojibake import repair

KINDS = {
    "UTF-8 read as Windows-1252, Chinese": ("zh", "utf-8", "cp1252"),
    "UTF-8 read as Latin-1, Chinese": ("zh", "utf-8", "latin-1"),
    "UTF-8 read as Latin-1, French": ("fr", "utf-8", "latin-1"),
    "UTF-8 read as Windows-1252, German": ("de", "utf-8", "cp1252"),
    "UTF-8 read as GBK, Chinese": ("zh", "utf-8", "gb18030"),
    "UTF-8 read as Big5, Chinese": ("zh", "utf-8", "big5hkscs"),
    "UTF-8 read as Shift-JIS, Japanese": ("ja", "utf-8", "cp932"),
    "UTF-8 read as Shift-JIS, Chinese": ("zh", "utf-8", "cp932"),
    "UTF-8 read as Windows-1251, Russian": ("ru", "utf-8", "cp1251"),
    "GBK read as Latin-1, Chinese": ("zh", "gb18030", "latin-1"),
    "Big5 read as Latin-1, Chinese": ("tw", "big5hkscs", "latin-1"),
    "Shift-JIS read as Latin-1, Japanese": ("ja", "cp932", "latin-1"),
    "GBK read as Big5, Chinese": ("zh", "gb18030", "big5hkscs"),
    "Big5 read as GBK, Chinese": ("tw", "big5hkscs", "gb18030"),
}


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--manuals", type=Path)
    parser.add_argument("--most", type=int, default=2000)
    parser.add_argument("--half", choices=("building", "final"), default="final")
    given = parser.parse_args()
    lines: dict[str, list[str]] = {"zh": [], "tw": []}
    print("| clean text | lines beyond ASCII | changed | MB per CPU-second |\n|---|---|---|---|")
    for path in sorted(given.text.glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as stream:
            texts = [json.loads(line)["text"] for line in stream]
        own = in_half([line for text in texts for line in text.split("\n")], given.half)
        report(path.name[:-9], ["\n".join(own)])
        if "zh" in path.name or "chinese" in path.name or "-cn" in path.name or "oi-wiki" in path.name:
            own = sorted({line for line in own if _is_chinese(line)})
            lines["tw" if "tw" in path.name else "zh"] += random.Random(1).sample(own, min(2000, len(own)))
    if given.manuals:
        for label, pieces in sources.manual_pages(given.manuals).items():
            own = in_half(pieces, given.half)
            report(f"manual pages, {label}", own)
            lines[label] = [one for one in own if sum(c > "\x7f" for c in one) >= 6]
    draw = random.Random("repair")
    print("\n| damage | lines | repaired |\n|---|---|---|")
    for name, (language, real, read_as) in KINDS.items():
        total = right = 0
        for line in draw.sample(lines.get(language, []), min(given.most, len(lines.get(language, [])))):
            line = line.strip()
            try:
                damaged = line.encode(real).decode(read_as)
            except UnicodeError:
                continue
            if damaged == line:
                continue
            total += 1
            clean = draw.choice(lines[language]).strip()
            right += repair(f"{clean}\n{damaged}\n{clean}") == f"{clean}\n{line}\n{clean}"
        print(f"| {name} | {total} | {right / total if total else float('nan'):.4f} |")


def _is_chinese(line: str) -> bool:
    return sum("\u4e00" <= c <= "\u9fff" for c in line) >= 12


def report(name: str, texts: list[str]) -> None:
    """A row about clean text."""
    start = time.process_time()
    repaired = [repair(text) for text in texts]
    seconds = time.process_time() - start
    pairs = [
        pair
        for before, after in zip(texts, repaired, strict=True)
        for pair in zip(before.split("\n"), after.split("\n"), strict=True)
    ]
    beyond = sum(not before.isascii() for before, _ in pairs)
    changed = [(before, after) for before, after in pairs if before != after]
    size = sum(len(text.encode()) for text in texts) / 1e6
    print(f"| {name} | {beyond} | {len(changed)} | {size / seconds:.0f} |")
    for before, after in changed[:3]:
        print("   ", before[:60], "=>", after[:60])


if __name__ == "__main__":
    main()
