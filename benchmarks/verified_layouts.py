"""Holds drawn layouts of the models in examples/verify against one process; writes the table of docs/numerics.md.

    .venv/bin/python benchmarks/verified_layouts.py --layouts 24 --ranks 8

Exits with 1 when any layout differs.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

from stoker.console import print_error, print_result, progress_for
from stoker.recipe.loading import load_recipe
from stoker.verification import Result, shrinking, subject_of, table, verify
from stoker.verification.drawing import draw, features

ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- verified layouts: make verify writes this -->", "<!-- end of verified layouts -->"


def main() -> None:
    """Run everything and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layouts", type=int, default=24, help="of each model")
    parser.add_argument("--ranks", type=int, default=8, help="most of a layout")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "numerics.md")
    parser.add_argument(
        "recipes", nargs="*", type=Path, default=sorted((ROOT / "examples" / "verify").glob("*.yaml"))
    )
    chosen = parser.parse_args()
    begun, results, rows = time.monotonic(), [], []
    for path in chosen.recipes:
        recipe = load_recipe(path).recipe
        subject = subject_of(recipe)
        layouts = draw(subject, chosen.layouts, chosen.ranks, chosen.seed)
        found = verify(
            shrinking.smaller(subject, layouts),
            layouts,
            steps=chosen.steps,
            precision=recipe.training.precision,
            progress=progress_for(False),
        )
        results += found
        rows += table.markdown_rows(subject.name.removeprefix("verify-"), found)
        print_result(f"{path.name}: {table.verdict(found)}")
        # After every model, so that an interruption loses one model's layouts and not all.
        text = table.markdown(table.MARKDOWN_HEADERS, rows) + "\n" + covered(results, time.monotonic() - begun)
        put(chosen.page, text)
    if not all(result.agrees for result in results):
        print_error("some layouts differ")
        sys.exit(1)


def covered(results: list[Result], seconds: float) -> str:
    """How often each pair of dimensions was among the layouts."""
    count = Counter(
        " × ".join(feature) for result in results for feature in features(result.layout) if len(feature) == 2
    )
    pairs = ", ".join(f"{name} {number}" for name, number in sorted(count.items()))
    return f"{len(results)} layouts in {seconds / 60:.0f} minutes. Layouts with both: {pairs}.\n"


def put(page: Path, text: str) -> None:
    """Replace what is between the marks of `page`."""
    before, mark, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    if not mark or END not in rest:
        sys.exit(f"{page} has no place for the table: expected {BEGIN} and {END}")
    page.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
