"""What is said of a vocabulary is what a count by hand gives."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, normalizers

from stoker.data.fertility import vocabulary_use
from stoker.data.prepare import prepare
from stoker.data.token_text import token_text
from stoker.data.tokenizer import TextEncoder
from stoker.data.tokenizer_comparison import compare_tokenizers, sampled_texts
from stoker.errors import BadInput
from stoker.progress import Silent
from stoker.recipe import Tokenizer
from tests.data.corpora import build_corpus, byte_document, byte_tokenizer
from tests.data.small_corpus import small_recipe, write_text_files


def test_tokens_characters_and_single_bytes_are_counted_by_source(tmp_path: Path) -> None:
    texts = {"english": ["abc", "ab"], "chinese": ["中a"]}
    sources = {
        name: {"train": [byte_document(text) for text in own], "held_out": []} for name, own in texts.items()
    }
    corpus = build_corpus(tmp_path / "corpus", sources)
    for source, characters in zip(corpus.manifest["sources"], (5, 2), strict=True):
        source["splits"]["train"]["characters"] = characters
    corpus.manifest["sources"][1]["language"] = "zh"
    found = vocabulary_use(corpus, 3, Silent())
    english, chinese = found.sources
    assert (english.tokens, english.tokens_per_character, english.single_byte_share) == (5, 1.0, 0.0)
    assert (chinese.tokens, chinese.tokens_per_character, chinese.single_byte_share) == (4, 2.0, 0.75)
    assert chinese.bytes_per_token == 1.0
    assert found.entries == 256
    assert found.unused == 256 - len(set("abc中".encode()))
    assert found.most_frequent[0] == ("a", 3)
    assert [one.name for one in found.languages] == ["not said", "zh"]


def test_a_prepared_corpus_adds_up(tmp_path: Path) -> None:
    write_text_files(tmp_path / "text")
    corpus = prepare(small_recipe(tmp_path), Silent())
    found = vocabulary_use(corpus, 5, Silent())
    for one, entry in zip(found.sources, corpus.manifest["sources"], strict=True):
        train = entry["splits"]["train"]
        assert one.tokens == train["tokens"] - 2 * train["documents"]  # one BOS and one EOS each
    encoder = TextEncoder(corpus.tokenizer_path, Tokenizer(vocabulary_size=300))
    store = corpus.store("chinese", "train")
    text = token_text(corpus.tokenizer_path)
    for document in range(0, store.document_count, 20):
        ids = store.document_tokens(document)
        assert text.exact
        assert b"".join(text.contents[token] for token in ids).decode() == encoder.decode(ids)
        assert text.lengths[ids].sum() == store.document_bytes[document]
        assert text.characters[ids].sum() == len(encoder.decode(ids))


def test_entries_that_are_written_as_text_are_read_as_far_as_they_say(tmp_path: Path) -> None:
    backend = Backend(models.BPE({"<0x0A>": 0, "▁the": 1, "a": 2}, []))
    backend.decoder = decoders.ByteFallback()
    backend.add_special_tokens(["<s>"])
    backend.save(str(tmp_path / "given.json"))
    found = token_text(tmp_path / "given.json")
    assert found.contents == (b"\n", b" the", b"a", b"")
    assert not found.exact


@pytest.fixture
def tokenizers(tmp_path: Path) -> list[Path]:
    byte_tokenizer().save(str(tmp_path / "bytes.json"))
    write_text_files(tmp_path / "text")
    return [tmp_path / "bytes.json", prepare(small_recipe(tmp_path), Silent()).tokenizer_path]


def test_tokenizers_are_compared_on_the_same_text(tmp_path: Path, tokenizers: list[Path]) -> None:
    texts = sampled_texts(small_recipe(tmp_path), 0.01, Silent())
    assert {name: 9_000 < sum(len(text.encode()) for text in own) < 12_000 for name, own in texts.items()} == {
        "english": True,
        "chinese": True,
        "code": False,  # there is less
    }
    by_bytes, trained = compare_tokenizers(tokenizers, texts, Silent())
    assert (by_bytes.vocabulary_size, trained.vocabulary_size) == (258, 300)
    assert by_bytes.tokens == sum(len(text.encode()) for own in texts.values() for text in own)
    assert trained.tokens < by_bytes.tokens
    assert by_bytes.special_tokens == trained.special_tokens == ("<|begin_of_text|>", "<|end_of_text|>")
    assert by_bytes.encoded_by.startswith("tokenizers (it does not split")
    assert trained.encoded_by == "engine"
    for fit in by_bytes.fits:
        assert fit.bytes_per_token == 1.0
        assert fit.changed == 0
    assert by_bytes.fits[1].single_byte_share > 0.9 > by_bytes.fits[0].single_byte_share == 0.0


def test_texts_that_do_not_come_back_are_counted(tmp_path: Path) -> None:
    backend = byte_tokenizer()
    backend.normalizer = normalizers.Lowercase()
    backend.save(str(tmp_path / "lower.json"))
    (found,) = compare_tokenizers([tmp_path / "lower.json"], {"x": ["Same?", "same", ""]}, Silent())
    assert found.fits[0].changed == 1


def test_a_source_without_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n")
    loaded = small_recipe(tmp_path, sources=[{"name": "none", "paths": ["empty.txt"]}])
    with pytest.raises(BadInput, match=r"data\.sources\[none\] has no text"):
        sampled_texts(loaded, 1.0, Silent())
