"""What filters drop of text that machines write for machines, and of clean text beside it, in one run.

    python benchmarks/filters_machine.py --text FOLDER --roots FOLDER [FOLDER ...] [--half final]

Under the --roots lie files that programs wrote: `*_pb2.py`, `*.pb.h`, `*.min.js`, of packages and of the system;
every line that says so is taken out of them, since a head may be lost. Lock files, source with encoded bytes in it,
tables of numbers and mojibake are drawn from seeds. FOLDER of --text is as in `filters.py`, whose clean text is
judged too. Thresholds were set on the building half of documents and seeds.
"""
# ruff: noqa: E501 (entries of lock files)

from __future__ import annotations

import argparse
import base64
import codecs
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import filters
from stoker.data.cleaning import clean

PER_KIND = 150
_MOST_CHARACTERS = 400_000
_PACKAGES = (
    "serde",
    "left-pad",
    "tokio",
    "numpy",
    "react-dom",
    "lodash",
    "libc",
    "rand",
    "attrs",
    "click",
    "idna",
    "zstd",
)
_PAIRS = (("utf-8", "latin-1"), ("utf-8", "cp1252"), ("utf-8", "gb18030"), ("gb18030", "latin-1"), ("gb18030", "cp1252"),
          ("big5hkscs", "gb18030"), ("gb18030", "big5hkscs"), ("utf-8", "cp932"), ("gb18030", "cp949"), ("gb18030", "utf-8"),
          ("utf-8", "cp1251"), ("gb18030", "cp437"), ("gb18030", "koi8-r"))  # fmt: skip


def machine_files(roots: Sequence[Path], pattern: str, half: str) -> list[str]:
    """Files that programs wrote, without what says so; each content once."""
    found: dict[str, None] = {}
    for root in roots:
        for path in sorted(root.rglob(pattern)):
            text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
            lines = [line for line in text.split("\n") if not filters._SAYS_GENERATED.search(line[:400])]
            kept = clean("\n".join(lines), "code")
            if 300 < len(kept) < _MOST_CHARACTERS and filters.in_half(kept, half):
                found[kept] = None
    return list(found)


def lock_file(draw: Random, real: Sequence[str]) -> str:
    """As npm, yarn, cargo, poetry and go write them."""
    manner, entries = draw.randrange(5), []
    for _ in range(draw.randint(8, 200)):
        name, version = (
            draw.choice(_PACKAGES) + draw.choice(("", "-core", "-derive", "_types")),
            ".".join(str(draw.randrange(30)) for _ in range(3)),
        )
        digest, raw = f"{draw.getrandbits(256):064x}", base64.b64encode(draw.randbytes(64)).decode()
        entries.append(
            (
                f'    "node_modules/{name}": {{\n      "version": "{version}",\n      "resolved": "https://registry.npmjs.org/{name}/-/{name}-{version}.tgz",\n      "integrity": "sha512-{raw}"\n    }},',
                f'{name}@^{version}:\n  version "{version}"\n  resolved "https://registry.yarnpkg.com/{name}/-/{name}-{version}.tgz#{digest[:40]}"\n  integrity sha512-{raw}\n',
                f'[[package]]\nname = "{name}"\nversion = "{version}"\nsource = "registry+https://github.com/rust-lang/crates.io-index"\nchecksum = "{digest}"\n',
                f'[[package]]\nname = "{name}"\nversion = "{version}"\ndescription = "A package"\noptional = false\nfiles = [\n    {{file = "{name}-{version}.tar.gz", hash = "sha256:{digest}"}},\n]\n',
                f"github.com/{name}/{name} v{version} h1:{base64.b64encode(draw.randbytes(32)).decode()}",
            )[manner]
        )
    return "\n".join(entries) + "\n"


