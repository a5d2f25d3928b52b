"""What layouts send beyond the least they could, and how large pipeline bubbles are.

    .venv/bin/python benchmarks/parallel.py traffic
    .venv/bin/python benchmarks/parallel.py pipeline

Real ranks over gloo on this machine. Bytes are counted and do not depend on the machine; times do.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import parallel_pipeline
import parallel_traffic
from parallel_traffic import DENSE_LAYOUTS, EVEN, SPARSE, SPARSE_LAYOUTS, SPARSE_UNEVEN, UNEVEN

_TRAFFIC = ["layout", "calls", "sent, MB", "least, MB", "ratio", "ratio, uneven sizes", "repeated rows"]
_PIPELINE = [
    "schedule",
    "ranks",
    "micro-batches",
    "bubble, equal times",
    "equal stages",
    "replayed",
    "as it went",
    "makespan over replayed",
]


def markdown(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table for docs/benchmarks.md."""
    lines = [headers, ["---", *["---:"] * (len(headers) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    """Print the tables that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", choices=["traffic", "pipeline"], default=["traffic", "pipeline"])
    wanted = parser.parse_args().what
    if "traffic" in wanted:
        cases = [(EVEN, UNEVEN, DENSE_LAYOUTS), (SPARSE, SPARSE_UNEVEN, SPARSE_LAYOUTS)]
        print(markdown(_TRAFFIC, parallel_traffic.rows(cases)))
    if "pipeline" in wanted:
        print(markdown(_PIPELINE, parallel_pipeline.rows()))


if __name__ == "__main__":
    main()
