"""A tokenizer as a prepared corpus has it, and a small trained-looking model."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stoker.data.tokenizer import train_tokenizer
from stoker.recipe import Tokenizer

os.environ.setdefault("HF_HUB_OFFLINE", "1")

TOKENIZER_SETTINGS = Tokenizer(vocabulary_size=300)
TEXT = (
    "The quick brown fox jumps over the lazy dog. Das ist ein Satz.\n这是一个句子。 1234 <|end_of_text|> end. " * 30
)


@pytest.fixture(scope="session")
def tokenizer_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer of 300 entries that puts BOS before and EOS after each document."""
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    train_tokenizer({"text": [TEXT]}, TOKENIZER_SETTINGS, path)
    return path
