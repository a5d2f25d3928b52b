"""The tokenizer loses nothing, repeats itself, and adds special tokens exactly as told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import transformers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers

from stoker.data import text_pieces as module
from stoker.data import tokenizer as encoding
from stoker.data.tokenizer import TextEncoder, adopt_tokenizer, train_tokenizer
from stoker.errors import BadInput
from stoker.recipe import Tokenizer
from tests.data.written_text import chinese, code, english, mathematics

SETTINGS = Tokenizer(vocabulary_size=600)
BOS, EOS = SETTINGS.bos_token, SETTINGS.eos_token


def samples() -> dict[str, list[str]]:
    return {
        "english": [english(seed) for seed in range(10)],
        "chinese": [chinese(seed) for seed in range(10)],
        "code": [code(seed) for seed in range(10)],
        "mathematics": [mathematics(seed) for seed in range(10)],
    }


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    train_tokenizer(samples(), SETTINGS, path)
    return path


@pytest.fixture(scope="module")
def encoder(trained: Path) -> TextEncoder:
    return TextEncoder(trained, SETTINGS)


def without_pre_tokenizer(path: Path) -> Path:
    """A byte-level BPE that merges over a whole text, as some given tokenizers do."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate([*alphabet, "aa", "aaaa", "ab"])}
    backend = Backend(models.BPE(vocab=vocabulary, merges=[("a", "a"), ("aa", "aa"), ("a", "b")]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<s>", "</s>"])
    backend.save(str(path))
    return path


# --- nothing is lost -----------------------------------------------------------------------------------------


@given(st.text(max_size=80) | st.text(st.sampled_from(" \t\r\n\x00aé中，1'sS.\u3000\u200b\u0301🙂"), max_size=80))
def test_any_text_comes_back_as_it_was(encoder: TextEncoder, text: str) -> None:
    (ids,) = encoder.encode_documents([text])
    assert encoder.decode(ids) == text


def test_every_byte_has_an_entry(trained: Path) -> None:
    vocabulary = json.loads(trained.read_text())["model"]["vocab"]
    assert set(pre_tokenizers.ByteLevel.alphabet()) <= set(vocabulary)


def test_the_vocabulary_has_the_size_asked_for(trained: Path, encoder: TextEncoder) -> None:
    assert encoder.vocabulary_size == 600 == len(json.loads(trained.read_text())["model"]["vocab"])


def test_pre_tokens_part_digits_scripts_and_words() -> None:
    split = pre_tokenizers.Split(module.Regex(module.PATTERN), "isolated")

    def pieces(text: str) -> list[str]:
        return [piece for piece, _ in split.pre_tokenize_str(text)]

    assert pieces("don't stop at 2024") == ["don", "'t", " stop", " at", " ", "2", "0", "2", "4"]
    assert pieces("使用Python语言，很好。") == ["使用", "Python", "语言", "，", "很好", "。"]
    assert pieces("def f(x):\n        return x+1\n") == [
        "def", " f", "(x", "):\n", "       ", " return", " x", "+", "1", "\n",
    ]  # fmt: skip
    assert pieces("a\r\n\r\n  b") == ["a", "\r\n\r\n", " ", " b"]
    assert pieces("'self'") == ["'self", "'"]


# --- the same bytes again ------------------------------------------------------------------------------------

TRAIN = """
import sys
from pathlib import Path
from stoker.data.tokenizer import train_tokenizer
from stoker.recipe import Tokenizer
from tests.data.test_tokenizer import samples
train_tokenizer(samples(), Tokenizer(vocabulary_size=900), Path(sys.argv[1]))
"""


def test_the_file_does_not_depend_on_threads(tmp_path: Path) -> None:
    written = []
    for number, (threads, parallel) in enumerate([("1", "true"), ("2", "true"), ("4", "true"), ("2", "false")]):
        path = tmp_path / f"{number}.json"
        environment = {**os.environ, "RAYON_NUM_THREADS": threads, "TOKENIZERS_PARALLELISM": parallel}
        root = str(Path(__file__).parents[2])
        subprocess.run([sys.executable, "-c", TRAIN, str(path)], env=environment, cwd=root, check=True, timeout=120)
        written.append(path.read_bytes())
    assert len(set(written)) == 1


# --- balance and size ----------------------------------------------------------------------------------------


def test_training_text_is_balanced_over_sources(tmp_path: Path) -> None:
    texts = {"large": (english(seed) for seed in range(10**6)), "small": [english(7)], "middle": [code(1)] * 50}
    settings = Tokenizer(vocabulary_size=300, training_megabytes=0.1)
    used = train_tokenizer(texts, settings, tmp_path / "tokenizer.json")
    assert sum(used.values()) == 100_000
    assert used["small"] == len(english(7).encode())
    assert abs(used["large"] - used["middle"]) < 2 * len(code(1))


def test_a_vocabulary_larger_than_the_text_supports_is_refused_with_the_largest_possible(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    with pytest.raises(BadInput, match=r"vocabulary_size is 5000, .* supports only (\d+) entries") as caught:
        train_tokenizer({"tiny": ["some words, some words"]}, Tokenizer(vocabulary_size=5000), path)
    assert not path.exists()
    supported = int(str(caught.value).split("at most ")[1].split(",")[0])
    train_tokenizer({"tiny": ["some words, some words"]}, Tokenizer(vocabulary_size=supported), path)
    assert TextEncoder(path, SETTINGS).vocabulary_size == supported


def test_text_too_poor_for_any_vocabulary_is_not_asked_for_an_impossible_one(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"supports only 258 entries; fewer than the smallest .*tokenizer\.path"):
        train_tokenizer({"single": ["a", "b", "c"]}, Tokenizer(vocabulary_size=300), tmp_path / "tokenizer.json")


# --- special tokens ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("add_bos", [True, False])
@pytest.mark.parametrize("add_eos", [True, False])
@pytest.mark.parametrize("text", ["", "plain", f"{BOS}text that begins with it{EOS}", f"{BOS}{BOS}"])
def test_exactly_the_special_tokens_asked_for_are_added(
    trained: Path, add_bos: bool, add_eos: bool, text: str
) -> None:
    settings = Tokenizer(vocabulary_size=600, add_bos=add_bos, add_eos=add_eos)
    encoder = TextEncoder(trained, settings)
    (ids,) = encoder.encode_documents([text])
    inner = ids[add_bos : len(ids) - add_eos].tolist()
    assert ids.dtype == np.uint32
    assert ids.tolist() == [encoder.bos_id] * add_bos + inner + [encoder.eos_id] * add_eos
    assert not {encoder.bos_id, encoder.eos_id} & set(inner)
    assert encoder.decode(ids) == text


@pytest.mark.parametrize("add_bos", [True, False])
@pytest.mark.parametrize("add_eos", [True, False])
def test_the_file_alone_adds_the_same_special_tokens(tmp_path: Path, add_bos: bool, add_eos: bool) -> None:
    settings = Tokenizer(vocabulary_size=400, add_bos=add_bos, add_eos=add_eos)
    train_tokenizer(samples(), settings, tmp_path / "tokenizer.json")
    (ours,) = TextEncoder(tmp_path / "tokenizer.json", settings).encode_documents(["Some words, 中文."])
    assert Backend.from_file(str(tmp_path / "tokenizer.json")).encode("Some words, 中文.").ids == ours.tolist()


def test_transformers_loads_the_file_and_agrees(trained: Path, encoder: TextEncoder) -> None:
    fast = transformers.PreTrainedTokenizerFast(tokenizer_file=str(trained), bos_token=BOS, eos_token=EOS)
    text = "  Some words,\r\n 中文 3.14 'tis\n\n\tdone "
    (ours,) = encoder.encode_documents([text])
    assert fast(text)["input_ids"] == ours.tolist()
    assert fast.decode(ours[1:-1], clean_up_tokenization_spaces=False) == text
    assert (fast.bos_token_id, fast.eos_token_id) == (encoder.bos_id, encoder.eos_id)


def test_one_token_may_be_both_begin_and_end(tmp_path: Path) -> None:
    settings = Tokenizer(vocabulary_size=400, bos_token="<|endoftext|>", eos_token="<|endoftext|>")
    train_tokenizer(samples(), settings, tmp_path / "tokenizer.json")
    encoder = TextEncoder(tmp_path / "tokenizer.json", settings)
    assert encoder.bos_id == encoder.eos_id == 0
    assert encoder.encode_documents([""])[0].tolist() == [0, 0]


# --- given tokenizers ----------------------------------------------------------------------------------------


def test_a_given_tokenizer_that_adds_bos_itself_does_not_double_it(trained: Path, tmp_path: Path) -> None:
    assert json.loads(trained.read_text())["post_processor"]["single"][0]["SpecialToken"]["id"] == BOS
    settings = Tokenizer(path="given", add_bos=True, add_eos=False)
    adopt_tokenizer(trained, settings, tmp_path / "adopted.json")
    encoder = TextEncoder(tmp_path / "adopted.json", settings)
    (ids,) = encoder.encode_documents(["hello"])
    assert ids.tolist().count(encoder.bos_id) == 1
    assert Backend.from_file(str(tmp_path / "adopted.json")).encode("hello").ids == ids.tolist()


def test_truncation_padding_and_dropout_of_a_given_tokenizer_do_not_reach_the_corpus(tmp_path: Path) -> None:
    backend = Backend.from_file(str(without_pre_tokenizer(tmp_path / "given.json")))
    backend.enable_truncation(4)
    backend.enable_padding(length=64)
    backend.model.dropout = 0.9
    backend.save(str(tmp_path / "given.json"))
    settings = Tokenizer(path="given.json", bos_token="<s>", eos_token="</s>")
    adopt_tokenizer(tmp_path / "given.json", settings, tmp_path / "adopted.json")
    for path in (tmp_path / "given.json", tmp_path / "adopted.json"):
        (ids,) = TextEncoder(path, settings).encode_documents(["a" * 40])
        assert len(ids) == 12


def test_a_given_tokenizer_without_the_named_special_tokens_is_refused(tmp_path: Path) -> None:
    path = without_pre_tokenizer(tmp_path / "given.json")
    with pytest.raises(BadInput, match=r"no token '<\|begin_of_text\|>'.*<s>, </s>.*add_bos to false"):
        TextEncoder(path, Tokenizer(path="given.json"))
    encoder = TextEncoder(path, Tokenizer(path="given.json", add_bos=False, add_eos=False))
    assert (encoder.bos_id, encoder.eos_id) == (None, None)
    assert encoder.encode_documents(["ab"])[0].tolist() == [encoder.vocabulary_size - 3]


@pytest.mark.parametrize("content", [b"", b"{}", b"not json", b"\xff\xfe\x00", b'{"version": "1.0", "model": {}}'])
def test_an_unreadable_tokenizer_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=r"tokenizer\.json"):
        TextEncoder(path, SETTINGS)
    with pytest.raises(BadInput, match="no file"):
        TextEncoder(tmp_path / "missing.json", SETTINGS)


# --- texts without spaces ------------------------------------------------------------------------------------


@given(
    st.lists(
        st.sampled_from(
            ["a", "中", "，", " ", "\n", "\r\n", "7", "'s", "don't", "=" * 70, " " * 70, "\u0301", "é", "；\n"]
        ),
        min_size=1,
        max_size=400,
    ),
    st.integers(200, 400),
)
def test_pieces_join_to_the_text_and_to_its_ids(encoder: TextEncoder, parts: list[str], longest: int) -> None:
    text = "".join(parts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "LONGEST_PIECE", longest)
        patch.setattr(encoding, "LONGEST_PIECE", longest)
        pieces = list(module.bounded_pieces(text))
        (ids,) = encoder.encode_documents([text])
    assert "".join(pieces) == text
    assert all(len(piece) <= longest for piece in pieces)
    whole = encoder._backend.encode(text, add_special_tokens=False).ids
    assert ids[1:-1].tolist() == whole


ENDLESS = {
    "Chinese without punctuation": "山水风云花月春秋江河湖海",
    "one letter": "a",
    "minified code": "var a=b;function(c){return d+1};",
    "blanks": " ",
    "line ends": "\n",
    "rules": "=",
}


@pytest.mark.parametrize("name", ENDLESS)
def test_endless_text_without_spaces_is_cut_into_bounded_pieces_with_the_ids_of_the_whole(
    encoder: TextEncoder, name: str
) -> None:
    text = ENDLESS[name] * (300_000 // len(ENDLESS[name]))
    assert max(map(len, module.bounded_pieces(text))) <= module.LONGEST_PIECE
    spans = [span for _, span in module._matcher().pre_tokenize_str(text)]
    assert max(stop - start for start, stop in spans) < module._REACH
    (ids,) = encoder.encode_documents([text])
    assert ids[1:-1].tolist() == encoder._backend.encode(text, add_special_tokens=False).ids
    assert encoder.decode(ids) == text


def test_endless_text_for_a_given_tokenizer_without_pre_tokenizer_has_the_ids_of_the_whole(tmp_path: Path) -> None:
    path = without_pre_tokenizer(tmp_path / "given.json")
    encoder = TextEncoder(path, Tokenizer(path="given.json", add_bos=False, add_eos=False))
    lines = ("ab" * 100 + "\n") * 1500
    assert len(list(encoder._pieces(lines))) > 3  # no token reaches over the start of a line
    for text in (lines, "a" * 300_000, "中" * 100_000):
        (ids,) = encoder.encode_documents([text])
        assert ids.tolist() == encoder._backend.encode(text, add_special_tokens=False).ids
        assert encoder.decode(ids) == text


LINES = st.lists(
    st.sampled_from(["a", "Z", "中", "é", " ", "\n", "\r\n", "\n\n", "\t", "7", "'s", "/", ");", "\u0301", "__"]),
    min_size=60,
    max_size=300,
)
GIVEN_SPLITS = {
    "GPT-2's": None,
    "like GPT-4's": r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+(?!\S)|\s+",
}


@pytest.fixture(scope="module", params=GIVEN_SPLITS)
def given_encoder(
    trained: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> TextEncoder:
    regex = GIVEN_SPLITS[request.param]
    backend = Backend.from_file(str(trained))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=regex is None)
    split = [pre_tokenizers.Split(module.Regex(regex), "isolated")] if regex else []
    backend.pre_tokenizer = pre_tokenizers.Sequence([*split, byte_level])
    path = tmp_path_factory.mktemp("given") / "tokenizer.json"
    backend.save(str(path))
    return TextEncoder(path, SETTINGS)


@given(LINES)
def test_cutting_for_a_given_tokenizer_does_not_change_its_ids(
    given_encoder: TextEncoder, parts: list[str]
) -> None:
    assert given_encoder._pieces is module.pieces_of_lines
    text = "".join(parts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "LONGEST_PIECE", 8)
        patch.setattr(encoding, "LONGEST_PIECE", 8)
        (ids,) = given_encoder.encode_documents([text])
    assert ids[1:-1].tolist() == given_encoder._backend.encode(text, add_special_tokens=False).ids


def test_a_given_tokenizer_that_looks_over_line_ends_gets_its_texts_whole(tmp_path: Path) -> None:
    backend = Backend.from_file(str(without_pre_tokenizer(tmp_path / "given.json")))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()  # marks the start of a text like a blank
    backend.save(str(tmp_path / "given.json"))
    assert module.pieces_for(Backend.from_file(str(tmp_path / "given.json"))) is module._whole
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate([*alphabet, "Ċa"])}
    reaching = Backend(models.BPE(vocab=vocabulary, merges=[("Ċ", "a")]))
    reaching.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    assert module.pieces_for(reaching) is module._whole
