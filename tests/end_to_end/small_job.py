"""A whole job small enough to run in seconds: four kinds of made-up text and a recipe for them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from stoker.counter_random import draw_u64, key_of
from tests.preloaded import server

# fmt: off
_WORDS = [
    "river", "stone", "lantern", "orchard", "winter", "letter", "garden", "window", "morning", "harbour",
    "silver", "thunder", "paper", "basket", "candle", "meadow", "bridge", "copper", "whistle", "velvet",
    "anchor", "pebble", "kitchen", "journey", "story", "mountain",
]
# fmt: on
_CHINESE = "山水花鸟风月星河春夏秋冬东西南北书画琴棋江湖天地人间灯火茶酒"


def _draws(*words: str | int, count: int, below: int) -> list[int]:
    return [int(v % below) for v in draw_u64(key_of(7, *words), np.arange(count, dtype=np.uint64))]


def write_corpus(folder: Path, documents: int = 60) -> None:
    """Write English, Chinese, code and mathematics into `folder`, one duplicate in each."""
    english = []
    for i in range(documents):
        words = [_WORDS[d] for d in _draws("english", i, count=60 + i % 17, below=len(_WORDS))]
        english.append("The " + " ".join(words) + ".")
    english.append(english[0])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "english.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in english))
    chinese = folder / "中文 文本"
    chinese.mkdir(exist_ok=True)
    for i in range(documents):
        characters = [_CHINESE[d] for d in _draws("chinese", i, count=80 + i % 11, below=len(_CHINESE))]
        (chinese / f"文章 {i:03d}.txt").write_text("".join(characters) + "。", encoding="utf-8")
    code = folder / "code"
    code.mkdir(exist_ok=True)
    for i in range(documents):
        names = [_WORDS[d] for d in _draws("code", i, count=12, below=len(_WORDS))]
        body = "\n".join(f"    {name}_{j} = {name}({j}) + {i}" for j, name in enumerate(names))
        (code / f"module_{i:03d}.py").write_text(
            f"def function_{i}({names[0]}):\n{body}\n    return {names[1]}_1\n"
        )
    mathematics = []
    for i in range(documents):
        terms = _draws("mathematics", i, count=30, below=97)
        mathematics.append(
            " ".join(f"$x_{{{j}}}^{{{t}}} + {t}y \\le \\frac{{{t}}}{{{j + 1}}}$;" for j, t in enumerate(terms))
        )
    (folder / "mathematics.txt").write_text("\n\n".join(mathematics))


def recipe(**changes: Any) -> dict[str, Any]:
    """The recipe as a mapping; `changes` are dotted fields with `__` for the dot."""
    content: dict[str, Any] = {
        "name": "small",
        "seed": 5,
        "data": {
            "held_out": 0.08,
            "workers": 1,
            "sources": [
                {"name": "english", "paths": ["text/english.jsonl"], "weight": 0.4},
                {"name": "chinese", "language": "zh", "paths": ["text/中文 文本"], "weight": 0.3},
                {"name": "code", "kind": "code", "paths": ["text/code"], "weight": 0.2},
                {
                    "name": "mathematics",
                    "kind": "mathematics",
                    "paths": ["text/mathematics.txt"],
                    "documents": "paragraph",
                    "weight": 0.1,
                },
            ],
        },
        "tokenizer": {"vocabulary_size": 320},
        "model": {"hidden_size": 32, "layers": 2, "heads": 4, "kv_heads": 2, "ffn_hidden_size": 64},
        "training": {
            "steps": 12,
            "sequence_length": 64,
            "global_batch_size": 8,
            "micro_batch_size": 2,
            "optimizer": {"name": "adamw", "learning_rate": 1e-3},
            "schedule": {"name": "cosine", "warmup_steps": 3},
            "device": "cpu",
            "threads": 1,
        },
        "checkpoint": {"every": 4, "keep_last": 2},
        "telemetry": {"modules_every": 5},
        "evaluation": {"every": 6, "sequences": 4, "prompts": ["The river", "山水"], "sample_tokens": 5},
    }
    for dotted, value in changes.items():
        *path, leaf = dotted.split("__")
        target = content
        for part in path:
            target = target.setdefault(part, {})
        target[leaf] = value
    return content


def write_job(folder: Path, **changes: Any) -> Path:
    """Write corpus and recipe into `folder`; returns the recipe's path."""
    write_corpus(folder / "text")
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe(**changes), allow_unicode=True, sort_keys=False), encoding="utf-8")
    return path


def stoker(*arguments: str | Path, timeout: float = 240) -> subprocess.CompletedProcess[str]:
    """Run the real command line and wait for it, in a process that need not import it first."""
    return server().run([str(one) for one in arguments], timeout)


def command(*arguments: str | Path) -> Sequence[str]:
    """The command line that runs `stoker`."""
    return [sys.executable, "-m", "stoker", *map(str, arguments)]
