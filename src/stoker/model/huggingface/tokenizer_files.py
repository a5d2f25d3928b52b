"""The tokenizer's files in an export.

Policy: a text is a prompt to go on from. So BOS is put before it, once, if the corpus had it before each
document; EOS is never put after it, though the corpus may have it after each document: a model reads it as
"the text is over". Who trains on with these files puts EOS after each document himself. Text that happens to
contain a special token's name is ordinary text, as in the corpus (`split_special_tokens`; transformers 4 asks
for it in each call).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Backend

from stoker.errors import BadInput, StokerError
from stoker.model.huggingface.library import transformers_library

_PROBES = (
    "The quick brown fox doesn't jump; it's 12345.67 metres away -- isn't it?",
    "  two blanks\n\n\ttab\r\nlines   end here  \n",
    "def f(x):\n    return x ** 2  # näher, cafe\u0301, ﬁne",
    "这是第一句。これは二番目です。 Это третье. ثلاثة ไทย 🙂🏽",
)
"""Texts on which ways of splitting differ: digits, blanks, contractions, accents, scripts without blanks."""


def tokenizer_files(
    path: Path, vocabulary_size: int, sequence_length: int, bos_id: int | None, eos_id: int | None
) -> dict[str, dict[str, Any]]:
    """Contents by file name: tokenizer.json, tokenizer_config.json, special_tokens_map.json.

    Raises `BadInput` when the file at `path` is no tokenizer, or has ids the model has no row for.
    """
    try:
        tokenizer = json.loads(path.read_text(encoding="utf-8"))
        entries = _entries(tokenizer)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(
            f"{path} is not a tokenizer.json that can be read ({error}); prepare the corpus again"
        ) from error
    highest = max(entries, default=-1)
    if highest >= vocabulary_size:
        raise BadInput(
            f"{path} has token ids up to {highest}, but the model has {vocabulary_size} rows; "
            "export with the tokenizer that the model was trained with"
        )
    special = {}
    for name, token_id in (("bos", bos_id), ("eos", eos_id)):
        if token_id is not None:
            if token_id not in entries:
                raise BadInput(f"{path} has no token with id {token_id}, which is given as {name}_id")
            special[f"{name}_token"] = entries[token_id]
    adds_bos = _without_end(tokenizer, special.get("bos_token"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **special,
        "add_bos_token": adds_bos,
        "add_eos_token": False,
        "model_max_length": sequence_length,
        "clean_up_tokenization_spaces": False,
        "split_special_tokens": True,
        "model_input_names": ["input_ids", "attention_mask"],
    }
    return {"tokenizer.json": tokenizer, "tokenizer_config.json": settings, "special_tokens_map.json": special}


def check_tokenizer(folder: Path) -> None:
    """Raise `StokerError` unless transformers splits text as the tokenizer.json in `folder` says."""
    library = transformers_library()
    backend = Backend.from_file(str(folder / "tokenizer.json"))
    theirs = library.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    for text in _PROBES:
        ours, read = backend.encode(text).ids, list(theirs(text)["input_ids"])
        if ours != read:
            raise StokerError(
                f"the installed transformers {library.__version__} reads the exported tokenizer otherwise than it "
                f"was written: {text!r} becomes {read[:12]} instead of {ours[:12]}. Nothing was exported; "
                "install transformers 4.57 or 5.24 and export again"
            )


def _entries(tokenizer: dict[str, Any]) -> dict[int, str]:
    vocabulary = tokenizer["model"]["vocab"]
    if isinstance(vocabulary, list):  # Unigram: pairs of token and score, in order of id
        entries = {index: str(pair[0]) for index, pair in enumerate(vocabulary)}
    else:
        entries = {int(index): str(token) for token, index in vocabulary.items()}
    return entries | {int(added["id"]): str(added["content"]) for added in tokenizer.get("added_tokens") or []}


def _without_end(tokenizer: dict[str, Any], bos: str | None) -> bool:
    """Take out of the post-processor what it puts after a text; whether it puts BOS before one."""
    processor = tokenizer.get("post_processor")
    if not processor or processor.get("type") != "TemplateProcessing":
        return False
    pair: list[dict[str, Any]] = []
    for sequence in ("A", "B"):
        one = _up_to_text(processor["single"], sequence, 0 if sequence == "A" else 1)
        pair += one
        if sequence == "A":
            processor["single"] = one
    processor["pair"] = pair
    kept = {part["SpecialToken"]["id"] for part in processor["single"] if "SpecialToken" in part}
    processor["special_tokens"] = {
        name: token for name, token in processor["special_tokens"].items() if name in kept
    }
    if not kept:
        tokenizer["post_processor"] = None
    return bos in kept


def _up_to_text(template: list[dict[str, Any]], sequence: str, type_id: int) -> list[dict[str, Any]]:
    kept: list[dict[str, Any]] = []
    for part in template:
        if "Sequence" in part:
            return [*kept, {"Sequence": {"id": sequence, "type_id": type_id}}]
        kept.append({"SpecialToken": {"id": part["SpecialToken"]["id"], "type_id": type_id}})
    return kept
