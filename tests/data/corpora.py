"""Small prepared corpora written by hand, in the format that `stoker.data.corpus` documents."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from tokenizers.pre_tokenizers import ByteLevel

from stoker.data.corpus import FORMAT, Corpus
from stoker.recipe import Recipe

BOS, EOS = 256, 257
VOCABULARY_SIZE = 258

Documents = Sequence[Sequence[int]]


def byte_document(text: str, bos: bool = True, eos: bool = True) -> list[int]:
    """Token ids of `text` in the corpora's tokenizer, in which every byte is a token."""
    return [BOS] * bos + list(text.encode()) + [EOS] * eos


def byte_tokenizer() -> Tokenizer:
    """One token a byte (id = byte), and two special tokens."""
    # ByteLevel stands for each byte by a printable character: its own, or one from 256 on.
    own = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    shifted = (256 + n for n in range(256))
    characters = [chr(byte) if byte in own else chr(next(shifted)) for byte in range(256)]
    assert set(characters) == set(ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({character: byte for byte, character in enumerate(characters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>"])
    return tokenizer


def corpus_of_lines(folder: Path, lines: Mapping[str, Sequence[str]]) -> Corpus:
    """A corpus whose documents are the `lines` of each source; the first three of each are held out."""
    return build_corpus(
        folder,
        {
            name: {
                "train": [byte_document(line) for line in own[3:]],
                "held_out": [byte_document(line) for line in own[:3]],
            }
            for name, own in lines.items()
        },
    )


def build_corpus(
    folder: Path,
    sources: Mapping[str, Mapping[str, Documents]],
    *,
    document_bytes: Mapping[str, Mapping[str, Sequence[int]]] | None = None,
    documents_per_shard: int = 3,
    vocabulary_size: int = VOCABULARY_SIZE,
    adds_bos: bool = True,
    adds_eos: bool = True,
    dtype: str = "uint16",
) -> Corpus:
    """Write a corpus of `{source: {split: [token ids of a document, …]}}` into `folder` and open it.

    A document's bytes are counted from its ids below 256 unless `document_bytes` gives them. The special
    tokens are `BOS` and `EOS`; `adds_bos` and `adds_eos` only say in the manifest what the ids given hold.
    """
    tokenizer_path = folder / "tokenizer" / "tokenizer.json"
    tokenizer_path.parent.mkdir(parents=True)
    byte_tokenizer().save(str(tokenizer_path))
    entries = []
    for source, splits in sources.items():
        written = {}
        for split, documents in splits.items():
            sizes = (document_bytes or {}).get(source, {}).get(split)
            if sizes is None:
                sizes = [sum(token < 256 for token in document) for document in documents]
            written[split] = _write_split(folder, source, split, documents, sizes, documents_per_shard, dtype)
        entries.append({"name": source, "kind": "prose", "language": None, "licence": None, "splits": written})
    manifest = {
        "format": FORMAT,
        "fingerprint": hashlib.sha256(repr(sources).encode()).hexdigest()[:16],
        "stoker_version": "0",
        "tokenizer": {
            "sha256": hashlib.sha256(tokenizer_path.read_bytes()).hexdigest(),
            "vocabulary_size": vocabulary_size,
            "bos_id": BOS,
            "eos_id": EOS,
            "adds_bos": adds_bos,
            "adds_eos": adds_eos,
        },
        "dtype": dtype,
        "sources": entries,
        "funnel": [],
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return Corpus.open(folder)


def _write_split(
    folder: Path,
    source: str,
    split: str,
    documents: Documents,
    sizes: Sequence[int],
    documents_per_shard: int,
    dtype: str,
) -> dict[str, Any]:
    shards = []
    for number, first in enumerate(range(0, len(documents), documents_per_shard)):
        part = documents[first : first + documents_per_shard]
        file = Path("tokens") / source / f"{split}-{number:05}.tokens"
        tokens = np.array([token for document in part for token in document], dtype).tobytes()
        lengths = [len(document) for document in part]
        rows = np.array([lengths, sizes[first : first + len(part)]], "<i8").T.tobytes()
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(tokens)
        (folder / file).with_suffix(".documents").write_bytes(rows)
        shards.append(
            {
                "file": file.as_posix(),
                "sha256": hashlib.sha256(tokens).hexdigest(),
                "documents_sha256": hashlib.sha256(rows).hexdigest(),
                "tokens": sum(lengths),
                "documents": len(part),
            }
        )
    return {
        "documents": len(documents),
        "tokens": sum(len(document) for document in documents),
        "bytes": sum(sizes),
        "characters": sum(sizes),
        "shards": shards,
    }


def recipe_for(
    corpus: Corpus,
    sequence_length: int,
    global_batch_size: int = 4,
    weights: Sequence[float] | None = None,
    seed: int = 0,
    steps: int = 100,
    layout: Mapping[str, int] | None = None,
    evaluation: Mapping[str, Any] | None = None,
    **training: Any,
) -> Recipe:
    """A recipe that trains a minute model on `corpus`."""
    sources: list[dict[str, Any]] = [{"name": name, "paths": ["text"]} for name in corpus.source_names]
    for source, weight in zip(sources, weights or [], strict=weights is not None):
        source["weight"] = weight
    return Recipe.model_validate(
        {
            "name": "small",
            "seed": seed,
            "data": {"sources": sources},
            "model": {"hidden_size": 8, "layers": 1, "heads": 2, "ffn_hidden_size": 16},
            "training": {
                "steps": steps,
                "sequence_length": sequence_length,
                "global_batch_size": global_batch_size,
                **training,
            },
            "layout": dict(layout or {}),
            "evaluation": dict(evaluation or {}),
        }
    )
