"""A prepared corpus made of tokens that others wrote."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import stoker
from stoker.data.corpus import FORMAT, MANIFEST, Corpus
from stoker.data.exchange.imported_ledger import ImportedDocuments, write_imported_ledger
from stoker.data.exchange.megatron_index import MegatronIndex, megatron_files, read_documents, read_index
from stoker.data.imported import IMPORTED
from stoker.data.manifest import is_name_of_source
from stoker.data.shards import token_dtype, write_split
from stoker.data.token_text import token_text
from stoker.data.tokenizer import TextEncoder, adopt_tokenizer
from stoker.durable_files import durable_folder, sha256_of_file, write_json
from stoker.errors import BadInput
from stoker.progress import Progress, Task
from stoker.recipe import Tokenizer

SHARD_TOKENS = 1 << 24
SPLITS = ("train", "held_out")


@dataclass(frozen=True)
class Imported:
    """What one dataset became."""

    source: str
    documents: int
    tokens: int
    held_out: int
    """Documents that are held out, of those."""
    with_bos: int
    """Documents that begin with the beginning-of-text token, exactly once."""
    with_eos: int
    """Documents that end with the end-of-text token, exactly once."""


@dataclass(frozen=True)
class _Dataset:
    """A dataset that has been looked through; arrays by document."""

    name: str
    prefix: Path
    index: MegatronIndex
    splits: npt.NDArray[np.int8]
    """Index into `SPLITS`."""
    lengths: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    """UTF-8 bytes and characters of the text: [documents, 2]."""
    begins: npt.NDArray[np.bool_]
    ends: npt.NDArray[np.bool_]
    digests: npt.NDArray[np.uint8]
    """SHA-256 of the ids as little-endian uint32: [documents, 32]."""

    @property
    def file(self) -> Path:
        """The file that holds the tokens."""
        return megatron_files(self.prefix)[0]

    def imported(self) -> Imported:
        """The dataset in figures."""
        return Imported(
            source=self.name,
            documents=len(self.lengths),
            tokens=int(self.lengths.sum()),
            held_out=int(self.splits.sum()),
            with_bos=int(self.begins.sum()),
            with_eos=int(self.ends.sum()),
        )

    def in_the_ledger(self) -> ImportedDocuments:
        """The dataset as its ledger has it."""
        return ImportedDocuments(
            source=self.name,
            file=self.file.name,
            held_out=self.splits == SPLITS.index("held_out"),
            tokens=self.lengths,
            sizes=self.sizes,
            digests=self.digests,
        )


def import_megatron(
    prefixes: Sequence[Path], tokenizer: Tokenizer, folder: Path, held_out: float, progress: Progress
) -> list[Imported]:
    """Make a prepared corpus in `folder` of Megatron datasets, each a source named like its files.

    `tokenizer.path` is the `tokenizer.json` that the ids are of; it names the special tokens too, but whether
    documents have these is found out and written in the manifest: a token is said to be added where every document
    has it exactly once. Nothing is added or taken away. `held_out` is the share of documents held out, chosen by a
    hash of their ids, so that equal documents are on the same side. The corpus's ledger names each document by its
    number in the dataset.

    Raises `BadInput` when `folder` exists, a dataset is damaged, two have one name, or an id is not in the
    vocabulary.
    """
    if folder.exists():
        raise BadInput(f"{folder} exists already; name a folder that does not")
    names = [megatron_files(prefix)[0].name.removesuffix(".bin") for prefix in prefixes]
    if wrong := [name for name in names if not is_name_of_source(name)]:
        raise BadInput(f"sources are named like their files, and {wrong[0]!r} cannot be the name of one; rename it")
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise BadInput(f"sources are named like their files, and several are named {', '.join(repeated)}")
    indexes = [read_index(prefix) for prefix in prefixes]
    given = Path(tokenizer.path or "")
    plain = tokenizer.model_copy(update={"add_bos": False, "add_eos": False})
    encoder = TextEncoder(given, plain)
    with durable_folder(folder) as partial:
        (partial / "tokenizer").mkdir()
        total = 2 * sum(int(index.lengths.sum()) for index in indexes)
        with progress.task("import", total, "tokens") as task:
            datasets = [
                _looked_through(name, prefix, index, encoder, given, held_out, task)
                for name, prefix, index in zip(names, prefixes, indexes, strict=True)
            ]
            adds_bos = all(bool(dataset.begins.all()) for dataset in datasets)
            adds_eos = all(bool(dataset.ends.all()) for dataset in datasets)
            settings = tokenizer.model_copy(update={"add_bos": adds_bos, "add_eos": adds_eos})
            adopt_tokenizer(given, settings, partial / "tokenizer" / "tokenizer.json")
            dtype = token_dtype(encoder.vocabulary_size)
            sources = [_write_source(dataset, dtype, partial, task) for dataset in datasets]
        write_imported_ledger(partial, [dataset.in_the_ledger() for dataset in datasets])
        files = [str(dataset.file.absolute()) for dataset in datasets]
        write_json(partial / MANIFEST, _manifest(sources, files, encoder, settings, partial))
        Corpus.open(partial)
    return [dataset.imported() for dataset in datasets]


def _looked_through(
    name: str,
    prefix: Path,
    index: MegatronIndex,
    encoder: TextEncoder,
    tokenizer: Path,
    held_out: float,
    task: Task,
) -> _Dataset:
    text = token_text(tokenizer)
    measures = np.stack([text.lengths, text.characters], axis=1)
    documents = len(index.boundaries) - 1
    lengths, sizes = np.empty(documents, np.int64), np.empty((documents, 2), np.int64)
    splits = np.zeros(documents, np.int8)
    begins, ends = np.zeros(documents, np.bool_), np.zeros(documents, np.bool_)
    digests = np.empty((documents, hashlib.sha256().digest_size), np.uint8)
    for number, ids in enumerate(read_documents(prefix, index)):
        if len(ids) and not 0 <= ids.min() <= ids.max() < encoder.vocabulary_size:
            raise BadInput(
                f"document {number} of {prefix} has the ids {ids.min()} to {ids.max()}; {tokenizer} knows 0 to "
                f"{encoder.vocabulary_size - 1}. Give the tokenizer that the dataset was made with"
            )
        lengths[number] = len(ids)
        if text.exact:
            sizes[number] = measures[ids].sum(axis=0)
        else:
            content = encoder.decode(ids)
            sizes[number] = len(content.encode()), len(content)
        digest = hashlib.sha256(ids.astype("<u4").tobytes()).digest()
        digests[number] = np.frombuffer(digest, np.uint8)
        splits[number] = int.from_bytes(digest[:8], "big") < held_out * 2**64
        begins[number] = ids[:1].tolist() == [encoder.bos_id] and ids[1:2].tolist() != [encoder.bos_id]
        ends[number] = ids[-1:].tolist() == [encoder.eos_id] and ids[-2:-1].tolist() != [encoder.eos_id]
        task.advance(len(ids))
    return _Dataset(name, prefix, index, splits, lengths, sizes, begins, ends, digests)


def _write_source(dataset: _Dataset, dtype: str, folder: Path, task: Task) -> dict[str, Any]:
    """Write the shards of a dataset; returns its entry in the manifest."""
    splits = {}
    for number, split in enumerate(SPLITS):
        chosen = dataset.splits == number
        documents = _documents(dataset, chosen, task)
        shards = write_split(folder / "tokens" / dataset.name, split, documents, dtype, SHARD_TOKENS)
        for shard in shards:
            shard["file"] = f"tokens/{dataset.name}/{shard['file']}"
        size, characters = dataset.sizes[chosen].sum(axis=0).tolist()
        splits[split] = {
            "documents": int(chosen.sum()),
            "tokens": int(dataset.lengths[chosen].sum()),
            "bytes": size,
            "characters": characters,
            "shards": shards,
        }
    return {"name": dataset.name, "kind": "prose", "language": None, "licence": None, "splits": splits}


def _documents(
    dataset: _Dataset, chosen: npt.NDArray[np.bool_], task: Task
) -> Iterator[tuple[npt.NDArray[Any], int]]:
    for number, ids in enumerate(read_documents(dataset.prefix, dataset.index)):
        if chosen[number]:
            yield ids, int(dataset.sizes[number, 0])
            task.advance(len(ids))


def _manifest(
    sources: list[dict[str, Any]], files: list[str], encoder: TextEncoder, settings: Tokenizer, folder: Path
) -> dict[str, Any]:
    sha256 = sha256_of_file(folder / "tokenizer" / "tokenizer.json")
    identity = json.dumps([FORMAT, sha256, sources], sort_keys=True)
    funnel = []
    for source in sources:
        train, held_out = source["splits"]["train"], source["splits"]["held_out"]
        both = {key: train[key] + held_out[key] for key in ("documents", "bytes")}
        funnel.append({"source": source["name"], "stage": "read", **both})
        for stage, split in (("held_out", held_out), ("kept", train)):
            funnel.append({"source": source["name"], "stage": stage, **{key: split[key] for key in both}})
    return {
        "format": FORMAT,
        "fingerprint": hashlib.sha256(identity.encode()).hexdigest()[:16],
        "stoker_version": stoker.__version__,
        "tokenizer": {
            "sha256": sha256,
            "vocabulary_size": encoder.vocabulary_size,
            "bos_id": encoder.bos_id,
            "eos_id": encoder.eos_id,
            "adds_bos": settings.add_bos,
            "adds_eos": settings.add_eos,
            "encoded_by": IMPORTED,
        },
        "dtype": token_dtype(encoder.vocabulary_size),
        "imported_from": files,
        "sources": sources,
        "funnel": funnel,
    }
