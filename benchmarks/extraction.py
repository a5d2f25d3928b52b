"""What extractors make of web pages: F1 against gold text, code and formulae kept, pages for each CPU second.

    python benchmarks/extraction.py --text FOLDER --manuals FOLDER [--half judging] [--each 20]

--text holds `rust-rfcs.jsonl.gz`, `oi-wiki-md.jsonl.gz`, `pingcap-docs-cn.jsonl.gz` and `d2l-zh.jsonl.gz` with
Markdown in the field `text`; --manuals the unpacked packages of `extraction_text.MANUALS`. Other extractors are
measured where they can be imported: trafilatura, resiliparse, readability-lxml, jusText. All in one run.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import extraction_text as sources
from extraction_text import Case, tokens

Extractor = Callable[[str], str]


def extractors() -> dict[str, Extractor]:
    """Every extractor that can be imported."""
    from stoker.data.extraction import extract_text

    found: dict[str, Extractor] = {"stoker": extract_text}
    if find_spec("trafilatura"):
        from trafilatura import extract

        found["trafilatura"] = lambda page: extract(page, include_comments=False) or ""
        found["trafilatura recall"] = lambda page: extract(page, include_comments=False, favor_recall=True) or ""
    if find_spec("resiliparse"):
        from resiliparse.extract.html2text import extract_plain_text

        found["resiliparse"] = lambda page: extract_plain_text(page, main_content=True, alt_texts=False)
    if find_spec("readability"):
        import lxml.html
        from readability import Document

        found["readability-lxml"] = lambda page: lxml.html.fromstring(Document(page).summary()).text_content()
    if find_spec("justext"):
        import justext

        words = justext.get_stoplist("English")

        def by_justext(page: str) -> str:
            if 'lang="zh' in page[:300]:  # it has no list of Chinese words; its authors' settings for that case
                made = justext.justext(page, frozenset(), stopwords_low=0, stopwords_high=0)
            else:
                made = justext.justext(page, words)
            return "\n\n".join(paragraph.text for paragraph in made if not paragraph.is_boilerplate)

        found["jusText"] = by_justext
    return found


def f1(gold: str, text: str) -> float:
    """Of the tokens as a multiset."""
    wanted, found = Counter(tokens(gold)), Counter(tokens(text))
    shared = sum((wanted & found).values())
    return 2 * shared / max(1, wanted.total() + found.total())


def kept(wanted: tuple[str, ...], text: str, exact: bool) -> int:
    """How many of these are in a text, with the lines and blanks they have (`exact`) or without any blanks."""
    if not exact:
        text = "".join(text.split())
        return sum("".join(one.split()) in text for one in wanted)
    return sum(_lines(one) in text for one in wanted)


def _lines(code: str) -> str:
    return code.replace("\r\n", "\n").strip("\n").rstrip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path)
    parser.add_argument("--manuals", type=Path)
    parser.add_argument("--half", choices=("building", "judging"), default="judging")
    parser.add_argument("--each", type=int, default=20, help="pages of each layout and manual")
    parser.add_argument("--only", help="one extractor")
    parser.add_argument("--worst", type=int, default=0, help="print this many of the worst cases of ours")
    given = parser.parse_args()
    cases: dict[str, list[Case]] = {}
    if given.text:
        cases["layouts"] = list(sources.drawn(given.text, given.half, given.each))
    if given.manuals:
        cases["manuals"] = list(sources.of_manuals(given.manuals, given.half, given.each))
    for group, judged in cases.items():
        size = sum(len(case.page) for case in judged) / len(judged) / 1000
        print(f"\n{group} ({given.half}): {len(judged)} pages of {size:.0f} thousand characters on average")
        heads = f"{'F1':>6} {'median':>6} {'<0.8':>5} {'code':>6} {'formulae':>8} {'pages/CPU s':>11}"
        print(f"{'extractor':20} {heads}  by kind")
        for name, extract in extractors().items():
            if given.only in (None, name):
                _judge(name, extract, judged, given.worst)


def _judge(name: str, extract: Extractor, cases: list[Case], worst: int) -> None:
    extract(cases[0].page)
    texts, failed = [], 0
    began = time.process_time()
    for case in cases:
        try:
            texts.append(extract(case.page))
        except Exception:  # other extractors may raise for what they find nothing in
            texts.append("")
            failed += 1
    seconds = time.process_time() - began
    scores = [f1(case.gold, text) for case, text in zip(cases, texts, strict=True)]
    by_kind = defaultdict(list)
    for case, score in zip(cases, scores, strict=True):
        by_kind[case.kind].append(score)
    codes = sum(len(case.codes) for case in cases)
    formulae = sum(len(case.formulae) for case in cases)
    pairs = list(zip(cases, texts, strict=True))
    code = sum(kept(case.codes, text, exact=True) for case, text in pairs) / max(1, codes)
    tex = sum(kept(case.formulae, text, exact=False) for case, text in pairs) / max(1, formulae)
    middle = statistics.median(scores)
    kinds = " ".join(f"{kind} {statistics.mean(own):.3f}" for kind, own in by_kind.items())
    low = sum(score < 0.8 for score in scores)
    print(
        f"{name:20} {statistics.mean(scores):6.3f} {middle:6.3f} {low:5d} {code:6.1%} {tex:8.1%} "
        f"{len(cases) / seconds:11.1f}  {kinds}" + (f" ({failed} raised)" if failed else ""),
        flush=True,
    )
    for at in sorted(range(len(cases)), key=scores.__getitem__)[:worst]:
        wanted, found = Counter(tokens(cases[at].gold)), Counter(tokens(texts[at]))
        lacks, excess = wanted - found, found - wanted
        said = (
            f"lacks {lacks.total()} {lacks.most_common(8)}, has too many {excess.total()} {excess.most_common(8)}"
        )
        print(f"  {scores[at]:.3f} {cases[at].kind} #{at}: {said}", file=sys.stderr)


if __name__ == "__main__":
    main()
