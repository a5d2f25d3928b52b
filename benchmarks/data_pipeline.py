"""From text to tokens: `stoker prepare` and datatrove on the same file, megabytes for each CPU second, in one run.

    python benchmarks/data_pipeline.py --text FOLDER --peer PYTHON [--megabytes 24]

FOLDER holds `*.jsonl.gz` with fields `kind`, `language` and `text`; English prose is taken from all files, and one
document in fifty once more. PYTHON is an interpreter in which datatrove is installed. Both repair and normalise the
text, ask the rules of Gopher (repetition and quality) and FineWeb, remove near-duplicates by MinHash, and encode
with the same tokenizer, each in one process. Ours removes exact duplicates as well, measures languages, and writes
the ledger; `all` is ours with everything that it does by default. Times are of whole processes, starting up
included; what starting costs is told by a run over the first hundredth of the text. Each is run once before on that
text, so that its compiled code is in the cache, as it is from the second time on.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

from stoker.data.tokenizer import train_tokenizer
from stoker.recipe import Tokenizer

LIKE = {
    "rules": ["gopher", "fineweb"],
    "line_cleaning": False,
    "personal_data": {"mask": []},
    "unsafe": "off",
}


def english_texts(folder: Path, megabytes: float) -> list[str]:
    """English prose of all files in turn, so that no one of them makes up the text; a few documents twice."""
    queues = []
    for path in sorted(folder.glob("*.jsonl.gz")):
        with gzip.open(path, "rt") as stream:
            rows = [json.loads(line) for line in stream]
        queues.append([row["text"] for row in rows if (row.get("kind"), row.get("language")) == ("prose", "en")])
    texts: list[str] = []
    size = 0.0
    while size < megabytes * 1e6 and any(queues):
        for queue in filter(None, queues):
            texts.append(queue.pop())
            size += len(texts[-1].encode())
    return texts + texts[::50]


def write_texts(path: Path, texts: list[str]) -> float:
    """JSON lines; megabytes of text."""
    path.parent.mkdir(parents=True)
    path.write_text("".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts))
    return sum(len(text.encode()) for text in texts) / 1e6


def cpu_seconds(command: list[str]) -> float:
    """Of a process and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "RAYON_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        sys.exit(done.stderr[-2000:])
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def write_recipe(folder: Path, texts: Path, tokenizer: Path, cleaning: dict[str, Any]) -> Path:
    """A recipe over one folder of JSON lines."""
    folder.mkdir()
    content = {
        "name": "pipeline",
        "data": {
            "sources": [{"name": "english", "language": "en", "paths": [str(texts)]}],
            "workers": 1,
            "held_out": 0,
            "cleaning": cleaning,
        },
        "tokenizer": {"path": str(tokenizer)},
        "model": {"hidden_size": 16, "layers": 1, "heads": 2, "ffn_hidden_size": 32},
        "training": {"steps": 1, "sequence_length": 32, "global_batch_size": 1},
    }
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--peer", required=True)
    parser.add_argument("--megabytes", type=float, default=24)
    wanted = parser.parse_args()
    texts = english_texts(wanted.text, wanted.megabytes)
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        tokenizer = work / "tokenizer.json"
        train_tokenizer({"english": iter(texts)}, Tokenizer(vocabulary_size=16000, training_megabytes=8), tokenizer)
        sizes = {
            "small": write_texts(work / "small" / "a.jsonl", texts[: len(texts) // 100]),
            "whole": write_texts(work / "whole" / "a.jsonl", texts),
        }
        print(f"{sizes['whole']:.1f} MB in {len(texts):,} documents\n")
        print(f"{'':<16}{'CPU s':>9}{'starting':>10}{'MB/s':>8}{'MB/s without starting':>23}")
        rates = {}
        for name, cleaning in (("stoker, like", LIKE), ("stoker, all", {}), ("datatrove", None)):
            seconds = {}
            for size in ("small", *sizes):  # the first finds the caches of code as they may be, and does not count
                if cleaning is None:
                    peer = Path(__file__).with_name("data_pipeline_peer.py")
                    folder = Path(tempfile.mkdtemp(dir=work)) / "peer"
                    command = [wanted.peer, str(peer), str(work / size), str(tokenizer), str(folder)]
                else:
                    folder = Path(tempfile.mkdtemp(dir=work)) / name
                    recipe = write_recipe(folder, work / size, tokenizer, cleaning)
                    command = [sys.executable, "-m", "stoker", "prepare", str(recipe), "--json"]
                seconds[size] = cpu_seconds(command)
            more = (seconds["whole"] - seconds["small"]) / (sizes["whole"] - sizes["small"])
            start = seconds["small"] - more * sizes["small"]
            rates[name] = sizes["whole"] / seconds["whole"], 1 / more
            print(f"{name:<16}{seconds['whole']:9.1f}{start:10.1f}{rates[name][0]:8.2f}{rates[name][1]:23.2f}")
        for name in ("stoker, like", "stoker, all"):
            ratios = [ours / theirs for ours, theirs in zip(rates[name], rates["datatrove"], strict=True)]
            print(f"{name} over datatrove: {ratios[0]:.1f} times, {ratios[1]:.1f} without starting")


if __name__ == "__main__":
    main()