def code_with_bytes(draw: Random, real: Sequence[str]) -> str:
    """A program of which more than two fifths are encoded bytes, in lines as editors and tools cut them."""
    code = draw.choice([one for one in draw.choices(real, k=8) if len(one) > 400] or list(real))[:20_000]
    data = draw.randbytes(int(len(code) * draw.uniform(0.6, 2)))
    manner, width = draw.randrange(3), draw.choice((56, 64, 76))
    if manner == 0:
        text = base64.b64encode(data).decode()
        lines = [f'    "{text[at : at + width]}"' for at in range(0, len(text), width)]
    elif manner == 1:
        lines = ["    " + " ".join(f"{one}," for one in data[at : at + 16]) for at in range(0, len(data), 16)]
    else:
        text = "".join(f"\\x{one:02x}" for one in data)
        lines = [f'    "{text[at : at + 64]}"' for at in range(0, len(text), 64)]
    at = draw.choice([0, len(code), code.find("\n", len(code) // 2) + 1])
    return code[:at] + "\nDATA = (\n" + "\n".join(lines) + "\n)\n" + code[at:]


def table_of_numbers(draw: Random, real: Sequence[str]) -> str:
    """A table as pages and reports have it: a head of words, a word in each row, numbers."""
    names = [word for word in draw.choice(list(real)).split() if word.isalpha()][:8] or ["year"]
    between = draw.choice(("\t", " | ", ",", "  ", " "))
    columns = draw.randint(4, 12)
    rows = [between.join(draw.choice(names) for _ in range(columns))]
    for number in range(draw.randint(15, 200)):
        first = draw.choice(
            (f"{1900 + number}", f"{draw.randint(1, 28)}-{draw.randint(1, 12)}-2{number:03d}", draw.choice(names))
        )
        cells = [f"{draw.uniform(-1000, 1000):.{draw.randint(0, 3)}f}" for _ in range(columns - 1)]
        rows.append(between.join([first, *cells]))
    return "\n".join(rows)


def _can_be_written(text: str, encoding: str) -> bool:
    try:
        return bool(text.encode(encoding))
    except UnicodeEncodeError:
        return False


def mojibake(draw: Random, real: Sequence[str]) -> str:
    """Chinese whose bytes were read in another encoding, all of it or most lines; nothing where cleaning mends it."""
    text = filters.junk._passage(draw, real, draw.randint(80, 1500))
    right, wrong = draw.choice([pair for pair in _PAIRS if _can_be_written(text, pair[0])])
    share = draw.choice((1.0, 1.0, 0.6))
    lines = text.split("\n")
    read = "\n".join(
        line.encode(right, "ignore").decode(wrong, draw.choice(("replace", "ignore")))
        if draw.random() < share
        else line
        for line in lines
    )
    wanted, found = Counter(clean(text, "prose").split("\n")), Counter(clean(read, "prose").split("\n"))
    return read if (found - wanted).total() > 0.2 * found.total() else ""


def main() -> None:
    """Print what is dropped of each kind, and of clean text."""
    codecs.lookup("big5hkscs")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--roots", type=Path, nargs="+", required=True)
    parser.add_argument("--half", choices=tuple(filters.SEEDS), default="final")
    parser.add_argument("--missed", action="store_true", help="print what of misread Chinese is not dropped")
    given = parser.parse_args()
    groups = filters.clean_text(given.text, given.half)
    for group, sample in groups.items():
        reasons, _ = filters.outcomes(("stoker",), sample, sample.texts, everywhere=False)
        _print(f"clean {group}", len(sample.texts), reasons)
    for pattern in ("*_pb2.py", "*.pb.h", "*.min.js"):
        texts = machine_files(given.roots, pattern, given.half)
        _print(
            f"code: {pattern}",
            len(texts),
            filters.outcomes(("stoker",), groups["code"], texts, everywhere=False)[0],
        )
    drawn: tuple[tuple[str, str, Callable[[Random, Sequence[str]], str]], ...] = (
        ("code", "lock file", lock_file),
        ("code", "code with bytes in it", code_with_bytes),
        ("code", "table of numbers", table_of_numbers),
        ("prose en", "table of numbers", table_of_numbers),
        ("prose zh", "table of numbers", table_of_numbers),
        ("prose zh", "mojibake", mojibake),
    )
    for group, kind, draw_one in drawn:
        sample = groups[group]
        draws = [draw_one(Random(f"{kind} {filters.SEEDS[given.half] + n}"), sample.texts) for n in range(PER_KIND)]
        texts = [text for one in draws if (text := clean(one, sample.kind)).strip()]
        _print(f"{group}: {kind}", len(texts), filters.outcomes(("stoker",), sample, texts, everywhere=False)[0])
        if given.missed and kind == "mojibake":
            for text in texts:
                if filters.outcomes(("stoker",), sample, [text], everywhere=False)[0][None]:
                    print(*(f"  {line[:100]}" for line in text.split("\n") if not line.isascii()), sep="\n")


def _print(what: str, count: int, reasons: Counter[str | None]) -> None:
    told = ", ".join(f"{reason} {number}" for reason, number in reasons.most_common() if reason is not None)
    print(f"{what:34}{count:6}{1 - reasons[None] / max(1, count):9.2%}  {told}", flush=True)


if __name__ == "__main__":
    main()
