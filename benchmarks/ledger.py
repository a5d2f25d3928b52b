"""How fast a ledger is written, and how fast it answers, in processor and wall seconds.

    python benchmarks/ledger.py [--documents 10000000] [--folder FOLDER]

Draws a corpus of web pages and books with the product's own writer of ledgers: 25 measures, a rule for each, a
fifth dropped; beside it token shards of 24 tokens a document, and a run. Then every command is asked in a process
of its own, as a user types it: cold (the corpus's files dropped from the page cache) and warm, and, as `inside`,
the answer alone in a process that has its modules loaded. Prints one line for each, and the highest resident memory
of writing. With `--folder`, the corpus is kept there and used again.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pyarrow as pa
import yaml
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from stoker.data.corpus import FORMAT, Corpus
from stoker.data.ledger import Ledger
from stoker.data.ledger.borderline import borderline
from stoker.data.ledger.description import OperatorNote, RuleNote, SourceNote
from stoker.data.ledger.difference import difference
from stoker.data.ledger.falls import all_warnings
from stoker.data.ledger.what_if import what_if
from stoker.data.ledger.writing import LedgerWriter
from stoker.data.showing import show_step
from stoker.durable_files import sha256_of_file
from stoker.recipe import Recipe

MEASURES = 25
SOURCES = {"web": 0.9, "books": 0.1}
UNIT_ROWS = 20_000
TOKENS = 24
"""In each document: few, so that ten million take half a gigabyte."""
BATCH = 256


def write_ledger(folder: Path, documents: int) -> dict[str, int]:
    """The ledger of a drawn corpus; returns how many documents of each source are trained on."""
    rules = tuple(RuleNote(f"reason_{k}", f"filter.m{k}", "above", 0.99, "drawn", "drawn") for k in range(MEASURES))
    names = tuple(rule.measure for rule in rules)
    reasons = {rule.reason: rule.meaning for rule in rules}
    notes = [SourceNote(name, "prose", "en", (OperatorNote("filter", names, reasons, rules),)) for name in SOURCES]
    writer = LedgerWriter(folder / "ledger", notes)
    placed = dict.fromkeys(SOURCES, 0)
    draws = np.random.default_rng(0)
    for name, share in SOURCES.items():
        count = int(documents * share)
        for first in range(0, count, UNIT_ROWS):
            rows = min(UNIT_ROWS, count - first)
            table, kept = drawn_rows(draws, name, first, rows, placed[name])
            placed[name] += kept
            writer.add(table)
    writer.close()
    return placed


def drawn_rows(
    draws: np.random.Generator, source: str, first: int, rows: int, documents: int
) -> tuple[pa.Table, int]:
    """`rows` rows of one file, and how many of them are kept."""
    measures = draws.random((MEASURES, rows), np.float32)
    over = measures > 0.99
    dropped = over.any(axis=0)
    reason = np.where(dropped, over.argmax(axis=0), 0)
    kept = ~dropped
    document = documents + np.cumsum(kept) - 1
    sizes = draws.lognormal(7, 1, rows).astype(np.int64)
    file = f"data/{source}-{first // UNIT_ROWS:05d}.jsonl"
    columns: dict[str, Any] = {
        "source": pa.repeat(source, rows),
        "kind": pa.repeat("prose", rows),
        "language": pa.array(np.where(draws.random(rows) < 0.7, "en", "zh")),
        "file": pa.repeat(file, rows),
        "position": pa.array([f"line {number + 1}" for number in range(rows)]),
        "identifier": pa.array([f"https://example.org/{source}/{first + number:x}" for number in range(rows)]),
        "sha256": pa.array([draws.bytes(32) for _ in range(rows)], pa.binary(32)),
        "characters": sizes,
        "bytes": sizes,
        "cjk_characters": np.where(draws.random(rows) < 0.3, sizes, 0),
        "formula_characters": np.zeros(rows, np.int64),
        "code_characters": np.where(draws.random(rows) < 0.05, sizes, 0),
        "verdict": pa.array(np.where(kept, "kept", "dropped")),
        "stage": pa.array(["filter"]).take(pa.array(np.zeros(rows, np.int8), mask=kept)),
        "reason": pa.array([f"reason_{k}" for k in range(MEASURES)]).take(pa.array(reason, mask=kept)),
        "split": pa.array(["train"]).take(pa.array(np.zeros(rows, np.int8), mask=dropped)),
        "document": pa.array(document, mask=dropped),
        "tokens": pa.array(np.full(rows, TOKENS), mask=dropped),
    }
    columns |= {f"measure.filter.m{k}": measures[k] for k in range(MEASURES)}
    return pa.table(columns), int(kept.sum())


def write_corpus(folder: Path, trained: dict[str, int]) -> None:
    """Tokens, tokenizer and manifest beside the ledger: bytes as tokens, all the same text."""
    (folder / "tokenizer").mkdir(parents=True, exist_ok=True)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({character: place for place, character in enumerate(alphabet)}, []))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer_path = folder / "tokenizer" / "tokenizer.json"
    tokenizer.save(str(tokenizer_path))
    sources = []
    for name, documents in trained.items():
        file = Path("tokens") / name / "train-00000.tokens"
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        np.full(documents * TOKENS, 68, "<u2").tofile(folder / file)
        np.full((documents, 2), TOKENS, "<i8").tofile((folder / file).with_suffix(".documents"))
        shard = {"file": str(file), "tokens": documents * TOKENS, "documents": documents}
        shard |= {"sha256": "", "documents_sha256": ""}
        train = {"documents": documents, "tokens": documents * TOKENS, "bytes": documents * 100, "shards": [shard]}
        sources.append({"name": name, "kind": "prose", "language": None, "splits": {"train": train}})
    special = {"bos_id": None, "eos_id": None, "adds_bos": False, "adds_eos": False}
    manifest = {
        "format": FORMAT,
        "fingerprint": "drawn",
        "tokenizer": {"sha256": sha256_of_file(tokenizer_path), "vocabulary_size": 256, **special},
        "dtype": "uint16",
        "sources": sources,
        "funnel": [],
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))


def write_run(folder: Path, corpus: Path) -> None:
    """As much of a run's folder as `stoker data show` wants."""
    folder.mkdir(exist_ok=True)
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe_values()))
    (folder / "origin.json").write_text(json.dumps({"recipe": "recipe.yaml", "corpus": str(corpus)}))


