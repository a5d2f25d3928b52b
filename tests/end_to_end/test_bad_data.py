"""Hard text by the command line: it takes little memory, stops nothing, and each piece of it is named."""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
import zstandard

from stoker.data.corpus import Corpus
from stoker.data.ledger import Ledger
from tests.data.small_corpus import paragraph, sentence
from tests.end_to_end.small_job import command, stoker
from tests.preloaded import environment

pytestmark = pytest.mark.slow

_PEAK = """
import resource, subprocess, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10)
sys.exit(done.returncode)
"""
_ORDINARY = 480
"""MiB that a process of a preparation of ordinary text needs, about; most of them are Python and its libraries."""
_UNPACKED = 512
"""MiB that each bomb unpacks to."""


def write_recipe(folder: Path, *sources: dict[str, Any], **cleaning: Any) -> Path:
    """A recipe over `sources` and a few lines of English."""
    draw = random.Random(1)
    (folder / "fine.txt").write_text("\n".join(sentence(draw, 40) for _ in range(60)))
    content = {
        "name": "hard",
        "data": {
            "sources": [
                {"name": "fine", "paths": ["fine.txt"], "documents": "line", "weight": 1},
                *({"weight": 0, **source} for source in sources),
            ],
            "workers": 1,
            "held_out": 0.02,
            "on_error": "skip",
            "error_budget": 1.0,
            "cleaning": cleaning,
        },
        "tokenizer": {"vocabulary_size": 300},
        "model": {"hidden_size": 16, "layers": 1, "heads": 2, "ffn_hidden_size": 32},
        "training": {"steps": 2, "sequence_length": 32, "global_batch_size": 2},
    }
    (folder / "recipe.yaml").write_text(yaml.safe_dump(content))
    return folder / "recipe.yaml"


def prepared(recipe: Path) -> tuple[Corpus, int]:
    """The corpus, and the most MiB that a process took which had 64 files to open."""
    line = [command()[0], "-c", _PEAK, *command("prepare", recipe)]
    done = subprocess.run(line, capture_output=True, text=True, env=environment(), timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    (manifest,) = (recipe.parent / "prepared").glob("*/manifest.json")
    return Corpus.open(manifest.parent), int(done.stdout)


def fates(recipe: Path, name: str) -> list[tuple[str, str | None]]:
    result = stoker("data", "why", recipe, name, "--json")
    assert result.returncode == 0, result.stderr
    return [(row["position"].split(",")[0], row["reason"]) for row in json.loads(result.stdout)]


def test_what_unpacks_to_hundreds_of_megabytes_is_named_and_takes_little_memory(tmp_path: Path) -> None:
    (tmp_path / "ordinary").mkdir()
    _, ordinary = prepared(write_recipe(tmp_path / "ordinary"))
    folder, block = tmp_path / "bombs", b"a" * (16 << 20)
    folder.mkdir()
    packed = gzip.compress(block, 1) * (_UNPACKED // 16)
    (folder / "lines.jsonl.gz").write_bytes(packed + gzip.compress(b'\n{"text": "a line behind it"}\n'))
    (folder / "page.html.gz").write_bytes(gzip.compress(b"<html><body><p>") + packed)
    (folder / "frames.txt.zst").write_bytes(zstandard.compress(block) * (_UNPACKED // 16))
    whole = zstandard.ZstdCompressor().compressobj()
    pieces = b"".join(whole.compress(block) for _ in range(_UNPACKED // 16))
    (folder / "frame.txt.zst").write_bytes(pieces + whole.flush())
    with (
        zipfile.ZipFile(tmp_path / "all.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("member.txt", "w") as member,
    ):
        for _ in range(_UNPACKED // 16):
            member.write(block)
    zipped = f"zip://member.txt::file://{tmp_path}/all.zip"
    recipe = write_recipe(tmp_path, {"name": "bombs", "paths": ["bombs"]}, {"name": "zipped", "paths": [zipped]})
    _, peak = prepared(recipe)
    assert fates(recipe, "bombs/lines.jsonl.gz") == [("line 1", "too_large"), ("line 2", None)]
    for name in ("page.html.gz", "frames.txt.zst", "frame.txt.zst"):
        assert fates(recipe, f"bombs/{name}") == [("file", "too_large")]
    (manifest,) = (tmp_path / "prepared").glob("*/manifest.json")
    rows = Ledger(manifest.parent).rows().collect().to_dicts()
    assert [row["reason"] for row in rows if row["source"] == "zipped"] == ["too_large"]
    assert peak < ordinary + _UNPACKED // 4


def test_thousands_of_tiny_files_are_all_read_with_few_of_them_open(tmp_path: Path) -> None:
    draw, count = random.Random(2), 3000
    for number in range(count):
        folder = tmp_path / "tiny" / str(number % 7)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.txt").write_text(f"{number} {sentence(draw, 12)}")
    recipe = write_recipe(tmp_path, {"name": "tiny", "paths": ["tiny"]})
    corpus, _ = prepared(recipe)
    rows = Ledger(corpus.folder).rows().collect()
    files = [name for name in rows["file"].to_list() if name.startswith("tiny/")]
    assert sorted(files) == sorted(f"tiny/{number % 7}/{number}.txt" for number in range(count))
    assert fates(recipe, "tiny/3/2999.txt") == [("file", None)]


def test_a_document_of_ten_million_tokens_is_trained_on_whole(tmp_path: Path) -> None:
    draw = random.Random(3)
    lines = [f"{sentence(draw, 12)} {number}" for number in range(20_000)]
    text = "\n".join(f"{part} {line}" for part in range(14) for line in lines)
    (tmp_path / "long.jsonl").write_text(json.dumps({"text": text}) + "\n")
    source = {"name": "long", "paths": ["long.jsonl"], "weight": 1}
    recipe = write_recipe(tmp_path, source, filters=False, maximum_document_bytes=1 << 26)
    corpus, peak = prepared(recipe)
    store = corpus.store("long", "train")
    assert store.document_bytes.tolist() == [len(text)]
    assert store.document_lengths[0] > 10**7
    assert fates(recipe, "long.jsonl:1") == [("line 1", None)]
    shown = stoker("data", "why", recipe, "long.jsonl:1")
    assert shown.returncode == 0, shown.stderr
    assert " ".join(text[:200].split()) in shown.stdout
    assert peak < 2 * _ORDINARY


def test_lines_of_one_file_are_each_read_in_their_own_encoding(tmp_path: Path) -> None:
    draw = random.Random(4)
    texts = [(paragraph(draw, 40), encoding) for encoding in ("utf-8", "gbk") for _ in range(20)]
    draw.shuffle(texts)
    lines = [text.encode(encoding) for text, encoding in texts]
    lines.insert(7, b"a line with a damaged \xff byte in it")
    (tmp_path / "mixed.txt").write_bytes(b"\n".join(lines))
    source = {"name": "mixed", "paths": ["mixed.txt"], "documents": "line", "language": "zh", "weight": 1}
    recipe = write_recipe(tmp_path, source, filters=False)
    corpus, _ = prepared(recipe)
    assert [reason for _, reason in fates(recipe, "mixed.txt")] == [None] * 7 + ["undecodable"] + [None] * 33
    rows = [row for row in Ledger(corpus.folder).rows().collect().to_dicts() if row["split"]]
    read = {
        corpus.store("mixed", row["split"]).document_bytes[row["document"]]
        for row in rows
        if row["source"] == "mixed"
    }
    assert read == {len(text.encode()) for text, _ in texts}
