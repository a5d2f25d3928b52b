"""A few files of text and a recipe over them, small enough to be prepared in a moment."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import yaml

from stoker.recipe.loading import LoadedRecipe, load_recipe

_TEXT = (
    "the of and to in a is that it was for on are with as his they be at one have this from or had by hot word but "
    "what some we can out other were all there when up use your how said an each she which do their time if will "
    "way about many then them write would like so these her long make thing see him two has look more day could go"
)
_WORDS = _TEXT.split()
_CHARACTERS = "今天天气很好我们一起去公园散步他说这本书写得有意思可是价钱太贵了新的一年里大家都在学习和工作中国人民"


def sentence(draw: random.Random, words: int = 25) -> str:
    """English words in no order: different in every document."""
    return " ".join(draw.choices(_WORDS, k=words)).capitalize() + "."


def paragraph(draw: random.Random, characters: int = 60) -> str:
    """Chinese characters in no order."""
    return "".join(draw.choices(_CHARACTERS, k=characters)) + "。"


def write_text_files(folder: Path, seed: int = 1, documents: int = 120) -> None:
    """English in JSON lines, Chinese line by line, and a few files of code, with repetitions among them."""
    draw = random.Random(seed)
    english = [sentence(draw) for _ in range(documents)]
    english += [english[3], english[5], english[7] + " Again", sentence(draw)]
    lines = [json.dumps({"text": text}) for text in english]
    lines.insert(10, '{"text": "half a li')
    lines.insert(20, '{"text": ""}')
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "english.jsonl").write_text("\n".join(lines) + "\n")
    chinese = [paragraph(draw) for _ in range(documents)]
    (folder / "chinese.txt").write_text("\n".join([*chinese, chinese[0]]), encoding="gbk")
    (folder / "code").mkdir()
    for number in range(12):
        body = "\n".join(f"    {word}_{number} = {draw.randrange(100)}" for word in draw.choices(_WORDS, k=20))
        (folder / "code" / f"module_{number}.py").write_text(f"def function_{number}():\n{body}\n")


SOURCES: list[dict[str, Any]] = [
    {"name": "english", "paths": ["text/english.jsonl"], "language": "en"},
    {"name": "chinese", "paths": ["text/chinese.txt"], "language": "zh", "documents": "line"},
    {"name": "code", "paths": ["text/code"], "kind": "code"},
]


def small_recipe(
    folder: Path, *overrides: str, sources: list[dict[str, Any]] | None = None, **data: Any
) -> LoadedRecipe:
    """A recipe in `folder` over `sources` (by default the files of `write_text_files` in `folder`/text)."""
    content = {
        "name": "small",
        "data": {"sources": sources or SOURCES, "held_out": 0.05, "workers": 1, "on_error": "skip", **data},
        "tokenizer": {"vocabulary_size": 300},
        "model": {"hidden_size": 16, "layers": 1, "heads": 2, "ffn_hidden_size": 32},
        "training": {"steps": 2, "sequence_length": 32, "global_batch_size": 2},
    }
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(content, allow_unicode=True))
    return load_recipe(path, overrides)


def folder_bytes(folder: Path) -> dict[str, bytes]:
    """Every file of a prepared corpus but the timings, by name."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "timings.json"
    }
