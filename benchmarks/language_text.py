"""Text whose language is known, from packages: what the model of languages is trained on and judged on.

Trained on: message catalogues of Debian packages (/usr/share/locale) and of Django, the translated manual of Apache
and handbook of Debian (packages apache2-doc, debian-handbook, jargon), dictionaries of simplemma and pyspellchecker
(both MIT), English docstrings, and code of the standard library, of numpy and of /usr/include.
Judged on (other sources, other authors): Debian's translated manual pages and fortune cookies, code of torch,
sympy and transformers, and text of the folder that is named.
"""

from __future__ import annotations

import gettext
import gzip
import io
import json
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

CATALOGUES = {
    "pt_BR": "pt", "nb": "no", "nn": "no", "nb_NO": "no", "ms": "id", "bs": "hr", "sr@latin": "hr", "sr@Latn": "hr",
}  # fmt: skip
LATIN = [
    "en",
    "fr",
    "de",
    "es",
    "pt",
    "it",
    "nl",
    "pl",
    "cs",
    "sk",
    "sl",
    "hr",
    "ro",
    "hu",
    "sv",
    "da",
    "no",
    "fi",
    "et",
    "lt",
    "lv",
    "tr",
    "vi",
    "id",
    "ca",
    "eu",
    "gl",
    "af",
    "sq",
    "eo",
    "ga",
    "cy",
    "is",
    "az",
    "tl",
]
LABELS: dict[str, list[str]] = {
    "LATIN": ["code", *LATIN],
    "CYRILLIC": ["ru", "uk", "bg", "sr", "mk", "be", "kk", "mn"],
    "ARABIC": ["ar", "fa"],
    "DEVANAGARI": ["hi", "mr", "ne"],
}
_NAMES_ONLY = re.compile("iso_|iso-|xkeyboard|cups|tzdata|debian-installer-timezone")
_MARKUP = re.compile(r"<[^<>]{1,80}>|&\w+;|[_~](?=\w)|%[-\d.$]*[a-zA-Z]|%\(\w+\)s")
_WORD = re.compile(r"[^\W\d_]{2,}")
_LANGUAGE = re.compile(r"[a-z]{2}(?:[-_][A-Z]{2})?")
_ENGLISH_WORDS = re.compile(r"\b(?:the|of|and|to|is|you|your|that|with|have|this|not|it|for)\b", re.IGNORECASE)
_C_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*|^\s*#[^\n]*\b(?:Copyright|SPDX)[^\n]*", re.DOTALL | re.MULTILINE)
_HASH_COMMENT = re.compile(r"^\s*#.*\n", re.MULTILINE)


def catalogue_text(folder: Path) -> dict[str, list[str]]:
    """Translated messages of all `*.mo` under a folder by language, and their English originals."""
    text: dict[str, list[str]] = {}
    wanted = {label for labels in LABELS.values() for label in labels}
    for path in sorted(folder.rglob("LC_MESSAGES/*.mo")):
        language = path.parent.parent.name
        label = CATALOGUES.get(language, language)
        if _NAMES_ONLY.match(path.name) or label not in wanted or label == "en":
            continue
        try:
            messages = gettext.GNUTranslations(path.open("rb"))._catalog  # type: ignore[attr-defined]
        except (OSError, UnicodeError, ValueError, LookupError):
            continue
        for original, translated in messages.items():
            original = original[0] if isinstance(original, tuple) else original
            if original and isinstance(translated, str) and _is_translation(original, translated):
                text.setdefault(label, []).append(_MARKUP.sub("", translated))
                if label in ("fr", "de"):
                    text.setdefault("en", []).append(_MARKUP.sub("", original))
    return {label: sorted(set(found)) for label, found in text.items()}


def _is_translation(original: str, translated: str) -> bool:
    words = {word.lower() for word in _WORD.findall(translated)}
    same = words & {word.lower() for word in _WORD.findall(original)}
    return len(words) >= 2 and 3 * len(same) <= len(words)


