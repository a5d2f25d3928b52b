"""What preparation drops and masks of text that no rule was made with: what a Debian machine has on its disk.

    python benchmarks/unseen_text.py --manuals FOLDER [--half final] [--most 400] [--show FOLDER]

Manual pages (English, Chinese), changelogs, READMEs, licences, message catalogues in Chinese, docstrings with
formulae, source in some fifteen languages; under --manuals unpacked Chinese packages of documentation
(gimp-help-zh-cn, debian-faq-zh-cn, maint-guide-zh-cn, debian-reference-zh-cn). All operators of the default recipe
are asked. Documents are halved by content: `building` was looked at, verdict by verdict. With --show, each class
writes what was dropped, and up to 100 that were kept, into a file.
"""

from __future__ import annotations

import argparse
import ast
import gettext
import gzip
import re
import subprocess
import sys
import sysconfig
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from filters import in_half
from stoker.data.document import Document
from stoker.data.extraction import extract_text
from stoker.data.operators.chain import judge, operators_of
from stoker.recipe import Cleaning, Kind, Source

_SHARE = Path("/usr/share")
_CODES = "js php pl pm css cmake f90 sql tcl sh go c cpp pyx scm rs ts rb lua el m4 awk vim cu"
_CODE = tuple(_CODES.split())
_LIBRARIES = (Path("/usr/lib"), _SHARE, Path(sys.base_prefix).resolve(), Path.home() / ".rustup")
_MESSAGES_TO_A_DOCUMENT = 20


@dataclass(frozen=True)
class Class:
    """Text of one sort: how its source would be named in a recipe, and where it is found."""

    kind: Kind
    language: str | None
    texts: Callable[[int], Iterator[str]]


def _read(path: Path) -> str:
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return raw.decode("utf-8")


def _files(paths: Iterable[Path], most: int) -> Iterator[str]:
    """Files that are UTF-8, drawn, each content once."""
    drawn = sorted({path for path in paths if path.is_file() and not path.is_symlink()})
    Random(0).shuffle(drawn)
    seen: set[str] = set()
    for path in drawn:
        try:
            text = _read(path)
        except (UnicodeDecodeError, OSError, EOFError):
            continue
        if 0 < len(text) < 1 << 20 and text not in seen:
            seen.add(text)
            yield text
        if len(seen) >= most:
            return


def _manual_pages(folders: list[str], most: int) -> Iterator[str]:
    """As a reader sees them."""
    roots = [_SHARE / "man" / folder for folder in folders]
    for source in _files((path for root in roots for path in root.rglob("*.gz")), most):
        if source.startswith(".so "):
            continue
        options = ["groff", "-k", "-man", "-t", "-Tutf8", "-P-c"]
        drawn = subprocess.run(options, input=source.encode(), capture_output=True, check=False)
        plain = subprocess.run(["col", "-bx"], input=drawn.stdout, capture_output=True, check=False)
        yield plain.stdout.decode("utf-8", "replace")


def _messages(language: str, most: int) -> Iterator[str]:
    """Translated messages of catalogues, twenty to a document."""
    count = 0
    for path in sorted((_SHARE / "locale" / language).rglob("*.mo")):
        with path.open("rb") as stream:
            catalogue = gettext.GNUTranslations(stream)._catalog  # type: ignore[attr-defined]
        own = [text for source, text in catalogue.items() if source and isinstance(text, str) and len(text) > 12]
        for first in range(0, len(own), _MESSAGES_TO_A_DOCUMENT):
            yield "\n".join(own[first : first + _MESSAGES_TO_A_DOCUMENT])
            count += 1
            if count >= 4 * most or first >= 30 * _MESSAGES_TO_A_DOCUMENT:
                break


def _formulae(most: int) -> Iterator[str]:
    """Docstrings of installed packages in which formulae stand."""
    found: list[str] = []
    packages = Path(sysconfig.get_path("purelib"))
    for name in ("scipy", "sympy", "mpmath", "networkx", "torch", "numpy"):
        for path in sorted((packages / name).rglob("*.py")):
            source = path.read_text(encoding="utf-8", errors="ignore")
            if ":math:" in source or ".. math::" in source or "\\frac" in source:
                for node in ast.walk(ast.parse(source)):
                    if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
                        text = ast.get_docstring(node) or ""
                        if "math:" in text or "\\frac" in text:
                            found.append(text)
    Random(0).shuffle(found)
    yield from found[:most]


