"""Text to tokens and back: training a byte-level BPE, taking a given tokenizer, encoding documents.

The vocabulary is trained on the pre-tokens that `text_pieces.PATTERN` cuts text into.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models

from stoker.data.encoding.counting import count_words
from stoker.data.encoding.learning import learn_merges
from stoker.data.encoding.recognition import NotForTheEngine, Recognised, recognise
from stoker.data.encoding.split_pattern import alternatives_of
from stoker.data.encoding.splitting import split_table
from stoker.data.text_pieces import LONGEST_PIECE, PATTERN, bounded_pieces, own_pre_tokenizer, pieces_for
from stoker.durable_files import write_text
from stoker.errors import BadInput
from stoker.plural import counted
from stoker.recipe import Tokenizer
from stoker.recipe.tokenizer import SMALLEST_VOCABULARY

_BATCH = 1 << 22
_LEAST_FREQUENT = 2
"""What occurs once is no pattern."""


def train_tokenizer(samples: Mapping[str, Iterable[str]], settings: Tokenizer, path: Path) -> dict[str, int]:
    """Train a byte-level BPE and write it to `path` as a Hugging Face `tokenizer.json`.

    `samples` holds texts by source, in the order in which they should be used. Sources are balanced: the next
    text always comes from the source that has given fewest bytes, until `training_megabytes` are reached or
    all is used. Returns the UTF-8 bytes used by source. The file depends on the texts and the settings alone; it
    is the one that `tokenizers.trainers.BpeTrainer` makes of the same text (see `stoker.data.encoding.learning`)
    unless the text holds more distinct words than are counted (`stoker.data.encoding.counting`).

    Raises `BadInput` when the text supports fewer entries than `vocabulary_size`.
    """
    specials = list(dict.fromkeys((settings.bos_token, settings.eos_token)))
    used = dict.fromkeys(samples, 0)
    balanced = _balanced(samples, int(settings.training_megabytes * 1e6), used)
    pieces = (piece for text in balanced for piece in bounded_pieces(text))
    words = count_words(pieces, split_table(alternatives_of(PATTERN)))
    learnt = learn_merges(words, specials, settings.vocabulary_size, least=_LEAST_FREQUENT)
    backend = Backend(
        models.BPE(
            vocab={token: number for number, token in enumerate(learnt.tokens)},
            merges=[(learnt.tokens[left], learnt.tokens[right]) for left, right, _ in learnt.merges.tolist()],
        )
    )
    backend.pre_tokenizer = own_pre_tokenizer()
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(specials)
    supported = backend.get_vocab_size()
    if supported < settings.vocabulary_size:
        remedy = f"set vocabulary_size to at most {supported}, or give more text"
        if supported < SMALLEST_VOCABULARY:
            remedy = (
                f"fewer than the smallest vocabulary ({SMALLEST_VOCABULARY}). Give more text, or a tokenizer "
                "that was trained on other text (tokenizer.path)"
            )
        raise BadInput(
            f"tokenizer.vocabulary_size is {settings.vocabulary_size}, but the text "
            f"({counted(sum(used.values()), 'bytes')} used for training) supports only {supported} entries; "
            + remedy
        )
    write_text(path, _with_post_processor(backend, settings))
    return used


def adopt_tokenizer(given: Path, settings: Tokenizer, path: Path) -> None:
    """Write a given `tokenizer.json` to `path`, with a post-processor that does what the settings say.

    Nothing else in it changes, but truncation, padding and BPE dropout are switched off: they belong to no
    corpus. Raises `BadInput` as `TextEncoder` does.
    """
    write_text(path, _with_post_processor(_loaded(given, settings), settings))


def special_tokens(path: Path) -> tuple[str, ...]:
    """The special tokens of a `tokenizer.json` that has been read before, by id."""
    return _special_tokens(Backend.from_file(str(path)))


def _special_tokens(backend: Any) -> tuple[str, ...]:
    return tuple(str(added.content) for added in backend.get_added_tokens_decoder().values() if added.special)


class TextEncoder:
    """Encodes documents with a `tokenizer.json`, adding exactly the BOS and EOS that the settings say.

    Text that happens to contain a special token's name is ordinary text and never yields its id. What the
    file's own post-processor would add is not added.
    """

    def __init__(self, path: Path, settings: Tokenizer) -> None:
        """Load `path`. Raises `BadInput` when it is unreadable or lacks a special token that is to be added."""
        self._backend = _loaded(path, settings)
        self.bos_id: int | None = self._backend.token_to_id(settings.bos_token)
        self.eos_id: int | None = self._backend.token_to_id(settings.eos_token)
        self.vocabulary_size: int = 1 + max(self._backend.get_vocab(with_added_tokens=True).values())
        """One more than the highest id; ids that the file leaves out count."""
        self._before = [self.bos_id] if settings.add_bos else []
        self._after = [self.eos_id] if settings.add_eos else []

    @cached_property
    def encoded_by(self) -> str:
        """What encodes: `engine`, or `tokenizers` with the reason why the engine does not."""
        return "engine" if isinstance(self._engine, Recognised) else f"tokenizers ({self._engine})"

    def encode_documents(self, texts: Sequence[str]) -> list[npt.NDArray[np.uint32]]:
        """Token ids of each text, uint32 of shape [tokens], with BOS and EOS as the settings say.

        The compiled engine encodes where its ids were found to be those of `tokenizers`, in bounded memory beyond
        the texts and their ids; otherwise `tokenizers` does. That is given long texts in pieces that end where the
        tokenizer splits in any case (see `stoker.data.text_pieces`), so the ids are those of the whole; with a
        tokenizer that has no such places, a text is encoded in one piece, in memory that grows with it.
        """
        engine = self._engine
        if isinstance(engine, Recognised):
            found = engine.encode(texts, self._encoded_by_library)
        else:
            found = self._encoded_by_library(texts)
        before, after = np.asarray(self._before, np.uint32), np.asarray(self._after, np.uint32)
        return [np.concatenate([before, ids, after]) for ids in found]

    @cached_property
    def _engine(self) -> Recognised | NotForTheEngine:
        try:
            return recognise(self._backend)  # takes a second, and only encoding needs it
        except NotForTheEngine as reason:
            return reason

    def _encoded_by_library(self, texts: Sequence[str]) -> list[npt.NDArray[np.uint32]]:
        parts: list[list[npt.NDArray[np.uint32]]] = [[] for _ in texts]
        waiting: list[str] = []
        owners: list[int] = []
        size = 0
        for owner, text in enumerate(texts):
            for piece in self._pieces(text) if len(text) > LONGEST_PIECE else (text,):
                waiting.append(piece)
                owners.append(owner)
                size += len(piece)
                if size >= _BATCH:
                    self._encode(waiting, owners, parts)
                    waiting, owners, size = [], [], 0
        self._encode(waiting, owners, parts)
        return [np.concatenate(part) for part in parts]

    @cached_property
    def _pieces(self) -> Callable[[str], Iterator[str]]:
        return pieces_for(self._backend)  # takes a moment, and only long texts need it

    def decode(self, ids: Sequence[int] | npt.NDArray[Any]) -> str:
        """The text of `ids`, special tokens left out; bytes that are no UTF-8 become U+FFFD."""
        text: str = self._backend.decode([int(token) for token in ids], skip_special_tokens=True)
        return text

    def _encode(self, pieces: list[str], owners: list[int], parts: list[list[npt.NDArray[np.uint32]]]) -> None:
        encodings = self._backend.encode_batch_fast(pieces, add_special_tokens=False)
        for owner, encoding in zip(owners, encodings, strict=True):
            parts[owner].append(np.asarray(encoding.ids, dtype=np.uint32))


def _loaded(path: Path, settings: Tokenizer) -> Any:
    if not path.is_file():
        raise BadInput(f"tokenizer.path: no file {path}; give a Hugging Face tokenizer.json")
    try:
        backend = Backend.from_str(path.read_text(encoding="utf-8"))
    except Exception as error:  # the library raises bare Exception for whatever is wrong with the file
        raise BadInput(
            f"{path} is not a tokenizer that can be read: {error}; give a Hugging Face tokenizer.json "
            "(a fast tokenizer's single file)"
        ) from error
    backend.no_truncation()
    backend.no_padding()
    if isinstance(backend.model, models.BPE):
        backend.model.dropout = None
    backend.encode_special_tokens = True
    for wanted, name, token in (
        (settings.add_bos, "bos", settings.bos_token),
        (settings.add_eos, "eos", settings.eos_token),
    ):
        if wanted and backend.token_to_id(token) is None:
            special = _special_tokens(backend)
            raise BadInput(
                f"{path} has no token {token!r}, which tokenizer.{name}_token names; set it to one of the "
                f"tokenizer's own ({', '.join(special[:20]) or 'it has no special tokens'}), or set "
                f"tokenizer.add_{name} to false"
            )
    return backend


def _with_post_processor(backend: Any, settings: Tokenizer) -> str:
    """The tokenizer as JSON, adding BOS and EOS to a single text as the settings say."""
    written = json.loads(backend.to_str())
    before = [settings.bos_token] if settings.add_bos else []
    after = [settings.eos_token] if settings.add_eos else []

    def one_text(name: str, type_id: int) -> list[dict[str, Any]]:
        text = {"Sequence": {"id": name, "type_id": type_id}}
        first = [{"SpecialToken": {"id": token, "type_id": type_id}} for token in before]
        last = [{"SpecialToken": {"id": token, "type_id": type_id}} for token in after]
        return [*first, text, *last]

    written["post_processor"] = {
        "type": "TemplateProcessing",
        "single": one_text("A", 0),
        "pair": [*one_text("A", 0), *one_text("B", 1)],
        "special_tokens": {
            token: {"id": token, "ids": [backend.token_to_id(token)], "tokens": [token]}
            for token in dict.fromkeys([*before, *after])
        },
    }
    if not before and not after:
        written["post_processor"] = None
    return json.dumps(written, ensure_ascii=False, indent=2) + "\n"


def _balanced(samples: Mapping[str, Iterable[str]], budget: int, used: dict[str, int]) -> Iterator[str]:
    """Texts, each from the source that has given fewest bytes so far; `used` is kept up to date."""
    waiting = {name: iter(texts) for name, texts in samples.items()}
    left = budget
    while waiting and left > 0:
        name = min(waiting, key=lambda source: used[source])
        text = next(waiting[name], None)
        if text is None:
            del waiting[name]
            continue
        size = len(text.encode())
        if size > left:
            text = text.encode()[:left].decode(errors="ignore")
            size = left
        used[name] += size
        left -= size
        yield text
