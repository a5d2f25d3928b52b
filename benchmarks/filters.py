"""What filters drop of clean text and of planted junk, kind by kind, and how fast, in one run.

    python benchmarks/filters.py --text FOLDER [--peer PYTHON] [--half final]

FOLDER holds `*.jsonl.gz` with fields `kind`, `language` and `text`. Code is the standard library, packages and the
headers of the system. Thresholds were set on the building half (documents and seeds); `final`, the default,
is the other. Published sets are applied to every kind, as the pipelines that use them do. PYTHON is an interpreter
in which datatrove is installed; its Gopher and FineWeb filters are run on the same text in a process of their own.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import subprocess
import sys
import sysconfig
import tempfile
import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import filters_junk as junk
from stoker.data.cleaning import clean
from stoker.data.document import Document
from stoker.data.filters.text import Text
from stoker.data.operators.filtering import Filter
from stoker.data.personal_data import PLACEHOLDERS, mask
from stoker.data.unsafe import UNSAFE, unsafe_density
from stoker.recipe import Cleaning, Kind, Source

SETS = {
    "stoker": ("stoker",),
    "gopher": ("gopher",),
    "c4": ("c4",),
    "fineweb": ("gopher", "c4", "fineweb"),
    "chinesewebtext": ("chinesewebtext",),
    "fineweb2_chinese": ("fineweb2_chinese",),
}
SEEDS = {"building": 0, "final": 10_000}
_SAYS_GENERATED = re.compile(r"(?i)do not edit|auto[a-z-]*[ -]generated|generated (?:by|from)")
PER_KIND = 200
"""Junk documents drawn of each kind."""


@dataclass(frozen=True)
class Sample:
    """Clean texts of one group."""

    kind: Kind
    language: str | None
    texts: list[str]

    @property
    def megabytes(self) -> float:
        """In UTF-8."""
        return sum(len(text.encode()) for text in self.texts) / 1e6


def in_half(text: str, half: str) -> bool:
    """Whether a document belongs to a half, by its content."""
    return zlib.crc32(text.encode()) % 2 == (half == "final")


def clean_text(folder: Path, half: str) -> dict[str, Sample]:
    """Clean documents by group: English and Chinese prose, verse, mathematics and code."""
    groups: dict[str, Sample] = {}
    for path in sorted(folder.glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as stream:
            rows = [json.loads(line) for line in stream]
        kind, language = rows[0]["kind"], rows[0]["language"]
        verse = "poetry" in path.name or "shakespeare" in path.name
        name = f"{'verse' if verse else kind} {language}" if kind == "prose" else kind
        sample = groups.setdefault(name, Sample(kind, language, []))
        sample.texts.extend(
            text for row in rows if in_half(row["text"], half) and (text := clean(row["text"], kind))
        )
    code = [text for text in _code() if in_half(text, half)]
    groups["code"] = Sample("code", None, [text for text in code if not _SAYS_GENERATED.search(text[:1500])])
    print(f"{len(code) - len(groups['code'].texts)} of {len(code)} files say that they are generated; left out\n")
    return groups


def _code() -> list[str]:
    roots = [Path(sysconfig.get_path("stdlib")), Path("/usr/include")]
    paths = [path for root in roots for ending in ("py", "h") for path in sorted(root.rglob(f"*.{ending}"))]
    texts = []
    for path in Random(0).sample(paths, min(len(paths), 6000)):
        try:
            text = path.read_text(encoding="utf-8")
        except (UnicodeDecodeError, OSError):
            continue
        if 0 < len(text) < 1 << 20 and "test" not in path.parts:
            texts.append(clean(text, "code"))
    return texts


def outcomes(
    rules: Sequence[str], sample: Sample, texts: list[str], everywhere: bool
) -> tuple[Counter[str | None], float]:
    """(documents by the reason they were dropped for, CPU seconds)."""
    kind: Kind = "prose" if everywhere else sample.kind
    source = Source(name="s", kind=kind, language=sample.language, paths=("x",))
    one = Filter.of(source, Cleaning(rules=tuple(rules)))
    documents = [Document("s", kind, sample.language, str(i), "f", "file", text) for i, text in enumerate(texts)]
    one(documents[0])
    start = time.process_time()
    reasons = Counter(one(document).reason for document in documents)
    return reasons, time.process_time() - start


def clean_table(groups: dict[str, Sample]) -> None:
    """Share of clean text dropped by each set, and the reasons of our own."""
    print(f"{'clean text':<14}{'documents':>10}{'MB':>7}" + "".join(f"{name:>18}" for name in SETS))
    reasons_of: dict[str, Counter[str | None]] = {}
    for group, sample in groups.items():
        cells = []
        for name, rules in SETS.items():
            reasons, _ = outcomes(rules, sample, sample.texts, everywhere=name != "stoker")
            cells.append(f"{1 - reasons[None] / len(sample.texts):18.2%}")
            if name == "stoker":
                reasons_of[group] = reasons
        print(f"{group:<14}{len(sample.texts):>10}{sample.megabytes:>7.1f}" + "".join(cells))
    for group, reasons in reasons_of.items():
        told = ", ".join(f"{reason} {count}" for reason, count in reasons.most_common() if reason is not None)
        print(f"  {group}: {told or 'nothing dropped'}")


def junk_table(groups: dict[str, Sample], half: str) -> None:
    """Share of planted junk that each set drops (or cleaning repairs)."""
    plants = {"prose en": junk.PROSE, "prose zh": junk.CHINESE, "code": junk.CODE, "mathematics": junk.MATHEMATICS}
    print(f"\n{'planted junk':<32}{'documents':>10}" + "".join(f"{name:>18}" for name in SETS))
    totals: dict[str, list[float]] = defaultdict(list)
    for group, kinds in plants.items():
        sample = groups[group]
        for kind, draw_one in kinds.items():
            drawn = [draw_one(Random(f"{kind} {SEEDS[half] + i}"), sample.texts) for i in range(PER_KIND)]
            texts = [text for one in drawn if (text := clean(one, sample.kind)).strip()]
            if kind == "mojibake":
                texts = [text for text in texts if not any(text[:40] in real for real in sample.texts)]
            cells = []
            for name, rules in SETS.items():
                reasons, _ = outcomes(rules, sample, texts, everywhere=name != "stoker")
                share = 1 - reasons[None] / len(texts)
                totals[name].append(share)
                cells.append(f"{share:18.1%}")
            print(f"{group + ': ' + kind:<32}{len(texts):>10}" + "".join(cells))
    print(f"{'mean over kinds of junk':<42}" + "".join(f"{sum(v) / len(v):18.1%}" for v in totals.values()))


def speed_table(groups: dict[str, Sample], peer: str | None) -> None:
    """Megabytes in a CPU second: filters, personal data, unsafe content; datatrove's filters on the same text."""
    print(f"\n{'MB per CPU second':<22}" + "".join(f"{group:>14}" for group in groups))
    kinds = frozenset(PLACEHOLDERS)
    operations: dict[str, Callable[[Sample], float]] = {
        f"rules {name}": lambda sample, rules=rules: outcomes(rules, sample, sample.texts, rules != ("stoker",))[1]
        for name, rules in SETS.items()
    }
    operations["personal data"] = lambda sample: _seconds(lambda text: mask(text, kinds), sample.texts)
    operations["unsafe"] = lambda sample: _seconds(lambda text: unsafe_density(Text(text, "prose")), sample.texts)
    for name, run in operations.items():
        print(f"{name:<22}" + "".join(f"{sample.megabytes / run(sample):14.1f}" for sample in groups.values()))
    if peer is not None:
        found = _of_peer(peer, groups)
        print(f"{'datatrove':<22}" + "".join(f"{found[group]['megabytes_per_second']:14.2f}" for group in groups))
        print(f"{'  drops of it':<22}" + "".join(f"{found[group]['dropped']:14.2%}" for group in groups))


