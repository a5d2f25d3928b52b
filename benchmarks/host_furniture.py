"""Lines that recur on the pages of a host: how many planted ones go, and how many of manuals, in one run.

    python benchmarks/host_furniture.py --text FOLDER --themes WHEELS [--manuals FOLDER] [--half judging]
    python benchmarks/host_furniture.py --text FOLDER --themes WHEELS --verdicts

FOLDER of --text holds `*.jsonl.gz` with fields `kind`, `language` and `text`; WHEELS nikola/ and material/ out of
their wheels. A host is a template: what these generators write on their pages, drawn into a header, two blocks
between paragraphs and a footer, planted on each of its pages among paragraphs of real text, each block on four
fifths of the pages, numbers drawn anew for each page. All text goes through line cleaning first, as in `prepare`.
--manuals holds unpacked packages: each is a host whose own lines must stay. Documents, lines of themes and manuals
are halved; the rule was made on the building half.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import re
import tempfile
import time
import zlib
from collections import Counter
from pathlib import Path

import numpy as np

import language_lines
from stoker.data.deduplication.host_furniture import host_furniture
from stoker.data.document import Document
from stoker.data.extraction import extract_text
from stoker.data.line_cleaning import clean_lines
from stoker.data.operators import operators_of
from stoker.data.reading.html import decode_page
from stoker.recipe import Cleaning, Source

HOSTS = 12
PAGES = 40


def without_furniture(texts: list[str], hosts: list[int]) -> list[str]:
    """The texts without what recurs on their hosts."""
    encoded = [np.frombuffer(text.encode(), np.uint8) for text in texts]
    numbers = np.arange(len(texts))
    with tempfile.TemporaryDirectory() as folder:
        edits = host_furniture(numbers, np.asarray(hosts, np.uint64), encoded.__getitem__, Path(folder))
    return [edits.applied(number, text).tobytes().decode() for number, text in enumerate(encoded)]


def in_half(text: str, half: str) -> bool:
    """Whether a text belongs to a half, by its content."""
    return zlib.crc32(text.encode()) % 2 == (half == "judging")


def template(labels: list[str], draw: random.Random) -> list[list[str]]:
    """Header, two blocks between paragraphs, footer."""
    sizes = (draw.randint(2, 6), draw.randint(1, 3), draw.randint(1, 3), draw.randint(1, 6))
    drawn = iter(draw.sample(labels, sum(sizes)))
    return [[next(drawn) for _ in range(size)] for size in sizes]


def page(
    blocks: list[list[str]], paragraphs: list[str], draw: random.Random, most: int = 12
) -> tuple[str, list[str]]:
    """A page of a host with a third of `most` to `most` paragraphs, and the lines that were planted in it."""
    body = draw.sample(paragraphs, draw.randint(most // 3, most))
    planted: list[str] = []
    for number, block in enumerate(blocks):
        if draw.random() < 0.8:
            lines = [re.sub(r"\d+", lambda _: str(draw.randint(1, 2030)), line) for line in block]
            planted += lines
            at = {0: 0, len(blocks) - 1: len(body)}.get(number, draw.randint(1, max(1, len(body) - 1)))
            body.insert(at, "\n".join(lines))
    return "\n\n".join(body), planted


def _paragraphs(folder: Path, half: str) -> dict[str, list[str]]:
    """Long lines of prose, by language."""
    paragraphs: dict[str, list[str]] = {"en": [], "zh": []}
    for path in sorted(folder.glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as stream:
            documents = [json.loads(line) for line in stream]
        if documents[0]["kind"] == "prose":
            language = "en" if documents[0]["language"].startswith("en") else "zh"
            paragraphs[language] += [
                line
                for document in documents
                for line in document["text"].split("\n")
                if 60 < len(line) < 400 and in_half(line, half)
            ]
    return paragraphs


def planted_table(folder: Path, themes: Path, half: str) -> None:
    """Share of the planted lines that line cleaning and then the host's pages take out, and of the other lines."""
    paragraphs = _paragraphs(folder, half)
    for language, blocks in language_lines.themes(themes).items():
        labels = [label for block in blocks for label in block if in_half(label, half)]
        draw = random.Random(f"{half} {language}")
        pages: list[tuple[str, list[str]]] = []
        for _ in range(HOSTS):
            blocks = template(labels, draw)
            pages += [page(blocks, paragraphs[language], draw) for _ in range(PAGES)]
        cleaned = [clean_lines(text).text for text, _ in pages]
        start = time.process_time()
        left = without_furniture(cleaned, [number // PAGES for number in range(len(pages))])
        seconds = time.process_time() - start
        megabytes = sum(len(text.encode()) for text in cleaned) / 1e6
        (before, _), (after, stayed) = _gone(pages, cleaned), _gone(pages, left)
        own = sum(
            (_written(one) - _written(two) - Counter(planted)).total()
            for one, two, (_, planted) in zip(cleaned, left, pages, strict=True)
        )
        print(
            f"{language}: {len(labels)} lines of themes; {before:.3f} of the planted went with line cleaning, "
            f"{after:.3f} with what recurs; {own} other lines of {sum(_written(one).total() for one in cleaned)}; "
            f"{megabytes / seconds:.1f} MB a CPU second"
        )
        print("  stayed:", [line for line, _ in stayed.most_common(12)])


def verdicts_table(folder: Path, themes: Path, half: str) -> None:
    """How many pages the filters judge otherwise with furniture than without, on long pages and on short ones."""
    paragraphs = _paragraphs(folder, half)
    for language, blocks in language_lines.themes(themes).items():
        labels = [label for block in blocks for label in block if in_half(label, half)]
        chain = operators_of(Source(name="web", paths=("none",), language=language), Cleaning())
        judge = next(one for one in chain if one.name == "filter")
        for most in (12, 3):
            draw = random.Random(f"{half} {language} {most}")
            pages = []
            for _ in range(HOSTS):
                menus = template(labels, draw)
                pages += [page(menus, paragraphs[language], draw, most)[0] for _ in range(PAGES)]
            cleaned = [clean_lines(text).text for text in pages]
            hosts = [number // PAGES for number in range(len(pages))]
            without_furniture(cleaned, hosts)  # compiled before it is timed
            start = time.process_time()
            left = without_furniture(cleaned, hosts)
            cutting = time.process_time() - start
            before = [judge(_document(text, language)).reason for text in cleaned]
            start = time.process_time()
            after = [judge(_document(text, language)).reason for text in left]
            judging = time.process_time() - start
            moved = Counter(pair for pair in zip(before, after, strict=True) if pair[0] != pair[1])
            megabytes = sum(len(text.encode()) for text in cleaned) / 1e6
            print(
                f"{language}, up to {most} paragraphs: {1 - sum(map(len, left)) / sum(map(len, cleaned)):.1%} of "
                f"the characters were cut; of {len(pages)} pages the verdict on {moved.total()} "
                f"({moved.total() / len(pages):.2%}) changes: {dict(moved)}; cutting {cutting / megabytes:.3f} and "
                f"judging {judging / megabytes:.3f} CPU seconds a MB"
            )


def _document(text: str, language: str) -> Document:
    return Document("web", "prose", language, "page", "page", "file", text)


def _written(text: str) -> Counter[str]:
    """Lines that are not blank."""
    return Counter(line for line in text.split("\n") if line.strip())


def _gone(pages: list[tuple[str, list[str]]], texts: list[str]) -> tuple[float, Counter[str]]:
    stayed: Counter[str] = Counter()
    for (_, planted), text in zip(pages, texts, strict=True):
        left = Counter(text.split("\n"))
        stayed.update(line for line in planted if left[line])
    return 1 - stayed.total() / sum(len(planted) for _, planted in pages), stayed


def manuals_table(folder: Path, half: str, most: int) -> None:
    """Lines of manuals that are cut, each manual being one host."""
    lines, cut = 0, Counter[tuple[str, str]]()
    packages = [path for path in sorted(folder.iterdir()) if path.is_dir()]
    for package in packages[half == "judging" :: 2]:
        found = sorted(path for path in package.rglob("*.html*") if path.is_file() and path.suffix != ".gz")
        drawn = random.Random(package.name).sample(found, min(most, len(found)))
        texts = [clean_lines(extract_text(decode_page(path.read_bytes()))).text for path in drawn]
        texts = [text for text in dict.fromkeys(texts) if text.strip()]
        left = without_furniture(texts, [0] * len(texts))
        own = Counter[str]()
        for one, two in zip(texts, left, strict=True):
            own += _written(one) - _written(two)
            lines += _written(one).total()
        cut.update({(package.name, line): count for line, count in own.items()})
        print(f"  {package.name}: {len(texts)} pages, {own.total()} lines cut", own.most_common(8))
    print(f"manuals: {cut.total()} of {lines} lines were cut, {cut.total() / lines:.5f}")


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--themes", type=Path, required=True)
    parser.add_argument("--manuals", type=Path)
    parser.add_argument("--half", choices=("building", "judging"), default="judging")
    parser.add_argument("--pages", type=int, default=60, help="of each manual")
    parser.add_argument("--verdicts", action="store_true", help="what furniture does to the verdicts of filters")
    given = parser.parse_args()
    if given.verdicts:
        verdicts_table(given.text, given.themes, given.half)
        return
    planted_table(given.text, given.themes, given.half)
    if given.manuals:
        manuals_table(given.manuals, given.half, given.pages)


if __name__ == "__main__":
    main()
