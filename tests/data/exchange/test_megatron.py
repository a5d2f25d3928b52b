"""Megatron's files, read and written by the layout that others publish; a corpus made of them is trained on."""

from __future__ import annotations

import struct
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend

from stoker.data.corpus import Corpus, DamagedCorpus
from stoker.data.exchange.exporting import Format, export_corpus
from stoker.data.exchange.importing import import_megatron
from stoker.data.exchange.megatron_index import read_documents, read_index, write_dataset
from stoker.data.prepare import prepare
from stoker.data.prepared import find_prepared
from stoker.errors import BadInput
from stoker.progress import Silent
from stoker.recipe import Tokenizer
from stoker.recipe.loading import load_recipe
from tests.data.corpora import BOS, EOS, build_corpus, byte_document, byte_tokenizer

DOCUMENTS = [byte_document(text) for text in ("one", "two words", "", "中文 é", "five " * 40)]


def read_by_the_layout(prefix: Path) -> tuple[str, list[list[int]]]:
    """A reader of its own: struct by struct, as megatron-core describes the files."""
    index = prefix.with_name(prefix.name + ".idx").read_bytes()
    content = prefix.with_name(prefix.name + ".bin").read_bytes()
    assert index[:9] == b"MMIDIDX\x00\x00"
    (version,) = struct.unpack_from("<Q", index, 9)
    (code,) = struct.unpack_from("<B", index, 17)
    sequences, boundaries = struct.unpack_from("<QQ", index, 18)
    assert version == 1
    form, width = {4: ("i", 4), 8: ("H", 2)}[code]
    place = 34
    lengths = struct.unpack_from(f"<{sequences}i", index, place)
    pointers = struct.unpack_from(f"<{sequences}q", index, place + 4 * sequences)
    bounds = struct.unpack_from(f"<{boundaries}q", index, place + 12 * sequences)
    assert len(index) == place + 12 * sequences + 8 * boundaries
    assert sum(lengths) * width == len(content)
    read = [
        list(struct.unpack_from(f"<{length}{form}", content, pointer))
        for length, pointer in zip(lengths, pointers, strict=True)
    ]
    return form, [list(chain.from_iterable(read[first:last])) for first, last in pairwise(bounds)]


def written(folder: Path, documents: list[list[int]], name: str = "web", size: int = 300) -> Path:
    write_dataset(folder / name, [np.asarray(ids, np.int64) for ids in documents], size)
    return folder / name


def given_tokenizer(folder: Path) -> Tokenizer:
    byte_tokenizer().save(str(folder / "given.json"))
    return Tokenizer(path=str(folder / "given.json"))


@settings(max_examples=30)
@given(
    st.lists(st.lists(st.integers(0, 65_000), max_size=12), max_size=12), st.sampled_from([65_499, 65_500, 200_000])
)
def test_what_is_written_is_what_the_layout_says(
    tmp_path_factory: pytest.TempPathFactory, documents: list[list[int]], size: int
) -> None:
    prefix = written(tmp_path_factory.mktemp("written"), documents, size=size)
    form, found = read_by_the_layout(prefix)
    assert found == documents
    assert form == ("H" if size < 65_500 else "i")
    assert [ids.tolist() for ids in read_documents(prefix, read_index(prefix))] == documents


def test_documents_of_several_sequences_and_other_types_are_read(tmp_path: Path) -> None:
    """As Megatron writes them with --split-sentences, pointers in any order, eight bytes an id."""
    ids: list[list[int]] = [[1, 2], [3], [], [4, 5, 6]]
    places = [16, 32, 0, 40]
    content = np.zeros(8, "<i8")
    for place, own in zip(places, ids, strict=True):
        content[place // 8 : place // 8 + len(own)] = own
    (tmp_path / "x.bin").write_bytes(content.tobytes())
    head = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 5, 4, 4)
    body = struct.pack("<4i4q4q", *map(len, ids), *places, 0, 2, 3, 4)
    (tmp_path / "x.idx").write_bytes(head + body)
    found = list(read_documents(tmp_path / "x", read_index(tmp_path / "x.idx")))
    assert [one.tolist() for one in found] == [[1, 2, 3], [], [4, 5, 6]]


