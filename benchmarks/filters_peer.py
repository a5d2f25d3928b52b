"""datatrove's Gopher and FineWeb filters on the texts of a folder; run by `filters.py`."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from datatrove.data import Document
from datatrove.pipeline.filters import FineWebQualityFilter, GopherQualityFilter, GopherRepetitionFilter


def main(folder: Path) -> None:
    """Print as JSON, for each file of texts: megabytes in a CPU second, share dropped."""
    filters = [GopherRepetitionFilter(), GopherQualityFilter(), FineWebQualityFilter()]
    found = {}
    for path in sorted(folder.glob("*.json")):
        texts = json.loads(path.read_text())
        documents = [Document(text=text, id=str(i)) for i, text in enumerate(texts)]
        for one in filters:  # loads the tokenizer
            one.filter(Document(text="A first text of a few words.", id="warm"))
        start, dropped = time.process_time(), 0
        for document in documents:
            # All filters are run, so that what is measured does not depend on which drops first.
            verdicts = [one.filter(document) is not True for one in filters]
            dropped += any(verdicts)
        seconds = time.process_time() - start
        size = sum(len(text.encode()) for text in texts) / 1e6
        found[path.stem] = {"megabytes_per_second": size / seconds, "dropped": dropped / len(texts)}
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
