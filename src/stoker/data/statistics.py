"""What a prepared corpus holds, by source."""

from __future__ import annotations

from stoker.data.corpus import Corpus

_COLUMNS = ("source", "kind", "documents", "megabytes", "tokens", "bytes/token", "held out")


def corpus_table(corpus: Corpus) -> str:
    """One line a source: training documents, their size in 10^6 bytes, tokens, and held-out documents."""
    rows: list[tuple[str, ...]] = [_COLUMNS]
    for source in corpus.manifest["sources"]:
        train, held_out = source["splits"]["train"], source["splits"]["held_out"]
        ratio = f"{train['bytes'] / train['tokens']:.2f}" if train["tokens"] else "–"
        rows.append(
            (
                source["name"],
                source["kind"],
                f"{train['documents']:,}",
                f"{train['bytes'] / 1e6:,.2f}",
                f"{train['tokens']:,}",
                ratio,
                f"{held_out['documents']:,}",
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    lines = [
        "  ".join(
            cell.ljust(width) if column < 2 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    return "\n".join([*lines, "", f"corpus: {corpus.folder}"])