def _at_place(index: bytes, place: int) -> bytes:
    """The first of five sequences lies there."""
    return index[: 34 + 4 * 5] + struct.pack("<q", place) + index[34 + 4 * 5 + 8 :]


def damage(index: bytes, tokens: bytes) -> dict[str, tuple[bytes, bytes, str]]:
    return {
        "another file": (b"PK" + index, tokens, "MMIDIDX"),
        "empty": (b"", tokens, "MMIDIDX"),
        "another version": (index[:9] + struct.pack("<Q", 2) + index[17:], tokens, "version 2"),
        "floating point": (index[:17] + b"\x06" + index[18:], tokens, "type code 6"),
        "index cut short": (index[:-1], tokens, "cut short"),
        "tokens cut short": (index, tokens[:-2], "cut short"),
        "a negative length": (index[:34] + struct.pack("<i", -1) + index[38:], tokens, "impossible"),
        "a place beyond all files": (_at_place(index, (1 << 63) - 2), tokens, "cut short"),
        "a place before the file": (_at_place(index, -2), tokens, "impossible"),
        "documents out of order": (index[:-16] + struct.pack("<qq", 9, 5), tokens, "not in order"),
        "documents missing": (index[:-8] + struct.pack("<q", 4), tokens, "end at sequence 4 of 5"),
    }


@pytest.mark.parametrize("name", damage(b"", b""))
def test_damaged_files_are_refused_and_named(tmp_path: Path, name: str) -> None:
    prefix = written(tmp_path, DOCUMENTS)
    index, tokens = prefix.with_name("web.idx"), prefix.with_name("web.bin")
    broken, cut, message = damage(index.read_bytes(), tokens.read_bytes())[name]
    index.write_bytes(broken)
    tokens.write_bytes(cut)
    with pytest.raises(BadInput, match=message):
        read_index(prefix)
    with pytest.raises(BadInput, match="no file"):
        read_index(tmp_path / "missing")


def test_a_corpus_goes_out_and_comes_back(tmp_path: Path) -> None:
    sources = {
        "web": {"train": DOCUMENTS, "held_out": DOCUMENTS[:2]},
        "code": {"train": DOCUMENTS[1:], "held_out": []},
    }
    corpus = build_corpus(tmp_path / "corpus", sources)
    found = export_corpus(corpus, tmp_path / "out", "megatron", Silent())
    assert [(one.source, one.split, one.documents) for one in found] == [
        ("web", "train", 5),
        ("web", "held_out", 2),
        ("code", "train", 4),
    ]
    assert read_by_the_layout(tmp_path / "out" / "web-train") == ("H", DOCUMENTS)
    settings = given_tokenizer(tmp_path)
    prefixes = [tmp_path / "out" / "web-train", tmp_path / "out" / "code-train.bin"]
    (web, code) = import_megatron(prefixes, settings, tmp_path / "imported", 0.0, Silent())
    assert (web.source, web.documents, web.with_bos, web.with_eos, web.held_out) == ("web-train", 5, 5, 5, 0)
    back = Corpus.open(tmp_path / "imported", verify=True)
    for name, documents in (("web", DOCUMENTS), ("code", DOCUMENTS[1:])):
        store = back.store(f"{name}-train", "train")
        assert [store.document_tokens(n).tolist() for n in range(store.document_count)] == documents
        assert store.document_bytes.tolist() == corpus.store(name, "train").document_bytes.tolist()
    assert (back.adds_bos, back.adds_eos, back.bos_id, back.eos_id) == (True, True, BOS, EOS)
    entry = back.manifest["sources"][0]["splits"]["train"]
    assert entry["characters"] == sum(len(text) for text in ("one", "two words", "", "中文 é", "five " * 40))
    assert code.tokens == sum(map(len, DOCUMENTS[1:]))


