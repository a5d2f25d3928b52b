"""Paragraphs that are links: how many buttons in wording never seen go, and how many lines of manuals, in one run.

    python benchmarks/extraction_buttons.py --themes WHEELS --manuals FOLDER [--pages 40]

WHEELS holds nikola/ and material/ out of their wheels: what these generators write on their pages is planted, as
paragraphs of links, between paragraphs of running text in pages whose elements have no telling names. FOLDER holds
the unpacked packages of `extraction_text.MANUALS`, whose lines must stay.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from pathlib import Path
from unittest.mock import patch

import language_lines
from stoker.data.extraction import extract_text, main_content
from stoker.data.reading.html import decode_page

PARAGRAPHS = {
    "en": "The furnace is fed with coal that was washed and weighed before the shift, and ashes go out at noon. ",
    "zh": "炉子里烧的煤在交班之前已经洗净、称重，并且按照等级分别堆放在仓库里，灰渣在中午运走。",
}
BUTTONS = 6
"""In a page of eight paragraphs."""


def page(language: str, labels: list[str], draw: random.Random) -> str:
    """Paragraphs with a button for each label somewhere between them."""
    parts = [f"<p>{PARAGRAPHS[language] * draw.randint(1, 3)}</p>" for _ in range(8)]
    for label in labels:
        tag = draw.choice(("p", f'div class="c{draw.randrange(9)}"'))
        button = f'<{tag}><a href="/{draw.randrange(99)}">{label}</a></{tag.split()[0]}>'
        parts.insert(draw.randrange(len(parts) + 1), button)
    return f'<html><body><div class="x1">{"".join(parts)}</div></body></html>'


def share_gone(language: str, labels: list[str]) -> float:
    """Share of the planted buttons that are not in the text."""
    draw = random.Random("buttons")
    gone = 0
    for _ in range(150):
        planted = draw.sample(labels, BUTTONS)
        lines = extract_text(page(language, planted, draw)).split("\n")
        gone += sum(label not in lines for label in planted)
    return gone / (150 * BUTTONS)


def main() -> None:
    """Print both tables, with the rule and without it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--themes", type=Path, required=True)
    parser.add_argument("--manuals", type=Path, required=True)
    parser.add_argument("--pages", type=int, default=40)
    given = parser.parse_args()
    without = patch.object(main_content, "_BUTTON", 0)
    for language, blocks in language_lines.themes(given.themes).items():
        labels = [label for block in blocks for label in block]
        share = share_gone(language, labels)
        with without:
            print(
                f"{language}: {share:.4f} of the buttons went, {share_gone(language, labels):.4f} without the rule"
            )
    draw, lines = random.Random("manuals"), 0
    cut: Counter[tuple[str, str]] = Counter()
    for package in sorted(path for path in given.manuals.iterdir() if path.is_dir()):
        found = sorted(package.rglob("*.html"))
        for path in draw.sample(found, min(given.pages, len(found))):
            html = decode_page(path.read_bytes())
            ours = Counter(extract_text(html).split("\n"))
            with without:
                whole = Counter(line for line in extract_text(html).split("\n") if line.strip())
            lines += whole.total()
            cut.update({(package.name, line): count for line, count in (whole - ours).items()})
    print(f"{cut.total()} of {lines} lines of manuals were cut:", cut.most_common(12))


if __name__ == "__main__":
    main()
