"""Near-duplicate removal: megabytes per processor second beside peers, what is found, and memory.

speed   texts of a folder of JSONL, end to end from the file to the list of those removed; and signing alone
found   recall and precision by kind of text against all pairs counted in plain Python
scale   millions of made documents: memory for each, seconds
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from benchmarks.deduplication_text import KINDS, changed, opened, plain_shingles, texts_of_kind

from stoker.data.deduplication import find_duplicates
from stoker.data.minhash import sign
from stoker.recipe import Deduplication

SETTINGS = Deduplication()
PEERS = ("datasketch", "rensa", "gaoya", "text-dedup")
WORKER = Path(__file__).with_name("deduplication_peers.py")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("part", choices=("speed", "found", "scale"))
    arguments.add_argument("--corpus", type=Path, help="folder of .jsonl.gz files with a `text` field")
    arguments.add_argument("--peers", type=Path, help="a Python that has the peers installed")
    arguments.add_argument("--only", nargs="*", default=PEERS, help="peers to measure")
    arguments.add_argument("--megabytes", type=float, default=12.0, help="text that the peers are given too")
    arguments.add_argument("--documents", type=int, default=10_000_000, help="of `scale`")
    given = arguments.parse_args()
    {"speed": speed, "found": found, "scale": scale}[given.part](given)


def warm() -> None:
    """Compile, or find in the cache, what is measured after."""
    find_duplicates(
        ["one two three four five six seven", "unlike all others", "ONE two three four five six seven"], SETTINGS
    )


def speed(given: argparse.Namespace) -> None:
    warm()
    with tempfile.TemporaryDirectory() as folder:
        whole, part = Path(folder, "whole.jsonl"), Path(folder, "part.jsonl")
        everything = [text for kind in KINDS for text in texts_of_kind(kind, given.corpus)]
        random.Random(0).shuffle(everything)
        _written(whole, everything, 1e9)
        _written(part, everything, given.megabytes)
        print(f"{'':24}{'documents':>10}{'MB':>8}{'CPU s':>8}{'MB/CPU s':>10}{'removed':>9}")
        for name, file in (("stoker, all of it", whole), ("stoker", part)):
            before = time.process_time()
            removed = find_duplicates(opened(file), SETTINGS)
            _row(name, file, time.process_time() - before, len(removed))
        listed = list(opened(whole))
        before = time.process_time()
        for start in range(0, len(listed), 1000):
            sign(listed[start : start + 1000], SETTINGS.shingle_size, SETTINGS.permutations)
        _row("stoker, signing alone", whole, time.process_time() - before, None)
        for peer in given.only if given.peers else ():
            answer = subprocess.run(
                [given.peers, WORKER, peer, part], capture_output=True, text=True, check=False, timeout=1800
            )
            if answer.returncode:
                print(f"{peer:24}failed: {answer.stderr.strip().splitlines()[-1:]}")
                continue
            seconds, count = json.loads(answer.stdout.splitlines()[-1])
            _row(peer, part, seconds, count)


def _written(file: Path, texts: list[str], megabytes: float) -> None:
    size = 0
    with open(file, "w", encoding="utf-8") as stream:
        for text in texts:
            size += stream.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
            if file.stat().st_size >= megabytes * 1e6:
                return


def _row(name: str, file: Path, seconds: float, removed: int | None) -> None:
    with open(file, "rb") as stream:
        documents = sum(1 for _ in stream)
    size = file.stat().st_size / 1e6
    shown = "" if removed is None else f"{removed:,}"
    print(f"{name:24}{documents:>10,}{size:>8.1f}{seconds:>8.2f}{size / seconds:>10.1f}{shown:>9}", flush=True)


def found(given: argparse.Namespace) -> None:
    """Real texts and changed copies of them; the truth is every pair that shares a shingle, counted in full."""
    print(f"{'':14}{'documents':>10}{'pairs >= 0.8':>14}{'recall':>9}{'removed':>9}{'precision':>11}")
    for kind in KINDS:
        originals = texts_of_kind(kind, given.corpus)[1::2][:1500]
        draw = random.Random(f"copies {kind}")
        copies = [changed(text, draw) for text in draw.sample(originals, min(700, len(originals)))]
        texts = originals + copies
        draw.shuffle(texts)
        sets = [plain_shingles(text, SETTINGS.shingle_size) for text in texts]
        true = _similar_pairs(sets, SETTINGS.threshold)
        removed = find_duplicates(texts, SETTINGS)
        gone = set(removed.index.tolist())
        missed = sum(i not in gone and j not in gone for i, j in true)
        right = sum(_jaccard(sets[i], sets[j]) >= SETTINGS.threshold for i, j, _ in removed.rows())
        print(
            f"{kind:14}{len(texts):>10,}{len(true):>14,}{1 - missed / len(true):>9.4f}{len(removed):>9,}"
            f"{right / len(removed):>11.4f}",
            flush=True,
        )


def _similar_pairs(sets: list[frozenset[str]], threshold: float) -> list[tuple[int, int]]:
    """All pairs of a similarity of at least the threshold, by prefix filtering on the rarest shingles."""
    counted: dict[str, int] = defaultdict(int)
    for own in sets:
        for shingle in own:
            counted[shingle] += 1
    holders: dict[str, list[int]] = defaultdict(list)
    pairs = []
    for index, own in enumerate(sets):
        ordered = sorted(own, key=lambda shingle: (counted[shingle], shingle))
        prefix = ordered[: len(own) - int(np.ceil(threshold * len(own) - 1e-9)) + 1]
        near = {other for shingle in prefix for other in holders[shingle]}
        pairs += [(index, other) for other in near if _jaccard(own, sets[other]) >= threshold]
        for shingle in prefix:
            holders[shingle].append(index)
    return pairs


def _jaccard(left: frozenset[str], right: frozenset[str]) -> float:
    return len(left & right) / len(left | right) if left or right else 0.0


def scale(given: argparse.Namespace) -> None:
    warm()
    before, seconds = _anonymous_bytes(), time.process_time()
    removed = find_duplicates(_made(given.documents), SETTINGS)
    seconds = time.process_time() - seconds
    planted = given.documents // 10
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"documents {given.documents:,}; planted copies {planted:,}; removed {len(removed):,}")
    each = seconds / given.documents * 1e6
    print(f"CPU seconds {seconds:.0f} with making the texts, {each:.1f} microseconds a document")
    print(f"peak resident memory {peak / 1e9:.2f} GB, {before / 1e9:.2f} GB before the start")
    print(f"bytes a document {(peak - before) / given.documents:.0f}, with the pages of mapped files")


def _made(count: int) -> Iterator[str]:
    """Documents of 60 words of which every tenth is an earlier one with a word changed (similarity 0.836)."""
    words = [f"{a}{b}" for a in ("ra", "ne", "lo", "ti", "mu", "ka", "ve", "so") for b in range(5000)]
    draws = np.random.default_rng(0)
    kept: list[np.ndarray] = []
    for start in range(0, count, 10_000):
        drawn = draws.integers(0, len(words), (min(10_000, count - start), 60))
        for place in range(9, len(drawn), 10):
            source = drawn[place - 9] if place % 20 == 9 or not kept else kept[int(draws.integers(len(kept)))]
            drawn[place] = source
            drawn[place, 30] = draws.integers(len(words))
        if len(kept) < 1000:
            kept.append(drawn[0].copy())
        for row in drawn.tolist():
            yield " ".join([words[word] for word in row])


def _anonymous_bytes() -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmRSS:")[1].split()[0]) * 1024


if __name__ == "__main__":
    main()