def _seconds(function: Callable[[str], object], texts: list[str]) -> float:
    function(texts[0])
    start = time.process_time()
    for text in texts:
        function(text)
    return time.process_time() - start


def _of_peer(peer: str, groups: dict[str, Sample]) -> dict[str, dict[str, float]]:
    """datatrove on at most 2 MB of each group."""
    with tempfile.TemporaryDirectory() as folder:
        for group, sample in groups.items():
            texts, size = [], 0
            for text in sample.texts:
                size += len(text.encode())
                texts.append(text)
                if size > 2e6:
                    break
            (Path(folder) / f"{group}.json").write_text(json.dumps(texts))
        script = Path(__file__).with_name("filters_peer.py")
        result = subprocess.run([peer, str(script), folder], capture_output=True, text=True, check=True)
        return json.loads(result.stdout.splitlines()[-1])


def false_alarms(groups: dict[str, Sample]) -> None:
    """What is masked in clean text, and how much of it is beyond the threshold of unsafe content."""
    print("\nmasked in clean text, and documents beyond the threshold of unsafe content")
    for group, sample in groups.items():
        counts: Counter[str] = Counter()
        for text in sample.texts:
            counts.update(mask(text, frozenset(PLACEHOLDERS))[1])
        unsafe = sum(unsafe_density(Text(text, "prose")) > UNSAFE.threshold for text in sample.texts)
        told = ", ".join(f"{kind} {count}" for kind, count in counts.items() if count)
        print(f"  {group}: {told or 'nothing'}; unsafe {unsafe} of {len(sample.texts)}")


def main() -> None:
    """Print the tables."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--text", type=Path, required=True)
    arguments.add_argument("--peer")
    arguments.add_argument("--half", choices=tuple(SEEDS), default="final")
    given = arguments.parse_args()
    groups = clean_text(given.text, given.half)
    clean_table(groups)
    junk_table(groups, given.half)
    false_alarms(groups)
    speed_table(groups, given.peer)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