def dictionary_words() -> dict[str, list[str]]:
    """Words by language: of pyspellchecker by their frequency, of simplemma each once."""
    import spellchecker
    from simplemma.strategies.dictionaries.dictionary_factory import SUPPORTED_LANGUAGES, DefaultDictionaryFactory

    words: dict[str, list[str]] = {}
    for path in sorted((Path(spellchecker.__file__).parent / "resources").glob("*.json.gz")):
        counted: dict[str, int] = json.loads(gzip.decompress(path.read_bytes()))
        common = sorted(counted, key=lambda word: -counted[word])[:20_000]
        rarest = counted[common[-1]] or 1
        words[path.name.partition(".")[0]] = [
            word for word in common for _ in range(min(300, counted[word] // rarest + 1))
        ]
    factory = DefaultDictionaryFactory()
    for language in sorted(SUPPORTED_LANGUAGES):
        label = {"nb": "no", "hbs": "hr", "ms": "id"}.get(language, language)
        if label not in words:
            words[label] = list(factory.get_dictionary(language))  # type: ignore[call-overload]
    return words


def python_code(source: str) -> str:
    """Python without its comments and docstrings."""
    out: list[str] = []
    line, column, fresh = 1, 0, True
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.start[0] > line:
                line, column = token.start[0], 0
            if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and fresh):
                column = token.end[1]
                line = token.end[0]
                continue
            out.append(" " * (token.start[1] - column) + token.string)
            line, column = token.end
            if token.type not in (tokenize.NL, tokenize.INDENT, tokenize.DEDENT):
                fresh = token.type == tokenize.NEWLINE
    except (tokenize.TokenError, IndentationError, SyntaxError):
        return ""
    return re.sub(r"\n\s*\n+", "\n", "".join(out))


def code_of(path: Path) -> str:
    """The code of a file, without comments."""
    source = path.read_text(encoding="utf-8", errors="ignore")[:200_000]
    if path.suffix == ".py":
        return python_code(source)
    if path.suffix in (".h", ".hpp", ".c", ".cpp", ".js", ".ts", ".css", ".cuh"):
        return re.sub(r"\n\s*\n+", "\n", _C_COMMENT.sub("", source))
    if path.suffix in (".json", ".html", ".xml", ".svg"):
        return source
    return _HASH_COMMENT.sub("", source)


def code_files(folder: Path, patterns: str, most: int) -> list[str]:
    """Code of up to `most` files, spread over the folder."""
    found = sorted(path for pattern in patterns.split() for path in folder.rglob(pattern) if path.is_file())
    step = max(1, len(found) // most)
    return [code for path in found[::step][:most] if len(code := code_of(path)) > 200]


def docstrings(folder: Path, most: int) -> list[str]:
    """English docstrings of Python files."""
    import ast

    out: list[str] = []
    paths = sorted(folder.rglob("*.py"))
    for path in paths[:: max(1, len(paths) // most)]:
        try:
            tree = ast.parse(path.read_text(encoding="utf-8", errors="ignore"))
        except (SyntaxError, ValueError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                text = (ast.get_docstring(node) or "").partition(">>>")[0].partition("\nParameters\n")[0]
                if len(text) > 60:
                    out.append(text)
    return out


def documentation(folder: Path, most: int) -> dict[str, list[str]]:
    """Paragraphs of running text by language, of up to `most` pages of a language of translated HTML manuals.

    The language is that of the folder: `manual/fr/…`, `html/pt-BR/…`. What was left in English is not taken.
    """
    from stoker.data.extraction import extract_text
    from stoker.data.reading.html import decode_page

    pages: dict[str, list[Path]] = {}
    wanted = {label for labels in LABELS.values() for label in labels}
    for path in sorted(folder.rglob("*.html")):
        language = next((part for part in path.parts[::-1] if _LANGUAGE.fullmatch(part)), "en").replace("-", "_")
        label = CATALOGUES.get(language, language.partition("_")[0])
        pages.setdefault(CATALOGUES.get(label, label), []).append(path)
    text: dict[str, list[str]] = {}
    for label, paths in pages.items():
        if label not in wanted:
            continue
        found: set[str] = set()
        for path in paths[:: max(1, len(paths) // most)][:most]:
            for paragraph in extract_text(decode_page(path.read_bytes())).split("\n\n"):
                is_prose = len(paragraph) > 60 and paragraph.rstrip().endswith((".", ":", "!", "?"))
                if is_prose and sum(map(str.isalpha, paragraph)) > 0.7 * len(paragraph):
                    found.add(paragraph)
        text[label] = sorted(one for one in found if label == "en" or not is_english(one))
    return text


def is_english(text: str) -> bool:
    """Whether a piece of a translation was left in English, by its commonest words."""
    return len(_ENGLISH_WORDS.findall(text)) > 0.12 * len(text.split())


def manual_pages(folder: Path) -> dict[str, list[str]]:
    """Paragraphs of translated manual pages by language, without their formatting.

    A paragraph that stands in the pages of two languages was translated in neither, and is left out.
    """
    text: dict[str, list[str]] = {}
    for path in sorted(folder.rglob("man[1-8]/*.gz")):
        language = path.relative_to(folder).parts[0]
        page = gzip.decompress(path.read_bytes()).decode("utf-8", "ignore")
        label = CATALOGUES.get(language, language)
        text.setdefault(label, []).extend(_paragraphs(page))
    distinct = {label: set(found) for label, found in text.items()}
    languages = Counter(piece for found in distinct.values() for piece in found)
    return {label: sorted(one for one in found if languages[one] == 1) for label, found in distinct.items()}


def _paragraphs(page: str) -> Iterator[str]:
    lines: list[str] = []
    for line in page.split("\n"):
        if line.startswith((".", "'")) or not line.strip():
            text = " ".join(lines)
            if len(text) > 120 and "  " not in text and sum(map(str.isalpha, text)) > 0.7 * len(text):
                yield text
            lines = []
        else:
            plain = (
                re.sub(r"\\f[BIRP]|\\f\(CW|\\&|\\,|\\/|\\[|^~]", "", line).replace("\\-", "-").replace("\\(aq", "'")
            )
            lines.append(re.sub(r"\\\(\w\w|\\\[\w+\]|\\", "", plain))


def fortunes(folder: Path) -> dict[str, list[str]]:
    """Fortune cookies by language."""
    text: dict[str, list[str]] = {}
    names = {"br": "pt", "brasil": "pt"}
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.suffix in (".dat", ".u8") or path.is_symlink():
            continue
        parts = path.relative_to(folder).parts
        label = parts[0] if len(parts) > 1 else "en"
        if "-sk" in path.name or (label == "en" and not path.with_name(f"{path.name}.u8").exists()):
            continue
        if path.name in ("chinese", "tang300", "song100", "ascii-art", "asciiart", "translate-me"):
            continue
        try:
            cookies = path.read_text(encoding="utf-8").split("\n%\n")
        except UnicodeError:
            continue
        text.setdefault(names.get(label, label), []).extend(one for one in cookies if len(one) > 60)
    return text
