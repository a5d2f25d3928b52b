"""Several tokenizers on the same text: fertility, round trip, special tokens, speed."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stoker.counter_random import key_of, permutation
from stoker.data.document import Document
from stoker.data.operators import judge, operators_of
from stoker.data.reading.files import list_files
from stoker.data.reading.read import read_part
from stoker.data.reading.units import plan_units
from stoker.data.token_text import token_text
from stoker.data.tokenizer import TextEncoder, special_tokens
from stoker.errors import BadInput
from stoker.progress import Progress
from stoker.recipe import Source, Tokenizer
from stoker.recipe.loading import LoadedRecipe


@dataclass(frozen=True)
class Fit:
    """How one tokenizer fits the text of one source."""

    source: str
    tokens_per_character: float
    bytes_per_token: float
    single_byte_share: float
    """Tokens that are one byte of a character of several, of all tokens."""
    changed: int
    """Documents that do not come back as they were."""


@dataclass(frozen=True)
class Compared:
    """One tokenizer on the text of all sources."""

    tokenizer: str
    vocabulary_size: int
    encoded_by: str
    """As `TextEncoder.encoded_by` says it."""
    special_tokens: tuple[str, ...]
    fits: tuple[Fit, ...]
    tokens: int
    seconds: float
    """Of processor time, for encoding alone."""
    megabytes_per_second: float
    """Of text, in 10^6 bytes, for each second of processor time."""


def sampled_texts(loaded: LoadedRecipe, megabytes: float, progress: Progress) -> dict[str, list[str]]:
    """Cleaned text of each source of a recipe, of about `megabytes` (10^6 bytes), from places all over the source.

    What the operators of the source drop is left out, repetitions are not. Raises `BadInput` where a source has no
    text.
    """
    data = loaded.recipe.data
    texts = {}
    with progress.task("read text", len(data.sources), "sources") as task:
        for source in data.sources:
            texts[source.name] = _sampled(source, loaded, int(megabytes * 1e6))
            task.advance()
            if not texts[source.name]:
                raise BadInput(f"data.sources[{source.name}] has no text that passes cleaning and filters")
    return texts


def _sampled(source: Source, loaded: LoadedRecipe, wanted: int) -> list[str]:
    cleaning = loaded.recipe.data.cleaning.located(loaded.folder)
    files = [(file, file.path.stat().st_size) for file in list_files(source, loaded.folder)]
    units = plan_units([(source, files)])
    operators = operators_of(source, cleaning)
    texts: list[str] = []
    size = 0
    for number in permutation(key_of(0, "tokenizer comparison", source.name), len(units)).tolist():
        for part in units[number].parts:
            for found in read_part(source, part, cleaning.maximum_document_bytes):
                judged = judge(found, operators) if isinstance(found, Document) else None
                if judged is not None and judged.reason is None:
                    texts.append(judged.document.text)
                    size += len(judged.document.text.encode())
                if size >= wanted:
                    return texts
    return texts


def compare_tokenizers(
    tokenizers: Sequence[Path], texts: Mapping[str, Sequence[str]], progress: Progress
) -> list[Compared]:
    """Encode the same texts with each `tokenizer.json`, without special tokens.

    Raises `BadInput` where one is no tokenizer.
    """
    found = []
    with progress.task("encode", len(tokenizers) * len(texts), "sources") as task:
        for path in tokenizers:
            encoder = TextEncoder(path, Tokenizer(path=str(path), add_bos=False, add_eos=False))
            encoder.encode_documents(["once, so that what is made on first use is not timed"])
            encoded_by = encoder.encoded_by
            contents = token_text(path)
            broken = np.asarray([len(content) == 1 and content[0] >= 0x80 for content in contents.contents])
            fits, tokens, size, seconds = [], 0, 0, 0.0
            for name, own in texts.items():
                start = time.process_time()
                encoded = encoder.encode_documents(own)
                seconds += time.process_time() - start
                ids = np.concatenate(encoded)
                own_size, characters = sum(len(text.encode()) for text in own), sum(map(len, own))
                changed = sum(encoder.decode(one) != text for one, text in zip(encoded, own, strict=True))
                share = float(broken[ids].mean()) if len(ids) else 0.0
                fits.append(Fit(name, len(ids) / characters, own_size / max(len(ids), 1), share, changed))
                tokens, size = tokens + len(ids), size + own_size
                task.advance()
            found.append(
                Compared(
                    tokenizer=str(path),
                    vocabulary_size=encoder.vocabulary_size,
                    encoded_by=encoded_by,
                    special_tokens=special_tokens(path),
                    fits=tuple(fits),
                    tokens=tokens,
                    seconds=seconds,
                    megabytes_per_second=size / 1e6 / seconds if seconds else 0.0,
                )
            )
    return found
