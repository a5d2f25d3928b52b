"""One peer over one JSONL file, in a Python of its own: prints [processor seconds, documents removed].

Each gets 5-grams, 128 values and threshold 0.8, cut as its own documentation does it; none verifies by the text
unless it does so by itself. Seconds are of the process and its children, from the opened file to the list.
"""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator

THRESHOLD, PERMUTATIONS, BANDS, ROWS, SIZE = 0.8, 128, 21, 6, 5


def texts(file: str) -> Iterator[str]:
    with open(file, encoding="utf-8") as stream:
        for line in stream:
            yield json.loads(line)["text"]


def shingles(text: str) -> list[str]:
    words = re.split(r"\W+", text.lower())
    return [" ".join(words[i : i + SIZE]) for i in range(max(1, len(words) - SIZE + 1))]


def datasketch(file: str) -> int:
    from datasketch import MinHash, MinHashLSH

    index = MinHashLSH(num_perm=PERMUTATIONS, params=(BANDS, ROWS))
    removed = 0
    for number, text in enumerate(texts(file)):
        sketch = MinHash(num_perm=PERMUTATIONS)
        sketch.update_batch([shingle.encode() for shingle in set(shingles(text))])
        if any(sketch.jaccard(other) >= THRESHOLD for other in (_SKETCHES[key] for key in index.query(sketch))):
            removed += 1
            continue
        index.insert(number, sketch)
        _SKETCHES[number] = sketch
    return removed


_SKETCHES: dict[int, object] = {}


def rensa(file: str) -> int:
    from rensa import RMinHash, RMinHashLSH

    index = RMinHashLSH(THRESHOLD, PERMUTATIONS, 16)
    sketches = {}
    removed = 0
    for number, text in enumerate(texts(file)):
        sketch = RMinHash(PERMUTATIONS, 42)
        sketch.update(shingles(text))
        if any(sketch.jaccard(sketches[key]) >= THRESHOLD for key in index.query(sketch)):
            removed += 1
            continue
        index.insert(number, sketch)
        sketches[number] = sketch
    return removed


def gaoya(file: str) -> int:
    from gaoya.minhash import MinHashStringIndex

    index = MinHashStringIndex(
        hash_size=32,
        jaccard_threshold=THRESHOLD,
        num_bands=BANDS,
        band_size=ROWS,
        analyzer="word",
        lowercase=True,
        ngram_range=(SIZE, SIZE),
    )
    removed = 0
    for number, text in enumerate(texts(file)):
        if index.query(text):
            removed += 1
        else:
            index.insert_document(number, text)
    return removed


def text_dedup(file: str) -> int:
    """Its own command, in a process of its own; loading the file into its data set is part of it."""
    with tempfile.TemporaryDirectory() as folder:
        given = {
            "path": "json",
            "data_files": file,
            "split": "train",
            "column": "text",
            "cache_dir": f"{folder}/cache",
            "output": f"{folder}/out",
            "num_perm": PERMUTATIONS,
            "ngram": SIZE,
            "threshold": THRESHOLD,
            "b": BANDS,
            "r": ROWS,
            "num_proc": 1,
        }
        options = [part for name, value in given.items() for part in (f"--{name}", str(value))]
        subprocess.run([sys.executable, "-m", "text_dedup.minhash", *options], check=True, capture_output=True)
        from datasets import load_from_disk

        return sum(1 for _ in texts(file)) - len(load_from_disk(f"{folder}/out"))


def main() -> None:
    run = {"datasketch": datasketch, "rensa": rensa, "gaoya": gaoya, "text-dedup": text_dedup}[sys.argv[1]]
    if sys.argv[1] == "datasketch":
        import datasketch as _  # noqa: F401
    before = _seconds()
    removed = run(sys.argv[2])
    print(json.dumps([_seconds() - before, removed]))


def _seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


if __name__ == "__main__":
    main()
