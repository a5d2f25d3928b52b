"""The exported tokenizer splits text as the corpus was split, with one BOS before it and no EOS after it."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

import pytest
import transformers

from stoker.data.tokenizer import TextEncoder, adopt_tokenizer
from stoker.errors import BadInput, StokerError
from stoker.model import Decoder
from stoker.model.huggingface import export_model
from stoker.model.huggingface.parity import draw_weights
from stoker.model.huggingface.tokenizer_files import check_tokenizer, tokenizer_files
from stoker.recipe import Tokenizer
from tests.model.huggingface.conftest import TEXT, TOKENIZER_SETTINGS
from tests.model.huggingface.shapes import shape

TEXTS = ["A quick dog.", "", "  blanks\n\n\tand 123 lines\r\n", "caf\u00e9 cafe\u0301 这是 🙂", TEXT[:150]]


def exported(tokenizer: Path, folder: Path, vocabulary_size: int = 304) -> Path:
    """An export of a small model with `tokenizer`."""
    model = Decoder(shape("llama"), vocabulary_size, 32)
    draw_weights(model, 0.02)
    export_model(model, shape("llama"), tokenizer, folder, bos_id=0, eos_id=1)
    return folder


@pytest.mark.parametrize(("add_bos", "add_eos"), [(True, True), (True, False), (False, True), (False, False)])
def test_text_is_encoded_as_in_the_corpus_without_its_end(
    add_bos: bool, add_eos: bool, tokenizer_path: Path, tmp_path: Path
) -> None:
    settings = TOKENIZER_SETTINGS.model_copy(update={"add_bos": add_bos, "add_eos": add_eos})
    adopt_tokenizer(tokenizer_path, settings, tmp_path / "tokenizer.json")
    theirs = transformers.AutoTokenizer.from_pretrained(exported(tmp_path / "tokenizer.json", tmp_path / "export"))
    encoder = TextEncoder(tmp_path / "tokenizer.json", settings)
    for text, ids in zip(TEXTS, encoder.encode_documents(TEXTS), strict=True):
        expected = ids.tolist()[: -1 if add_eos else None]
        assert theirs(text, split_special_tokens=True)["input_ids"] == expected
        assert expected.count(0) == add_bos
        assert theirs.decode(expected, skip_special_tokens=True) == text
    assert (theirs.bos_token_id, theirs.eos_token_id) == (0, 1)
    assert theirs.model_max_length == 32
    assert len(theirs) <= 304


def test_one_token_for_begin_and_end_is_put_before_only(tokenizer_path: Path, tmp_path: Path) -> None:
    settings = Tokenizer(bos_token="<|end_of_text|>", eos_token="<|end_of_text|>")
    adopt_tokenizer(tokenizer_path, settings, tmp_path / "tokenizer.json")
    files = tokenizer_files(tmp_path / "tokenizer.json", 304, 32, 1, 1)
    single = files["tokenizer.json"]["post_processor"]["single"]
    assert [next(iter(part)) for part in single] == ["SpecialToken", "Sequence"]
    assert files["tokenizer_config.json"]["add_bos_token"] is True


def test_a_pair_of_texts_gets_a_begin_each(tokenizer_path: Path, tmp_path: Path) -> None:
    theirs = transformers.AutoTokenizer.from_pretrained(exported(tokenizer_path, tmp_path / "export"))
    ids = theirs("one", "two")["input_ids"]
    assert ids.count(0) == 2
    assert 1 not in ids


def test_settings_agree_with_the_post_processor_and_old_readers(tokenizer_path: Path) -> None:
    files = tokenizer_files(tokenizer_path, 304, 32, 0, 1)
    settings = files["tokenizer_config.json"]
    assert settings["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert (settings["add_bos_token"], settings["add_eos_token"]) == (True, False)
    special = {"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"}
    assert files["special_tokens_map.json"] == special
    assert special.items() <= settings.items()


def test_a_tokenizer_larger_than_the_model_is_refused(tokenizer_path: Path) -> None:
    with pytest.raises(BadInput, match="ids up to 299, but the model has 290 rows"):
        tokenizer_files(tokenizer_path, 290, 32, 0, 1)


def test_a_special_token_that_is_not_there_is_refused(tokenizer_path: Path) -> None:
    with pytest.raises(BadInput, match="no token with id 301, which is given as eos_id"):
        tokenizer_files(tokenizer_path, 304, 32, 0, 301)


@pytest.mark.parametrize("content", ["", "[]", '{"model": {}}', "not json"])
def test_what_is_no_tokenizer_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(BadInput, match=r"not a tokenizer\.json"):
        tokenizer_files(tmp_path / "tokenizer.json", 304, 32, 0, 1)


def test_a_class_that_brings_its_own_way_of_splitting_is_caught(tokenizer_path: Path, tmp_path: Path) -> None:
    folder = exported(tokenizer_path, tmp_path / "export")
    check_tokenizer(folder)
    content = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**content, "model_type": "qwen2"}))
    opened_as_it_is = transformers.__version__.startswith("4.")  # whatever the class is
    with nullcontext() if opened_as_it_is else pytest.raises(StokerError, match="reads the exported tokenizer"):
        check_tokenizer(folder)