def recipe_values() -> dict[str, Any]:
    return {
        "name": "drawn",
        "data": {"sources": [{"name": name, "paths": ["none"]} for name in SOURCES]},
        "model": {"hidden_size": 8, "layers": 1, "heads": 2, "ffn_hidden_size": 16},
        "training": {"steps": 10_000, "sequence_length": 64, "global_batch_size": BATCH},
    }


def forget(folder: Path) -> None:
    """Drop the pages of all files below `folder` from the page cache."""
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def asked(*words: str) -> tuple[float, float]:
    """Processor and wall seconds of one command in a process of its own."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, "-m", "stoker", *words], check=True, stdout=subprocess.DEVNULL)
    after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - start
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


def timed(answer: Callable[[], object]) -> tuple[float, float]:
    """Processor and wall seconds of one call."""
    processor, wall = time.process_time(), time.perf_counter()
    answer()
    return time.process_time() - processor, time.perf_counter() - wall


def measure(folder: Path, documents: int) -> None:
    corpus, run = folder / "corpus", folder / "run"
    ledger = Ledger(corpus)
    trained = sum(stretch.documents for stretch in ledger.description.stretches)
    some = np.random.default_rng(1).choice(int(documents * SOURCES["web"] * 0.7), BATCH * 3, replace=False)
    recipe = Recipe.model_validate(recipe_values())
    name = f"https://example.org/web/{documents // 2:x}"
    commands: dict[str, tuple[tuple[str, ...], Callable[[], object]]] = {
        "funnel": (
            ("funnel", str(corpus)),
            lambda: [ledger.funnel(), all_warnings(ledger.summary(), ledger.description, ledger.cuts())],
        ),
        "why": (("why", str(corpus), name), lambda: Ledger(corpus).why(name)),
        "why a file": (
            ("why", str(corpus), "data/web-00007.jsonl"),
            lambda: Ledger(corpus).why("data/web-00007.jsonl", 1000),
        ),
        "sample": (
            ("sample", str(corpus), "reason_7"),
            lambda: ledger.at([b.row for b in borderline(ledger, "reason_7", 20)]),
        ),
        "what-if": (("what-if", str(corpus), "reason_7=0.985"), lambda: what_if(ledger, {"reason_7": 0.985})),
        "show": (("show", str(run), "--step", "57"), lambda: show_step(Corpus.open(corpus), recipe, 57)),
        "diff": (("diff", str(corpus), str(corpus)), lambda: difference(ledger, Ledger(corpus))),
    }
    print(f"{documents:,} documents, {trained:,} trained on; seconds of processor / wall")
    print(f"{'':14} {'cold':>14} {'warm':>14} {'inside':>14}")
    for label, (words, answer) in commands.items():
        forget(corpus)
        cold = asked("data", *words)
        warm = asked("data", *words)
        answer()
        inside = timed(answer)
        print(f"{label:14}", *(f"{cpu:6.2f} / {wall:5.2f}" for cpu, wall in (cold, warm, inside)))
    inside = timed(lambda: Ledger(corpus).documents("web", "train", some))
    print(f"{f'origins of {len(some)}':14} {'':>14} {'':>14} {inside[0]:6.2f} / {inside[1]:5.2f}")
    print(f"{'no command':14} {'':>14}", *(f"{cpu:6.2f} / {wall:5.2f}" for cpu, wall in [asked("data", "--help")]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=10_000_000)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        corpus = folder / "corpus"
        if not (corpus / "manifest.json").is_file():
            start = time.process_time()
            trained = write_ledger(corpus, options.documents)
            seconds = time.process_time() - start
            write_corpus(corpus, trained)
            write_run(folder / "run", corpus)
            size = sum(path.stat().st_size for path in (corpus / "ledger").iterdir())
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            print(
                f"written in {seconds:.1f} s of processor (drawing included): {size / options.documents:.0f} bytes "
                f"a document, {size / 1e9:.2f} GB; highest resident memory {peak / 1e9:.2f} GB"
            )
        measure(folder, options.documents)


if __name__ == "__main__":
    main()
