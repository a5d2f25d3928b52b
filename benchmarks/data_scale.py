"""What preparing stands: drawn kills under both executors, archives that unpack to much, a million files.

    python benchmarks/data_scale.py kills [--executor ray] [--kills 20]
    python benchmarks/data_scale.py bombs [--gigabytes 2]
    python benchmarks/data_scale.py files [--count 1000000]
    python benchmarks/data_scale.py whole [--count 1000000]

Everything is made up and written to a temporary folder. `kills` ends a preparation and all its processes at drawn
moments, again and again until one gets through, and compares the bytes with those of one that was left alone.
`bombs` prepares a file and two small archives of one endless line, and tells the most memory a process of it had.
`files` lists and hashes tiny files, a second time from memory, and cuts them into units.
`whole` prepares tiny files to the end with one worker, without filters, which would drop them.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml
import zstandard

from stoker.data.fingerprint import take_inputs
from stoker.data.reading.units import plan_units
from stoker.progress import Silent
from stoker.recipe.loading import load_recipe

_WORDS = ["the", "of", "and", "to", "in", "is", "that", "it", "was", "for", "on", "are", "with", "as", "they", "be"]


def write_recipe(folder: Path, paths: list[str], **data: Any) -> Path:
    """A recipe over files below `folder`."""
    content = {
        "name": "scale",
        "data": {"sources": [{"name": "made", "paths": paths}], "held_out": 0.01, **data},
        "tokenizer": {"vocabulary_size": 300},
        "model": {"hidden_size": 16, "layers": 1, "heads": 2, "ffn_hidden_size": 32},
        "training": {"steps": 1, "sequence_length": 32, "global_batch_size": 1},
    }
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def write_lines(path: Path, megabytes: float, seed: int) -> None:
    """JSON lines of made-up text."""
    draw = random.Random(seed)
    with path.open("w") as stream:
        while stream.tell() < megabytes * 1e6:
            stream.write(json.dumps({"text": " ".join(draw.choices(_WORDS, k=120))}) + "\n")


def corpus_bytes(prepared: Path) -> dict[str, bytes]:
    """Every file of the one corpus in a folder but the timings, by name."""
    (corpus,) = [path for path in prepared.iterdir() if not path.name.startswith(".")]
    files = [path for path in sorted(corpus.rglob("*")) if path.is_file() and path.name != "timings.json"]
    return {str(path.relative_to(corpus)): path.read_bytes() for path in files}


def run(recipe: Path, *overrides: str, seconds: float | None = None) -> bool:
    """Prepare; whether it got through before it was killed with all its processes after so many seconds."""
    command = [sys.executable, "-m", "stoker", "prepare", str(recipe), *overrides, "--json"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "RAY_AUTH_MODE": "disabled"}
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment, start_new_session=True
    )
    try:
        _, told = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return False
    if process.returncode:
        sys.exit(told.decode())
    return True


def kills(folder: Path, executor: str, count: int) -> None:
    """Kill at drawn moments of what a run takes."""
    for number in range(4):
        write_lines(folder / f"{number}.jsonl", 8, number)
    recipe = write_recipe(folder, ["*.jsonl"], workers=2, executor=executor)
    run(recipe, "data.prepared=whole", "data.executor=local")
    begun = time.monotonic()
    run(recipe, "data.prepared=alone")
    takes = time.monotonic() - begun
    whole = corpus_bytes(folder / "whole")
    assert corpus_bytes(folder / "alone") == whole, "the executors differ"
    draw = random.Random(7)
    killed = corpora = 0
    while killed < count:
        corpora += 1
        prepared = f"data.prepared=killed{corpora}"
        while not run(recipe, prepared, seconds=draw.uniform(0.05, 1.0) * takes if killed < count else None):
            killed += 1
        assert corpus_bytes(folder / f"killed{corpora}") == whole, f"corpus {corpora} differs"
    print(f"{executor}: {killed} kills over {corpora} preparations of {takes:.0f} s: the same bytes every time")


def bombs(folder: Path, gigabytes: float) -> None:
    """One letter, again and again, in three forms beside a file of text."""
    write_lines(folder / "text.jsonl", 1, 0)
    block = b"a" * (1 << 20)
    blocks = int(gigabytes * 1024)
    with gzip.open(folder / "line.jsonl.gz", "wb", compresslevel=1) as stream:
        for _ in range(blocks):
            stream.write(block)
    with (folder / "file.txt.zst").open("wb") as raw, zstandard.ZstdCompressor().stream_writer(raw) as packed:
        for _ in range(blocks):
            packed.write(block)
    with (folder / "line.jsonl").open("wb") as stream:
        for _ in range(blocks):
            stream.write(block)
    recipe = write_recipe(folder, ["*.jsonl", "*.gz", "*.zst"], workers=2, on_error="skip")
    run(recipe)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    (corpus,) = [path for path in (folder / "prepared").iterdir() if not path.name.startswith(".")]
    funnel = json.loads((corpus / "manifest.json").read_text())["funnel"]
    faults = {entry["reason"]: entry["documents"] for entry in funnel if entry["stage"] == "fault"}
    print(f"three files of {gigabytes:g} GB in one line: {faults}, at most {peak:,.0f} MB in a process")


def files(folder: Path, count: int) -> None:
    """Tiny files, a thousand in each folder."""
    for number in range(count):
        if number % 1000 == 0:
            (inner := folder / "text" / f"{number // 1000:05d}").mkdir(parents=True)
        (inner / f"{number % 1000:03d}.txt").write_text(f"Document {number} says little.")
    loaded = load_recipe(write_recipe(folder, ["text"], workers=2))
    loaded.prepared_folder.mkdir()
    old = time.time() - 3600
    for path in (folder / "text").rglob("*.txt"):
        os.utime(path, (old, old))
    for turn in ("first", "second"):
        begun, cpu = time.monotonic(), time.process_time()
        inputs = take_inputs(loaded, 2, Silent())
        wall, cpu = time.monotonic() - begun, time.process_time() - cpu
        print(f"{turn} time: {count:,} files listed and hashed in {wall:.1f} s, {cpu:.1f} CPU s")
    begun = time.process_time()
    units = plan_units(inputs.files)
    print(f"{len(units):,} units, cut in {time.process_time() - begun:.1f} CPU s")


def whole(folder: Path, count: int) -> None:
    """Tiny files of drawn words, prepared to the end in a process of its own."""
    draw = random.Random(3)
    words = [f"{first}{second}" for first in _WORDS for second in _WORDS]
    for number in range(count):
        if number % 1000 == 0:
            (inner := folder / "text" / f"{number // 1000:05d}").mkdir(parents=True)
        (inner / f"{number % 1000:03d}.txt").write_text(" ".join(draw.choices(words, k=12)))
    recipe = write_recipe(folder, ["text"], workers=1, cleaning={"filters": False})
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    run(recipe)
    after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - begun
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    (corpus,) = [path for path in (folder / "prepared").iterdir() if not path.name.startswith(".")]
    (source,) = json.loads((corpus / "manifest.json").read_text())["sources"]
    print(
        f"{count:,} files prepared, {source['splits']['train']['documents']:,} trained on: {processor:.0f} CPU s, "
        f"{wall:.0f} s by the clock, {count / processor:,.0f} files a CPU second; at most "
        f"{after.ru_maxrss / 1024:,.0f} MiB in a process"
    )
    print("CPU seconds by stage:", json.loads((corpus / "timings.json").read_text())["cpu_seconds"])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["kills", "bombs", "files", "whole"])
    parser.add_argument("--executor", choices=["local", "ray"], default="local")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--gigabytes", type=float, default=2)
    parser.add_argument("--count", type=int, default=1_000_000)
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if wanted.what == "kills":
            kills(folder, wanted.executor, wanted.kills)
        elif wanted.what == "bombs":
            bombs(folder, wanted.gigabytes)
        elif wanted.what == "whole":
            whole(folder, wanted.count)
        else:
            files(folder, wanted.count)


if __name__ == "__main__":
    main()