def _pages(folder: Path, most: int) -> Iterator[str]:
    """Main text of the pages of manuals."""
    for page in _files(folder.rglob("*.html"), most):
        yield extract_text(page)


def classes(manuals: Path | None) -> dict[str, Class]:
    """Every sort of text, by name."""
    documents = _SHARE / "doc"

    def named(pattern: str, root: Path = documents) -> Callable[[int], Iterator[str]]:
        return lambda most: _files(root.rglob(pattern), most)

    english = ["man1", "man2", "man4", "man5", "man6", "man7", "man8", "man3"]
    found = {
        "manual pages en": Class("prose", "en", lambda most: _manual_pages(english, most)),
        "manual pages zh": Class("prose", "zh", lambda most: _manual_pages(["zh_CN", "zh_TW"], most)),
        "changelogs": Class("prose", "en", named("changelog*")),
        "READMEs": Class("prose", "en", named("README*")),
        "licences": Class("prose", "en", named("copyright")),
        "NEWS": Class("prose", "en", named("NEWS*")),
        "Markdown, reST": Class("prose", "en", lambda most: _files(_documents(), most)),
        "messages zh_CN": Class("prose", "zh", lambda most: _messages("zh_CN", most)),
        "messages zh_TW": Class("prose", "zh", lambda most: _messages("zh_TW", most)),
        "formulae": Class("mathematics", "en", _formulae),
    }
    if manuals is not None:
        found["manuals zh"] = Class("prose", "zh", lambda most: _pages(manuals, most))
    for ending in _CODE:
        found[f"code {ending}"] = Class("code", None, lambda most, ending=ending: _files(_source(ending), most))
    return found


def _documents() -> Iterator[Path]:
    for root in _LIBRARIES:
        for ending in ("md", "rst"):
            yield from root.rglob(f"*.{ending}")


def _source(ending: str) -> Iterator[Path]:
    for root in _LIBRARIES:
        for path in root.rglob(f"*.{ending}"):
            if not path.name.endswith((".min.js", ".min.css")) and "site-packages" not in path.parts:
                yield path


def main() -> None:
    """Print what is dropped and masked of each class, and why."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--manuals", type=Path)
    arguments.add_argument("--half", choices=("building", "final"), default="final")
    arguments.add_argument("--most", type=int, default=400)
    arguments.add_argument("--only", default="")
    arguments.add_argument("--show", type=Path)
    given = arguments.parse_args()
    for name, one in classes(given.manuals).items():
        if not re.search(given.only, name):
            continue
        source = Source(name="s", kind=one.kind, language=one.language, paths=("x",))
        operators = operators_of(source, Cleaning())
        reasons: Counter[str] = Counter()
        masked: Counter[str] = Counter()
        shown: dict[bool, list[str]] = {True: [], False: []}
        for text in one.texts(given.most):
            if not in_half(text, given.half):
                continue
            judged = judge(Document("s", one.kind, one.language, "", "f", "file", text), operators)
            reasons[judged.reason or ""] += 1
            masked.update({k: int(v) for k, v in judged.measures.items() if k.startswith("personal_data.") and v})
            measured = {key: round(value, 4) for key, value in judged.measures.items()}
            shown[judged.reason is None].append(f"##### {judged.reason} {measured}\n{text[:1500]}\n")
        total = sum(reasons.values())
        why = ", ".join(f"{reason} {count}" for reason, count in reasons.most_common() if reason)
        what = ", ".join(f"{kind.split('.')[1]} {count}" for kind, count in masked.items())
        print(
            f"{name:<18}{total:>6}{(total - reasons['']) / max(1, total):>9.2%}  {why or '-'}; {what or '-'}",
            flush=True,
        )
        if given.show is not None and total:
            given.show.mkdir(parents=True, exist_ok=True)
            picked = shown[False] + shown[True][:100]
            (given.show / f"{name.replace(' ', '-').replace(',', '')}.txt").write_text("\n".join(picked))


if __name__ == "__main__":
    main()
