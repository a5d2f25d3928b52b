"""Tokenizers of the families in use, each with its own split pattern, over one small vocabulary."""

from __future__ import annotations

import json
from typing import Any

from tokenizers import AddedToken, Regex, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Backend

from stoker.data.text_pieces import own_pre_tokenizer
from tests.data.written_text import MANNERS

LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
QWEN_2 = LLAMA_3.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
FAMILIES = ("ours", "gpt-2", "llama-3", "qwen-2", "o200k")


def split_by(pattern: str) -> Any:
    """The pre-tokenizer that splits by a pattern and then works on bytes."""
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def written_texts() -> list[str]:
    """A few texts of every manner."""
    return [write(seed) for write in MANNERS.values() for seed in range(8)]


def library_tokenizer(family: str, size: int = 900) -> Any:
    """A tokenizer of one of `FAMILIES`, trained by the library."""
    backend = Backend(models.BPE())
    patterns = {"llama-3": LLAMA_3, "qwen-2": QWEN_2, "o200k": O200K}
    if family == "ours":
        backend.pre_tokenizer = own_pre_tokenizer()
    elif family == "gpt-2":
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        backend.pre_tokenizer = split_by(patterns[family])
    if family == "qwen-2":
        backend.normalizer = normalizers.NFC()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=2,
        special_tokens=["<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(written_texts(), trainer)
    backend.encode_special_tokens = True
    if family == "qwen-2":
        backend.add_tokens([AddedToken("<tool_call>", normalized=False), AddedToken("think aloud")])
    if family == "llama-3":
        written = json.loads(backend.to_str())
        written["model"]["ignore_merges"] = True
        # Found whole, and never made by merges: the entries that setting is about.
        written["model"]["vocab"] |= {"Ġunmergeable": size, "words": size + 1}
        backend = Backend.from_str(json.dumps(written))
        backend.encode_special_tokens = True
    return backend


def ids_of(backend: Any, texts: list[str]) -> list[list[int]]:
    """What the library says."""
    return [encoding.ids for encoding in backend.encode_batch_fast(texts, add_special_tokens=False)]
