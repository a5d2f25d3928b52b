"""What is learnt is what `tokenizers` learns, in bounded memory."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers, trainers

from stoker.data.encoding import counting
from stoker.data.encoding import learning as module
from stoker.data.encoding.counting import WordCounts, count_words
from stoker.data.encoding.learning import learn_merges
from stoker.data.encoding.split_pattern import alternatives_of
from stoker.data.encoding.splitting import SplitTable, split_table
from stoker.data.text_pieces import PATTERN, own_pre_tokenizer
from tests.data.encoding.tokenizers_made import written_texts


@pytest.fixture(scope="module")
def split() -> SplitTable:
    return split_table(alternatives_of(PATTERN))


def by_library(texts: list[str], specials: list[str], size: int) -> Backend:
    backend = Backend(models.BPE())
    backend.pre_tokenizer = own_pre_tokenizer()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=2,
        special_tokens=specials,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    return backend


def in_order(backend: Backend) -> list[str]:
    vocabulary = backend.get_vocab(with_added_tokens=True)
    return sorted(vocabulary, key=vocabulary.__getitem__)


def words(counted: WordCounts) -> dict[str, int]:
    text = counted.words.letters[: counted.words.used[1]].tobytes().decode("utf-32-le")
    starts = counted.words.starts.tolist()
    return {text[starts[n] : starts[n + 1]]: int(counted.counts[n]) for n in range(len(counted))}


_LETTERS = str.maketrans("0123456789", "abcdefghij")
WORDS = st.lists(
    st.text("abA é中文🙂", min_size=1, max_size=9)
    | st.sampled_from(["aaaa", "abab", "aaaaa", "the", "then", "other"]),
    min_size=1,
    max_size=60,
)


@settings(max_examples=60)
@given(drawn=WORDS, specials=st.sampled_from([["<s>"], ["<s>", "</s>"], ["a"], ["the", "</s>"]]))
def test_drawn_words_give_the_vocabulary_of_the_library(
    split: SplitTable, drawn: list[str], specials: list[str]
) -> None:
    """Few letters and many ties; special tokens that are words, too."""
    texts = [" ".join(drawn), "".join(drawn)]
    learnt = learn_merges(count_words(texts, split), specials, 330, 2)
    expected = by_library(texts, specials, 330)
    assert list(learnt.tokens) == in_order(expected)


def test_written_text_gives_the_vocabulary_of_the_library(
    split: SplitTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With tables that have to grow on the way."""
    monkeypatch.setattr(module, "_ROOM", 2048)
    monkeypatch.setattr(module, "_LETTERS_OF_TOKEN", 1)
    learnt = learn_merges(count_words(written_texts(), split), ["<s>"], 3000, 2)
    assert list(learnt.tokens) == in_order(by_library(written_texts(), ["<s>"], 3000))


def test_every_merge_joins_two_entries_to_a_third(split: SplitTable) -> None:
    learnt = learn_merges(count_words(written_texts(), split), ["<s>"], 1000, 2)
    assert len(learnt.tokens) == 1000 == 257 + len({merged for _, _, merged in learnt.merges.tolist()})
    for left, right, merged in learnt.merges.tolist():
        assert max(left, right) < merged
        assert learnt.tokens[left] + learnt.tokens[right] == learnt.tokens[merged]


@settings(max_examples=30)
@given(st.lists(st.text("ab c中1.\n", max_size=40), max_size=20))
def test_words_are_counted_as_the_pattern_splits_them(split: SplitTable, texts: list[str]) -> None:
    splitter = own_pre_tokenizer()
    expected: Counter[str] = Counter()
    for text in texts:
        expected.update(text[start:stop] for _, (start, stop) in splitter.pre_tokenize_str(text))
    assert words(count_words(texts, split)) == expected


def test_rare_words_are_dropped_where_there_are_too_many_and_frequent_ones_stay(split: SplitTable) -> None:
    frequent = [f" {chr(97 + n)}{chr(98 + n)}" for n in range(20)]
    rare = [
        f"{chr(97 + n % 26)}{chr(97 + n // 26 % 26)}{chr(97 + n // 676 % 26)}{'x' * (n % 40)}"
        for n in range(30_000)
    ]
    texts = ["".join(frequent) + "".join(f" {word}" for word in rare[n::4000]) for n in range(4000)]
    bounded = count_words(texts, split, most_letters=1 << 12)
    whole = words(count_words(texts, split))
    assert len(whole) > 3 * len(bounded)
    assert len(bounded.words.letters) == counting._LETTERS_OF_SLOT << counting._FIRST_BITS
    found = words(bounded)
    assert all(found[word] == whole[word] == 4000 for word in frequent)
    assert words(count_words(texts, split, most_letters=1 << 12)) == found


def test_tables_of_words_grow_with_what_is_counted(split: SplitTable) -> None:
    texts = [
        " ".join(str(n * 7919 % 100_003).translate(_LETTERS) for n in range(start, start + 500))
        for start in range(0, 40_000, 500)
    ]
    counted = count_words(texts, split)
    assert len(counted) > 1 << (counting._FIRST_BITS - 1)
    assert int(counted.counts.sum()) == sum(len(own_pre_tokenizer().pre_tokenize_str(text)) for text in texts)
