"""Text to tokens and back: training a byte-level BPE, taking a given tokenizer, encoding documents.

The vocabulary is trained on pre-tokens, the pieces that `PATTERN` cuts text into. Every alternative of the
pattern is bounded, so the longest pre-token is a property of the tokenizer, and text without a single space
costs no more than any other. Since each match depends only on the text from its start to one character
behind its end, a long document can be encoded piece by piece with the very ids of the whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Regex, decoders, models, pre_tokenizers, trainers
from tokenizers import Tokenizer as Backend

from stoker.durable_files import write_text
from stoker.errors import BadInput
from stoker.recipe import Tokenizer

_LONGEST = 64
_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}ー々\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
PATTERN = "|".join(
    (
        # English contractions, where no letter follows: don|'t, but '|self
        r"'(?i:[sdmt]|ll|ve|re)(?![\p{L}\p{M}\p{N}])",
        # runs of scripts without spaces, apart from the Latin words and punctuation around them
        rf"[{_UNSPACED}]{{1,{_LONGEST}}}",
        # a word with the blank or sign before it
        rf"[^\r\n\p{{L}}\p{{M}}\p{{N}}]?[\p{{L}}\p{{M}}&&[^{_UNSPACED}]]{{1,{_LONGEST}}}",
        # each digit by itself
        r"\p{N}",
        # punctuation and symbols with the line ends behind them
        rf" ?[^\s\p{{L}}\p{{M}}\p{{N}}]{{1,{_LONGEST}}}[\r\n]{{0,{_LONGEST}}}",
        # line ends with the blanks before them
        rf"\s{{0,{_LONGEST}}}[\r\n]{{1,{_LONGEST}}}",
        # blanks but the last, which belongs to the word behind it
        rf"\s{{1,{_LONGEST}}}(?!\S)",
        rf"\s{{1,{_LONGEST}}}",
    )
)
_REACH = 2 * _LONGEST + 2
"""No match of `PATTERN` together with what it looks ahead at is longer, in characters."""
_PIECE = 1 << 16
_BATCH = 1 << 22


def train_tokenizer(samples: Mapping[str, Iterable[str]], settings: Tokenizer, path: Path) -> dict[str, int]:
    """Train a byte-level BPE and write it to `path` as a Hugging Face `tokenizer.json`.

    `samples` holds texts by source, in the order in which they should be used. Sources are balanced: the next
    text always comes from the source that has given fewest bytes, until `training_megabytes` are reached or
    all is used. Returns the UTF-8 bytes used by source. The file depends on the texts and the settings alone,
    not on the number of threads.

    Raises `BadInput` when the text supports fewer entries than `vocabulary_size`.
    """
    specials = list(dict.fromkeys((settings.bos_token, settings.eos_token)))
    backend = Backend(models.BPE())
    backend.pre_tokenizer = _own_pre_tokenizer()
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=settings.vocabulary_size,
        min_frequency=2,
        special_tokens=specials,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    used = dict.fromkeys(samples, 0)
    balanced = _balanced(samples, int(settings.training_megabytes * 1e6), used)
    backend.train_from_iterator((piece for text in balanced for piece in _pieces(text)), trainer)
    supported = backend.get_vocab_size()
    if supported < settings.vocabulary_size:
        raise BadInput(
            f"tokenizer.vocabulary_size is {settings.vocabulary_size}, but the text "
            f"({sum(used.values()):,} bytes used for training) supports only {supported} entries; "
            f"set vocabulary_size to at most {supported}, or give more text"
        )
    write_text(path, _with_post_processor(backend, settings))
    return used


def adopt_tokenizer(given: Path, settings: Tokenizer, path: Path) -> None:
    """Write a given `tokenizer.json` to `path`, with a post-processor that does what the settings say.

    Nothing else in it changes, but truncation, padding and BPE dropout are switched off: they belong to no
    corpus. Raises `BadInput` as `TextEncoder` does.
    """
    write_text(path, _with_post_processor(_loaded(given, settings), settings))


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
        self._cuts_exactly = _is_own(self._backend)

    def encode_documents(self, texts: Sequence[str]) -> list[npt.NDArray[np.uint32]]:
        """Token ids of each text, uint32 of shape [tokens], with BOS and EOS as the settings say.

        Long texts are encoded in pieces that end where the pre-tokenizer splits in any case, so the ids are
        those of the whole. With a given tokenizer whose splits are not known to allow that, a text is encoded
        in one piece, in memory that grows with it.
        """
        parts: list[list[npt.NDArray[np.uint32]]] = [[] for _ in texts]
        waiting: list[str] = []
        owners: list[int] = []
        size = 0
        for owner, text in enumerate(texts):
            for piece in _pieces(text) if self._cuts_exactly else (text,):
                waiting.append(piece)
                owners.append(owner)
                size += len(piece)
                if size >= _BATCH:
                    self._encode(waiting, owners, parts)
                    waiting, owners, size = [], [], 0
        self._encode(waiting, owners, parts)
        before, after = np.asarray(self._before, np.uint32), np.asarray(self._after, np.uint32)
        return [np.concatenate([before, *part, after]) for part in parts]

    def decode(self, ids: Sequence[int] | npt.NDArray[Any]) -> str:
        """The text of `ids`, special tokens left out; bytes that are no UTF-8 become U+FFFD."""
        text: str = self._backend.decode([int(token) for token in ids], skip_special_tokens=True)
        return text

    def _encode(self, pieces: list[str], owners: list[int], parts: list[list[npt.NDArray[np.uint32]]]) -> None:
        encodings = self._backend.encode_batch_fast(pieces, add_special_tokens=False)
        for owner, encoding in zip(owners, encodings, strict=True):
            parts[owner].append(np.asarray(encoding.ids, dtype=np.uint32))


def _own_pre_tokenizer() -> Any:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False),
        ]
    )


def _is_own(backend: Any) -> bool:
    """Whether the tokenizer splits by `PATTERN`, with nothing before or beside it that sees more context."""
    written = json.loads(backend.to_str())
    own = Backend(models.BPE())
    own.pre_tokenizer = _own_pre_tokenizer()
    return (
        written["normalizer"] is None
        and written["pre_tokenizer"] == json.loads(own.to_str())["pre_tokenizer"]
        and all(token["special"] for token in written["added_tokens"])
    )


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
            special = [str(added.content) for added in backend.get_added_tokens_decoder().values() if added.special]
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


def _pieces(text: str) -> Iterator[str]:
    """`text` in pieces of bounded length that end where `PATTERN` splits the whole text."""
    start = 0
    while len(text) - start > _PIECE:
        stop = _split_before(text, start, start + _PIECE)
        yield text[start:stop]
        start = stop
    yield text[start:]


def _split_before(text: str, start: int, stop: int) -> int:
    """The last place before `stop` at which matching from `start`, where a match begins, begins another.

    A line end that is followed by a visible character is such a place wherever matching began: no alternative
    holds a line end before anything but line ends. Without one near `stop`, matching the whole stretch shows
    where matches begin; those that begin `_REACH` before its end have seen all that they can look at.
    """
    line_end = text.rfind("\n", max(start, stop - _PIECE // 4), stop - 1)
    if line_end > start and not text[line_end + 1].isspace() and text[line_end + 1].isprintable():
        return line_end + 1
    spans: list[tuple[str, tuple[int, int]]] = _matcher().pre_tokenize_str(text[start:stop])
    return start + max(begin for _, (begin, _) in spans if begin <= stop - start - _REACH)


def _matcher() -> Any:
    return pre_tokenizers.Split(Regex(PATTERN), behavior="isolated")
