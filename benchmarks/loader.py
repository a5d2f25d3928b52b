"""How fast batches are made on one core, against what training needs, and how soon a run is back at step 10^6.

    python benchmarks/loader.py [--need TOKENS_PER_SECOND] [--documents 1000000]

Makes a corpus of random tokens in a temporary folder (about 200 MB) and prints, one a line: tokens/s of the
loader in this process with one thread; the ratio to what training needs; seconds from opening the corpus to
the first batch at step 1 and at step 10^6 (files in the page cache, modules imported). The need is `--need`;
beside it stands a measured one: 6 FLOPs per parameter and token of a model with `--parameters` parameters at
the matrix-product speed of one core, which is more than a real step reaches, so that ratio is a low one.
Speeds are per second of processor time, so that other work on the machine does not enter.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

from stoker.data.corpus import FORMAT, Corpus
from stoker.data.feeding import Feed
from stoker.recipe import Recipe

SOURCES = {"long": (0.25, 700.0), "middle": (0.25, 120.0), "short": (0.5, 25.0)}
"""Share of the documents and mean length in tokens of each source."""
SHARD_TOKENS = 2**24
VOCABULARY_SIZE = 32_000


def write_corpus(folder: Path, documents: int) -> None:
    """A corpus of random tokens in the format of `stoker.data.corpus`."""
    draws = np.random.default_rng(0)
    tokenizer = folder / "tokenizer" / "tokenizer.json"
    tokenizer.parent.mkdir(parents=True)
    tokenizer.write_text("{}")
    block = draws.integers(0, VOCABULARY_SIZE, SHARD_TOKENS, dtype=np.uint16)
    sources = []
    for name, (share, mean) in SOURCES.items():
        lengths = np.maximum(draws.lognormal(np.log(mean) - 0.5, 1.0, int(documents * share)), 2).astype(np.int64)
        cuts = np.flatnonzero(np.diff(np.cumsum(lengths) // (SHARD_TOKENS - 2**16))) + 1
        shards = []
        for number, part in enumerate(np.split(lengths, cuts)):
            file = Path("tokens") / name / f"train-{number:05}.tokens"
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            np.resize(block, part.sum()).tofile(folder / file)
            np.stack([part, part * 4], axis=1).astype("<i8").tofile((folder / file).with_suffix(".documents"))
            unchecked = {"sha256": "", "documents_sha256": ""}
            shards.append({"file": str(file), "tokens": int(part.sum()), "documents": len(part), **unchecked})
        train = {"documents": len(lengths), "tokens": int(lengths.sum()), "shards": shards}
        sources.append({"name": name, "splits": {"train": train}})
    manifest = {
        "format": FORMAT,
        "fingerprint": hashlib.sha256(str(documents).encode()).hexdigest()[:16],
        "tokenizer": {
            "sha256": "",
            "vocabulary_size": VOCABULARY_SIZE,
            "bos_id": None,
            "eos_id": None,
            "adds_bos": False,
            "adds_eos": False,
        },
        "dtype": "uint16",
        "sources": sources,
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))


def recipe(sequence_length: int, batch: int) -> Recipe:
    """Sources in proportion to their tokens: the longest pattern a mixture has."""
    return Recipe.model_validate(
        {
            "name": "loader",
            "data": {"sources": [{"name": name, "paths": ["text"]} for name in SOURCES]},
            "model": {"hidden_size": 8, "layers": 1, "heads": 1, "ffn_hidden_size": 8},
            "training": {"steps": 10**7, "sequence_length": sequence_length, "global_batch_size": batch},
        }
    )


def tokens_per_second(feed: Feed, first: int, seconds: float) -> float:
    """Speed of `micro_batches` in this thread, from step `first` on."""
    feed.micro_batches(first, 0, 1)
    begun, tokens, step = time.process_time(), 0, first
    while (passed := time.process_time() - begun) < seconds:
        step += 1
        tokens += sum(batch.tokens.numel() for batch in feed.micro_batches(step, 0, 1))
    return tokens / passed


def seconds_of(work: Callable[[], object], clock: Callable[[], float], repeats: int) -> float:
    """The fastest of a few runs."""
    times = []
    for _ in range(repeats):
        begun = clock()
        work()
        times.append(clock() - begun)
    return min(times)


def measured_need(parameters: float) -> float:
    """Tokens/s of training at this machine's matrix-product speed with one thread."""
    torch.set_num_threads(1)
    size = 768
    a, b = torch.randn(size, size), torch.randn(size, size)
    flops = 2 * size**3 / seconds_of(lambda: a @ b, time.process_time, 10)
    return flops / (6 * parameters)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--need", type=float, default=2000, help="tokens/s that training needs (default: 2000, 20M parameters)"
    )
    parser.add_argument("--parameters", type=float, default=20e6, help="size of the model whose need is measured")
    parser.add_argument("--documents", type=int, default=10**6)
    parser.add_argument("--sequence-length", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=64, help="sequences per step")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long to measure the speed")
    options = parser.parse_args()
    measured = measured_need(options.parameters)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_corpus(folder, options.documents)
        settings = recipe(options.sequence_length, options.batch)

        def first_batch(step: int) -> None:
            Feed(Corpus.open(folder), settings).micro_batches(step, 0, 1)

        tokens = sum(Corpus.open(folder).store(source, "train").token_count for source in SOURCES)
        print(f"corpus: {options.documents:,} documents, {tokens:,} tokens, {len(SOURCES)} sources")
        at_start = seconds_of(lambda: first_batch(1), time.perf_counter, 3)
        at_million = seconds_of(lambda: first_batch(10**6), time.perf_counter, 3)
        speed = tokens_per_second(Feed(Corpus.open(folder), settings), 10**6, options.seconds)
    print(f"loader: {speed:,.0f} tokens/s on one core ({options.batch} x {options.sequence_length} a step)")
    print(f"loader / need: {speed / options.need:,.0f}x of {options.need:,.0f} tokens/s (goal 100x)")
    model = f"{options.parameters / 1e6:g}M parameters at this core's peak"
    print(f"loader / measured need: {speed / measured:,.0f}x of {measured:,.0f} tokens/s ({model})")
    print(f"first batch: step 1 in {at_start:.2f} s, step 1,000,000 in {at_million:.2f} s (goal under 1 s)")


if __name__ == "__main__":
    main()