def test_parquet_holds_every_document(tmp_path: Path) -> None:
    corpus = build_corpus(tmp_path / "corpus", {"web": {"train": DOCUMENTS, "held_out": []}})
    (one,) = export_corpus(corpus, tmp_path / "out", "parquet", Silent())
    table = pq.read_table(tmp_path / "out" / one.files[0])
    assert table.column("tokens").to_pylist() == DOCUMENTS
    assert table.column("document").to_pylist() == [0, 1, 2, 3, 4]
    assert table.column("bytes").to_pylist() == corpus.store("web", "train").document_bytes.tolist()
    assert set(table.column("source").to_pylist()) == {"web"}
    assert set(table.column("split").to_pylist()) == {"train"}


@pytest.mark.parametrize(
    ("documents", "bos", "eos"),
    [
        ([[BOS, 5, EOS], [BOS, 6, EOS]], True, True),
        ([[5, EOS], [6, EOS]], False, True),
        ([[BOS, BOS, 5, EOS]], False, True),
        ([[BOS, 5, EOS], [BOS, 6]], True, False),
        ([[5], []], False, False),
    ],
)
def test_special_tokens_are_said_to_be_added_where_every_document_has_them_once(
    tmp_path: Path, documents: list[list[int]], bos: bool, eos: bool
) -> None:
    import_megatron([written(tmp_path, documents)], given_tokenizer(tmp_path), tmp_path / "c", 0.0, Silent())
    corpus = Corpus.open(tmp_path / "c")
    assert (corpus.adds_bos, corpus.adds_eos) == (bos, eos)
    # the tokenizer does to a text what was done to these
    ids = Backend.from_file(str(corpus.tokenizer_path)).encode("a").ids
    assert ids == [BOS] * bos + [ord("a")] + [EOS] * eos


def test_equal_documents_are_held_out_together(tmp_path: Path) -> None:
    documents = [byte_document(f"text {n % 200}") for n in range(600)]
    (found,) = import_megatron(
        [written(tmp_path, documents)], given_tokenizer(tmp_path), tmp_path / "c", 0.1, Silent()
    )
    corpus = Corpus.open(tmp_path / "c")

    def texts(split: str) -> list[tuple[int, ...]]:
        store = corpus.store("web", split)
        return [tuple(store.document_tokens(n).tolist()) for n in range(store.document_count)]

    assert 0 < found.held_out == len(texts("held_out")) < 200
    assert not set(texts("held_out")) & set(texts("train"))
    assert sorted(texts("held_out") + texts("train")) == sorted(map(tuple, documents))


def test_ids_that_the_tokenizer_does_not_know_are_refused(tmp_path: Path) -> None:
    prefix = written(tmp_path, [[1, 2], [3, 258]])
    with pytest.raises(BadInput, match=r"document 1 .* ids 3 to 258; .* knows 0 to 257"):
        import_megatron([prefix], given_tokenizer(tmp_path), tmp_path / "c", 0.0, Silent())
    assert not (tmp_path / "c").exists()


def test_names_and_folders_that_are_taken_are_refused(tmp_path: Path) -> None:
    prefix = written(tmp_path, DOCUMENTS)
    (tmp_path / "other").mkdir()
    with pytest.raises(BadInput, match="several are named web"):
        import_megatron(
            [prefix, written(tmp_path / "other", DOCUMENTS)], given_tokenizer(tmp_path), tmp_path / "c", 0, Silent()
        )
    with pytest.raises(BadInput, match="exists already"):
        import_megatron([prefix], given_tokenizer(tmp_path), tmp_path / "other", 0, Silent())


# --- a recipe that names the corpus ----------------------------------------------------------------------------


