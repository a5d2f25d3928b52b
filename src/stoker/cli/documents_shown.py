"""How documents of a ledger read in a terminal. Their text, names and positions are escaped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stoker.cli.terminal_text import one_line, printable
from stoker.console import table
from stoker.plural import counted
from stoker.wording import words

if TYPE_CHECKING:
    from stoker.data.ledger.borderline import Borderline
    from stoker.data.ledger.description import Description
    from stoker.data.ledger.excerpts import Excerpt
    from stoker.data.ledger.history import History, Judgement, Original
    from stoker.data.side_by_side import Differences

_MEASURE = "measure."
_NO_TEXT = "no text"
_CUTS = ("host_furniture", "repeated_paragraphs", "repeated_lines", "repeated_substrings")


def ledger_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """One line for each row of a ledger."""
    headers = [
        "verdict",
        "reason",
        "source",
        "identifier",
        "file",
        "position",
        "bytes",
        "duplicate_of",
        "similarity",
    ]
    return table(headers, [[in_a_cell(row[name]) for name in headers] for row in rows])


def history_text(told: History, description: Description) -> str:
    """All that is known of one document: its fate and why, how it reads, and its measures beside the thresholds."""
    row = told.row
    where = {"fault": "could not be read", "dropped": "dropped"}.get(row["verdict"], row["verdict"])
    lines = [where + (f": {row['reason']} (at {row['stage']})" if row["reason"] else "")]
    lines += [f"  {told.meaning}"] if told.meaning else []
    lines += [f"  {_judged(told.judgement)}"] if told.judgement else []
    lines += [f"  {one_line(told.evidence)}"] if told.evidence else []
    lines += [f"  {one_line(row['detail'])}"] if row["detail"] else []
    lines += [f"  {_repeats(told.original)}"] if told.original else []
    lines += [f"  {row[cut]:,} characters cut: {words(cut)}" for cut in _CUTS if row.get(cut)]
    lines.append(
        f"  {printable(row['file'])}, {printable(row['position'])}  identifier {printable(row['identifier'])}"
    )
    if row["verdict"] == "fault":
        return "\n".join(lines)
    language = f", {row['language']}" if row["language"] else ""
    lines.append(
        f"  {printable(row['source'])}: {row['kind']}{language}; {counted(row['characters'], 'characters')}, "
        f"{counted(row['bytes'], 'bytes')}; sha256 {row['sha256']}"
    )
    if row["split"]:
        lines.append(f"  document {row['document']:,} of {row['split']}, {counted(row['tokens'], 'tokens')}")
    lines.append(f"\n  {one_line(told.excerpt.text or '') or f'[{told.excerpt.missing or _NO_TEXT}]'}\n")
    if told.differences is not None:
        lines.append(_differences_text(told.differences, "original" if told.original else "what is left"))
    elif told.not_compared is not None and told.excerpt.missing is None:
        lines.append(f"  it cannot be shown beside the other text: {printable(told.not_compared)}\n")
    return "\n".join(lines) + "\n" + _measures(row, description)


def _judged(judgement: Judgement) -> str:
    return (
        f"{judgement.measure} is {judgement.value:.4g}; dropped is what is {judgement.drops} "
        f"{judgement.threshold:.4g} ({judgement.source})"
    )


def _repeats(original: Original) -> str:
    alike = "identical" if original.similarity is None else f"Jaccard similarity {original.similarity:.3f}"
    fate = "" if original.fate is None else f", which is {words(original.fate)}"
    if original.fate not in (None, "kept", "held_out"):
        fate = f", which was itself dropped: {original.fate}"
    return f"repeats {printable(original.identifier)} of {printable(original.source)} ({alike}){fate}"


def _differences_text(found: Differences, other: str) -> str:
    """Both texts at the places where they differ, one under the other."""
    if not found.count:
        return "  the two differ only in case, width, spacing, punctuation or script, which do not count\n"
    width = len(other)
    lines = [f"  they differ in {counted(found.count, 'places')}:"]
    for place in found.places:
        before, behind = one_line(place.before), one_line(place.behind)
        lines.append(f"    {'this':<{width}}  {before} [{one_line(place.first)}] {behind}")
        lines.append(f"    {other}  {before} [{one_line(place.second)}] {behind}")
    if found.count > len(found.places):
        lines.append(f"    and {found.count - len(found.places):,} more")
    if not found.whole:
        lines.append("    (only the beginnings of these long texts were compared)")
    return "\n".join(lines) + "\n"


def trainings_text(documents: Sequence[tuple[str, Sequence[Mapping[str, int]]]]) -> str:
    """In which steps of a whole run each document is trained on."""
    rows = [
        [printable(name), one["step"], one["sample"], one["epoch"], f"{one['start']:,} to {one['stop']:,}"]
        for name, trained in documents
        for one in trained
    ]
    if not rows:
        return "no step trains on it"
    return table(["document", "step", "sequence", "epoch", "tokens"], rows)


def sample_text(
    rows: Sequence[Mapping[str, Any]], borders: Sequence[Borderline | None], excerpts: Sequence[Excerpt]
) -> str:
    """Documents with their distance from a threshold and how they begin."""
    lines = []
    for row, border, excerpt in zip(rows, borders, excerpts, strict=True):
        head = f"{row['verdict']}" + (f" {row['reason']}" if row["reason"] else "")
        if border is not None:
            head += f"  {border.measure} {border.value:.4g}, threshold {border.threshold:.4g}"
        if row["duplicate_of"]:
            head += f"  repeats {printable(row['duplicate_of'])} (similarity {row['similarity']:.3f})"
        head += "".join(f"  {row[cut]:,} characters cut: {words(cut)}" for cut in _CUTS if row.get(cut))
        language = f", {row['language']}" if row["language"] else ""
        text = f"[{excerpt.missing}]" if excerpt.text is None else excerpt.text or f"[{_NO_TEXT}]"
        told = f"  {one_line(row['detail'])}\n" if row["detail"] and row["verdict"] != "fault" else ""
        lines.append(
            f"{head}\n  {printable(row['source'])} ({row['kind']}{language})  {printable(row['file'])}, "
            f"{printable(row['position'])}  {row['bytes'] or 0:,} bytes\n{told}  {one_line(text)}\n"
        )
    return "\n".join(lines)


def _measures(row: Mapping[str, Any], description: Description) -> str:
    """The measures of a document beside the thresholds of its source; a mark where one is beyond."""
    rules: dict[str, list[str]] = {}
    for source, _, rule in description.rules():
        if source.name == row["source"] and rule.concerns(row["language"]):
            value = row.get(_MEASURE + rule.measure)
            sign = ">" if rule.drops == "above" else "<"
            mark = " !" if rule.rejects(value) else ""
            rules.setdefault(rule.measure, []).append(f"{rule.reason}: dropped {sign} {rule.threshold:.4g}{mark}")
    names = [name for name in description.measures if row.get(_MEASURE + name) is not None]
    if not names:
        return ""
    cells = [[name, float(row[_MEASURE + name]), "; ".join(rules.get(name, []))] for name in names]
    return table(["measure", "value", "thresholds"], cells)


def in_a_cell(value: object) -> object:
    """What stands in a cell of a table: text is escaped."""
    return printable(value) if isinstance(value, str) else value
