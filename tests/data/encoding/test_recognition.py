"""The engine's ids are those of `tokenizers`, or the engine does not encode."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import models, normalizers, pre_tokenizers

from stoker.data.encoding import engine as engine_module
from stoker.data.encoding import merging
from stoker.data.encoding import recognition as module
from stoker.data.encoding.byte_letters import byte_of_letter, letter_of_byte
from stoker.data.encoding.recognition import NotForTheEngine, Recognised, recognise
from tests.data.encoding.tokenizers_made import FAMILIES, ids_of, library_tokenizer, split_by, written_texts


@pytest.fixture(scope="module", params=FAMILIES)
def made(request: pytest.FixtureRequest) -> tuple[Any, Recognised]:
    backend = library_tokenizer(request.param)
    return backend, recognise(backend)


@pytest.fixture(scope="module")
def ours() -> tuple[Any, Recognised]:
    backend = library_tokenizer("ours")
    return backend, recognise(backend)


def encoded(made: tuple[Any, Recognised], texts: list[str]) -> list[list[int]]:
    backend, recognised = made
    library = [np.asarray(ids, np.uint32) for ids in ids_of(backend, texts)]
    by_text = dict(zip(texts, library, strict=True))
    return [ids.tolist() for ids in recognised.encode(texts, lambda left: [by_text[text] for text in left])]


PIECES = st.sampled_from(
    [
        *"aZsdé中あไ한ǅʰſİßⅣ²7٣'’-_=/\\<>|.,。，🙂\u0301\u0327\u200b\u200d\u00a0\u3000\u2028\x85\x00\ufffd\ue000\U000e0041",
        *(" ", "  ", "\t", "\n", "\r\n", "\n\n", "'s", "'LL", "don't", "O'RE", "2024", "words", " unmergeable"),
        *("<tool_call>", "think aloud", "<|end|>", "\u1100\u1161\u11a8", "e\u0301", "a" * 70, "中" * 70, " " * 70),
    ]
)  # fmt: skip


@settings(max_examples=60)
@given(texts=st.lists(st.lists(PIECES, max_size=40).map("".join) | st.text(max_size=60), max_size=6))
def test_drawn_texts_have_the_ids_of_the_library(made: tuple[Any, Recognised], texts: list[str]) -> None:
    assert encoded(made, texts) == ids_of(made[0], texts)


def test_written_texts_have_the_ids_of_the_library(made: tuple[Any, Recognised]) -> None:
    texts = written_texts()
    assert encoded(made, texts) == ids_of(made[0], texts)


@settings(max_examples=40)
@given(pieces=st.lists(PIECES, min_size=1, max_size=60), block=st.integers(1, 50))
def test_blocks_change_nothing(ours: tuple[Any, Recognised], pieces: list[str], block: int) -> None:
    text = "".join(pieces)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_module, "BLOCK", block)
        assert encoded(ours, [text, "", text])[0] == ids_of(ours[0], [text])[0]


@pytest.mark.parametrize("family", ["gpt-2", "llama-3"])
def test_words_longer_than_a_block_are_encoded_whole(family: str) -> None:
    backend = library_tokenizer(family)
    recognised = recognise(backend)
    draw = random.Random(1)
    for text in ("".join(draw.choices("中文字符abc", k=200_000)), "ab" * 100_000, "=" * 100_000, " " * 100_000):
        assert [ids.tolist() for ids in recognised.encode([text], lambda left: [])] == ids_of(backend, [text])


def test_the_heap_and_the_scan_merge_alike(ours: tuple[Any, Recognised]) -> None:
    draw = random.Random(2)
    table = ours[1].engine._merges
    for length in (1, 2, 5, 40, 180):
        symbols = np.asarray([table.byte_ids[byte] for byte in draw.choices(b"the and of", k=length)], np.int64)
        found = np.asarray(
            [
                merging._merge_of(table.keys, table.merges, left, right)
                for left, right in zip(symbols[:-1].tolist(), symbols[1:].tolist(), strict=True)
            ],
            np.int64,
        )
        scanned, heaped = symbols.copy(), symbols.copy()
        left = merging._merged(scanned, found.copy(), length, table.keys, table.merges)
        assert left == merging._merged_by_heap(heaped, found.copy(), length, table.keys, table.merges)
        assert scanned[:left].tolist() == heaped[:left].tolist()


def test_a_full_memory_of_words_is_emptied_and_nothing_changes() -> None:
    backend = library_tokenizer("llama-3")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_module, "_REMEMBERED_BITS", 4)
        recognised = recognise(backend)
    words = recognised.engine._remembered.words
    assert len(words.starts) < 4 * backend.get_vocab_size()
    texts = [" ".join(f"word{number * 7919 % 5000}" for number in range(5000)), *written_texts()]
    assert [ids.tolist() for ids in recognised.encode(texts, lambda left: [])] == ids_of(backend, texts)
    assert recognised.engine._remembered.kept[0] > 600  # whole words stay known


def test_letters_and_bytes_are_those_of_the_library() -> None:
    assert set(byte_of_letter()) == set(pre_tokenizers.ByteLevel.alphabet())
    splitter = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    for code in (
        *range(0x80),
        *range(0x80, 0x800, 13),
        *range(0x800, 0xD800, 997),
        *range(0x10000, 0x110000, 9973),
    ):
        (found,) = splitter.pre_tokenize_str(chr(code))
        assert found[0] == "".join(letter_of_byte()[byte] for byte in chr(code).encode())


# --- what the engine does not encode --------------------------------------------------------------------------


def changed(**changes: Any) -> Any:
    written = json.loads(library_tokenizer("ours").to_str())
    for place, value in changes.items():
        section, _, name = place.partition("__")
        if name:
            written[section][name] = value
        else:
            written[section] = value
    return Backend.from_str(json.dumps(written))


BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
OTHERS: dict[str, tuple[dict[str, Any], str]] = {
    "a normaliser": ({"normalizer": {"type": "Lowercase"}}, "normalises text"),
    "a blank before": ({"pre_tokenizer": BYTES | {"add_prefix_space": True, "use_regex": True}}, "blank before"),
    "no bytes": ({"pre_tokenizer": {"type": "Whitespace"}}, "not work on bytes"),
    "no splitting": ({"pre_tokenizer": BYTES}, "split text once"),
    "no pre-tokenizer": ({"pre_tokenizer": None}, "not work on bytes"),
    "bytes as entries": ({"model__byte_fallback": True}, "byte_fallback"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_another_kind_of_tokenizer_is_left_to_the_library_with_the_reason(name: str) -> None:
    changes, reason = OTHERS[name]
    with pytest.raises(NotForTheEngine, match=reason):
        recognise(changed(**changes))


@pytest.mark.parametrize("pattern", [r"\w+?|\W", r"(?<=a)b|.", r"a*|b", r"(a|b)+|.", r"\p{L}+(?=\d)|."])
def test_a_pattern_of_another_form_is_left_to_the_library(pattern: str) -> None:
    backend = library_tokenizer("ours")
    backend.pre_tokenizer = split_by(pattern)
    with pytest.raises(NotForTheEngine, match="pattern"):
        recognise(backend)


def test_a_vocabulary_without_all_bytes_is_left_to_the_library() -> None:
    letters = sorted(byte_of_letter())
    backend = Backend(models.BPE({letter: number for number, letter in enumerate(letters[1:])}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    with pytest.raises(NotForTheEngine, match="vocabulary lacks"):
        recognise(backend)


def test_an_engine_whose_ids_differ_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were the engine, or the library, to read a pattern in another way, the comparison finds it."""
    monkeypatch.setattr(module, "GPT2_PATTERN", module.GPT2_PATTERN.replace(r"\p{N}+", r"\p{N}"))
    with pytest.raises(NotForTheEngine, match="not those of `tokenizers`"):
        recognise(library_tokenizer("gpt-2"))


def test_text_is_normalised_as_the_library_does() -> None:
    backend = library_tokenizer("qwen-2")
    recognised = recognise(backend)
    assert recognised.normalise is not None
    texts = ["e\u0301 \u212b \u1100\u1161 \uf900 x\u0327\u0301", "plain", "é中"]
    assert [ids.tolist() for ids in recognised.encode(texts, lambda left: [])] == ids_of(backend, texts)
    assert recognised.normalise("e\u0301") == normalizers.NFC().normalize_str("e\u0301") == "é"


def test_texts_that_hold_an_added_token_go_to_the_library() -> None:
    backend = library_tokenizer("qwen-2")
    asked: list[str] = []

    def by_library(texts: list[str]) -> list[Any]:
        asked.extend(texts)
        return [np.asarray(ids, np.uint32) for ids in ids_of(backend, texts)]

    texts = ["no token", "a <tool_call> b", "to think aloud, then", "<tool_call\u0338>"]
    found = recognise(backend).encode(texts, by_library)
    assert [ids.tolist() for ids in found] == ids_of(backend, texts)
    assert asked == texts[1:3]