def recipe_over(folder: Path, names: list[str], **data: Any) -> Path:
    content = {
        "name": "imported",
        "data": {"sources": [{"name": name, "paths": ["web.bin"]} for name in names], **data},
        "model": {"hidden_size": 16, "layers": 1, "heads": 2, "ffn_hidden_size": 32},
        "training": {"steps": 2, "sequence_length": 32, "global_batch_size": 2},
    }
    (folder / "recipe.yaml").write_text(yaml.safe_dump(content))
    return folder / "recipe.yaml"


def test_a_recipe_trains_on_the_corpus_that_it_names(tmp_path: Path) -> None:
    import_megatron([written(tmp_path, DOCUMENTS)], given_tokenizer(tmp_path), tmp_path / "c", 0.0, Silent())
    loaded = load_recipe(recipe_over(tmp_path, ["web"], corpus="c"), with_files=True)
    for corpus in (prepare(loaded, Silent()), find_prepared(loaded)):
        assert corpus is not None
        assert corpus.folder == tmp_path / "c"
    assert not (tmp_path / "prepared").exists()


def test_a_corpus_that_is_not_there_or_has_other_sources_is_refused(tmp_path: Path) -> None:
    import_megatron([written(tmp_path, DOCUMENTS)], given_tokenizer(tmp_path), tmp_path / "c", 0.0, Silent())
    with pytest.raises(BadInput, match=r"has the sources web, data\.sources those named web, more"):
        prepare(load_recipe(recipe_over(tmp_path, ["web", "more"], corpus="c")), Silent())
    with pytest.raises(BadInput, match="no prepared corpus"):
        prepare(load_recipe(recipe_over(tmp_path, ["web"], corpus="elsewhere")), Silent())
    with pytest.raises(BadInput, match=r"data\.corpus.*does not exist"):
        load_recipe(recipe_over(tmp_path, ["web"], corpus="elsewhere"), with_files=True)


@pytest.mark.parametrize("wanted", ["megatron", "parquet"])
def test_an_export_that_fails_leaves_nothing_and_the_next_one_is_whole(tmp_path: Path, wanted: Format) -> None:
    corpus = build_corpus(tmp_path / "corpus", {"a": {"train": DOCUMENTS}, "b": {"train": DOCUMENTS}})
    tokens = corpus.folder / "tokens" / "b" / "train-00000.tokens"
    content = tokens.read_bytes()
    tokens.write_bytes(b"\xff" * len(content))
    with pytest.raises(DamagedCorpus, match=r"train-00000\.tokens: it holds token 65,535"):
        export_corpus(corpus, tmp_path / "out", wanted, Silent())
    assert [path.name for path in tmp_path.iterdir()] == ["corpus"]
    tokens.write_bytes(content)
    found = export_corpus(Corpus.open(corpus.folder), tmp_path / "out", wanted, Silent())
    names = [name for one in found for name in one.files]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted([*names, "tokenizer.json"])


def test_an_import_that_fails_leaves_nothing(tmp_path: Path) -> None:
    prefix = written(tmp_path, [[1, 2], [299]])
    with pytest.raises(BadInput, match="document 1"):
        import_megatron([prefix], given_tokenizer(tmp_path), tmp_path / "out", 0.0, Silent())
    assert not [path for path in tmp_path.iterdir() if "out" in path.name]


@pytest.mark.parametrize("name", ["line\nbreak", "\x1b[31mred"])
def test_a_dataset_whose_name_no_source_may_have_is_refused(tmp_path: Path, name: str) -> None:
    prefix = written(tmp_path, DOCUMENTS, name)
    with pytest.raises(BadInput, match="cannot be the name"):
        import_megatron([prefix], given_tokenizer(tmp_path), tmp_path / "out", 0.0, Silent())


@pytest.mark.parametrize("prefix", ["", ".", "/"])
def test_a_prefix_without_a_name_is_refused(prefix: str) -> None:
    with pytest.raises(BadInput, match="names no file"):
        read_index(Path(prefix))
