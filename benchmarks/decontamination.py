"""How much of planted evaluation text is found, what is found where nothing was planted, and how fast.

    python benchmarks/decontamination.py --text FOLDER [--half final]

FOLDER holds `*.jsonl.gz` with fields `language` and `text`. Items are sentences drawn from half of the documents of
two files, one English and one Chinese; they are planted, verbatim or changed, into documents of other files.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import resource
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from stoker.data.decontamination import EvaluationIndex
from stoker.data.decontamination.tables import tables_of

ITEMS_FROM = ("gsm8k-train-test.jsonl.gz", "oi-wiki-md.jsonl.gz")
INTO = ("rust-rfcs.jsonl.gz", "python3-11-doc.jsonl.gz", "libreoffice-help-zh-cn.jsonl.gz", "manpages-zh.jsonl.gz")
SEEDS = {"building": 0, "final": 10_000}
ITEMS = 2000


def texts(path: Path) -> list[str]:
    """The documents of a file."""
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        return [json.loads(line)["text"] for line in stream]


def sentences(documents: list[str], draw: Random) -> list[str]:
    """Distinct sentences of 7 words or 12 Chinese characters and more, mostly letters, in random order."""
    found = {
        sentence.strip()
        for document in documents
        for sentence in re.split(r"(?<=[.!?。！？])\s*|\n", document)
        if (len(sentence.split()) >= 7 or len(re.findall("[\u4e00-\u9fff]", sentence)) >= 12)
        and sum(map(str.isalpha, sentence)) > 0.6 * len(sentence)
    }
    ordered = sorted(found)
    draw.shuffle(ordered)
    return ordered[:ITEMS]


def _units(item: str) -> list[str]:
    return re.findall("[\u4e00-\u9fff]|[^\\s\u4e00-\u9fff]+\\s*|\\s+", item)


def _changed(item: str, draw: Random, share: float) -> str:
    units = _units(item)
    for place in draw.sample(range(len(units)), int(share * len(units))):
        units[place] = "变" if re.match("[\u4e00-\u9fff]", units[place]) else "changed "
    return "".join(units)


def _half(item: str, draw: Random) -> str:
    units = _units(item)
    start = draw.randrange(len(units) // 2 + 1)
    return "".join(units[start : start + (len(units) + 1) // 2])


MANNERS: dict[str, Callable[[str, Random], str]] = {
    "verbatim": lambda item, draw: item,
    "case and punctuation": lambda item, draw: re.sub(r"[.,;:!?，。；：！？]", " ", item.upper()),
    "10% of words changed": lambda item, draw: _changed(item, draw, 0.1),
    "20% of words changed": lambda item, draw: _changed(item, draw, 0.2),
    "half of it": _half,
}


def size_table(count: int) -> None:
    """Seconds, memory and bytes on disk of the tables of `count` items of 20 to 60 words of a vocabulary."""
    draw = Random(0)
    words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randrange(2, 10))) for _ in range(30_000)]
    items = ((str(number), " ".join(draw.choices(words, k=draw.randrange(20, 61)))) for number in range(count))
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    tables = tables_of(items, 13, 26)
    made = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    size = sum(table.nbytes for table in tables.values()) / 1e6
    print(
        f"{count:,} items of {len(tables['words.near.tokens']) / 1e6:.1f} million words: tables of {size:,.0f} MB, "
        f"made in {made:.1f} CPU s with {peak / 1e3:,.0f} MB more memory at most"
    )
    index = EvaluationIndex(tables)
    documents = [" ".join(draw.choices(words, k=500)) for _ in range(2000)]
    index.search(documents[0])
    start = time.process_time()
    alarms = sum(index.search(document) is not None for document in documents)
    megabytes = sum(map(len, documents)) / 1e6
    print(
        f"  {alarms} of {len(documents)} documents of the same words taken for one of them; "
        f"{megabytes / (time.process_time() - start):.0f} MB a CPU second"
    )


def main() -> None:
    """Print the tables."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--text", type=Path, required=True)
    arguments.add_argument("--items", type=int, help="Only the size of the tables of so many items.")
    arguments.add_argument("--half", choices=tuple(SEEDS), default="final")
    given = arguments.parse_args()
    if given.items is not None:
        size_table(given.items)
        return
    hosts = [text for name in INTO for text in texts(given.text / name)]
    for name in ITEMS_FROM:
        draw = Random(SEEDS[given.half])
        own = texts(given.text / name)
        items = sentences(own[given.half == "final" :: 2], draw)
        size = sum(len(item.encode()) for item in items) / 1e6
        start = time.process_time()
        index = EvaluationIndex.of([(str(i), item) for i, item in enumerate(items)], 13, 26)
        built = time.process_time() - start
        index.search("a document of a few words to load what is compiled")
        print(
            f"{name}: {len(items)} items of {size:.2f} MB, index made in {built:.2f} s, "
            f"{index.not_looked_for} not looked for"
        )
        lengths = [len(re.findall(r"\w+", item)) if item.isascii() else len(item) for item in items]
        long = [length >= (13 if item.isascii() else 26) for item, length in zip(items, lengths, strict=True)]
        for manner, change in MANNERS.items():
            found = {True: 0, False: 0}
            for number, item in enumerate(items):
                host = draw.choice(hosts)[:2000]
                at = host.rfind("\n", 0, len(host) // 2) + 1
                hit = index.search(f"{host[:at]}\n{change(item, draw)}\n{host[at:]}")
                found[long[number]] += hit is not None
            shares = [
                f"{kind} {found[key] / max(1, long.count(key)):7.1%}"
                for kind, key in (("long", True), ("short", False))
            ]
            print(f"  {manner:<24}" + "   ".join(shares))
        start = time.process_time()
        alarms = sum(index.search(host) is not None for host in hosts)
        seconds = time.process_time() - start
        megabytes = sum(len(host.encode()) for host in hosts) / 1e6
        print(f"  nothing planted: {alarms} of {len(hosts)} documents; {megabytes / seconds:.0f} MB a CPU second")


if __name__ == "__main__":
    main()
