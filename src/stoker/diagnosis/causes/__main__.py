"""Prints `docs/diagnosis.md`: `python -m stoker.diagnosis.causes [THE PAGE AS IT IS] > page`.

What stands between the markers of the page as it is, is kept: the examination writes it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from stoker.diagnosis.causes.page import page

if __name__ == "__main__":
    before = Path(sys.argv[1]).read_text(encoding="utf-8") if len(sys.argv) > 1 else ""
    sys.stdout.write(page(before))
