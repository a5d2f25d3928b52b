"""Whether Ray Data would give the reading and cleaning of a preparation anything that Ray tasks do not.

    python benchmarks/ray_tasks.py [--megabytes 200] [--workers 2] [--text FOLDER]

Reads, cleans, filters and signs the same JSON lines three ways, each in a Ray of its own: `tasks`, our executor;
`units`, Ray Data over the same units of files (`from_items`, `map_batches`), which carries their names alone;
`rows`, Ray Data as it is meant (`read_json`, `map_batches`, `write_parquet`): text goes through its object store.
Told of each: time by the clock, CPU seconds of all its processes, the most memory they had together, and what is on
disk afterwards. The text is made up, or that of the `.jsonl.gz` of a folder, again and again with other letters
between. Needs `pip install 'ray[data]'` beside Stoker's `ray`.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from data_scale import write_lines, write_recipe

_FILE_MEGABYTES = 25.0


def write_corpus(folder: Path, megabytes: float, text: Path | None) -> None:
    """Files of JSON lines, of text that is in no two documents the same."""
    count = max(1, round(megabytes / _FILE_MEGABYTES))
    found = sorted(text.glob("*.jsonl.gz")) if text else []
    for number in range(count):
        path = folder / f"{number:03d}.jsonl"
        if not found:
            write_lines(path, megabytes / count, number)
            continue
        with path.open("w") as stream:
            for turn, source in enumerate(itertools.cycle(found)):
                if stream.tell() >= megabytes / count * 1e6:
                    break
                with gzip.open(source, "rt") as lines:
                    for line in itertools.islice(lines, 400):
                        content = json.loads(line)["text"][:20_000]
                        stream.write(json.dumps({"text": f"{content} {number}/{turn}"}) + "\n")


def jobs_of(recipe: Path, out: Path) -> list[Any]:
    """The jobs of the first stage of a preparation."""
    from stoker.data.fingerprint import take_inputs
    from stoker.data.reading.units import plan_units
    from stoker.data.stages.read_and_clean import ReadUnit
    from stoker.progress import Silent
    from stoker.recipe.loading import load_recipe

    loaded = load_recipe(recipe)
    data = loaded.recipe.data
    loaded.prepared_folder.mkdir(exist_ok=True)
    units = plan_units(take_inputs(loaded, 1, Silent()).files)
    return [ReadUnit(unit, data.cleaning, data.deduplication, True, out, data.document_seconds) for unit in units]


def tasks(recipe: Path, out: Path, workers: int) -> int:
    """As a preparation does it; how many documents."""
    from stoker.data.executors.ray_tasks import RayTasks
    from stoker.data.stages.read_and_clean import after_death, read_unit

    executor = RayTasks(workers, None)
    return sum(found.documents for found in executor.in_order(read_unit, jobs_of(recipe, out), after_death))


def units(recipe: Path, out: Path, workers: int) -> int:
    """Ray Data over the names of the pieces of input; how many documents."""
    import ray.data

    def read(batch: dict[str, Any]) -> dict[str, Any]:
        from stoker.data.stages.read_and_clean import read_unit

        return {"documents": [read_unit(jobs[number]).documents for number in batch["item"].tolist()]}

    jobs = jobs_of(recipe, out)
    started(workers)
    numbers = ray.data.from_items(list(range(len(jobs))), override_num_blocks=len(jobs))
    return int(numbers.map_batches(read, batch_size=1, concurrency=workers).sum("documents"))


def rows(recipe: Path, out: Path, workers: int) -> int:
    """Ray Data over the rows of the files; how many documents."""
    import ray.data

    from stoker.recipe.loading import load_recipe

    data = load_recipe(recipe).recipe.data
    source, cleaning, deduplication = data.sources[0], data.cleaning, data.deduplication

    def judged(batch: Any) -> Any:
        import pyarrow as pa

        from stoker.data.deduplication import sign
        from stoker.data.document import Document
        from stoker.data.operators import judge, operators_of

        operators = operators_of(source, cleaning)
        texts, reasons = [], []
        for number, text in enumerate(batch["text"].to_pylist()):
            document = Document("made", "prose", None, str(number), "file", f"line {number}", text)
            judgement = judge(document, operators)
            reasons.append(judgement.reason)
            texts.append(None if judgement.reason else judgement.document.text)
        signatures = sign([text for text in texts if text is not None], deduplication)
        signed = iter(signatures)
        own = [None if text is None else next(signed).tobytes() for text in texts]
        return pa.table({"text": texts, "reason": pa.array(reasons, pa.string()), "signature": own})

    started(workers)
    made = ray.data.read_json([str(path) for path in sorted(recipe.parent.glob("*.jsonl"))])
    made.map_batches(judged, batch_format="pyarrow", batch_size=2048, concurrency=workers).write_parquet(str(out))
    return int(ray.data.read_parquet(str(out)).count())


def started(workers: int) -> None:
    """A Ray of this process's own, as the executor starts it."""
    import logging

    import ray

    ray.init(
        address="local", num_cpus=workers, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR
    )
    ray.data.DataContext.get_current().enable_progress_bars = False


def watched(command: list[str]) -> tuple[int, float, float, float]:
    """What a command printed last, seconds, CPU seconds and the most bytes of it and all that it started."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "RAY_AUTH_MODE": "disabled"}
    begun = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    spent: dict[tuple[int, float], float] = {}
    most = 0.0
    root = psutil.Process(process.pid)
    while process.poll() is None:
        memory = 0
        for one in [root, *root.children(recursive=True)] if root.is_running() else []:
            try:
                used = one.cpu_times()
                spent[one.pid, one.create_time()] = used.user + used.system
                memory += one.memory_full_info().pss
            except psutil.Error:
                continue
        most = max(most, memory)
        time.sleep(0.5)
    assert process.stdout is not None
    told = process.stdout.read().split()
    if process.returncode or not told:
        sys.exit(f"{' '.join(command)} failed")
    return int(told[-1]), time.monotonic() - begun, sum(spent.values()), most


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=200)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--text", type=Path)
    parser.add_argument("--only", nargs=3, metavar=("WAY", "RECIPE", "OUT"), help=argparse.SUPPRESS)
    wanted = parser.parse_args()
    ways = {"tasks": tasks, "units": units, "rows": rows}
    if wanted.only:
        way, recipe, out = wanted.only
        print(ways[way](Path(recipe), Path(out), wanted.workers))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_corpus(folder, wanted.megabytes, wanted.text)
        recipe = write_recipe(folder, ["*.jsonl"], workers=wanted.workers)
        for way in ways:
            (out := folder / way).mkdir()
            command = [sys.executable, __file__, "--workers", str(wanted.workers)]
            documents, wall, cpu, memory = watched([*command, "--only", way, str(recipe), str(out)])
            size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
            print(
                f"{way:6} {documents:,} documents, {wall:.0f} s, {cpu:.0f} CPU s, at most {memory / 1e9:.2f} GB, "
                f"{size / 1e6:.0f} MB written",
                flush=True,
            )


if __name__ == "__main__":
    main()
