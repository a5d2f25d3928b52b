"""How answers from a ledger read in a terminal. Text of documents, names and positions are escaped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

from stoker.cli.documents_shown import in_a_cell, ledger_table
from stoker.cli.terminal_text import one_line, printable
from stoker.console import table
from stoker.plural import counted
from stoker.wording import percent, size

if TYPE_CHECKING:
    from stoker.data.feeding.as_recorded import Stretches
    from stoker.data.ledger.difference import Difference, Transition
    from stoker.data.ledger.falls import Fall
    from stoker.data.ledger.what_if import Change, WhatIf
    from stoker.data.showing import ShownStep

_GROUPS_SHOWN = 8


def step_text(
    step: ShownStep,
    mentions: str | None,
    recorded: str | None = None,
    given: Stretches | None = None,
    before: Mapping[str, float] | None = None,
) -> str:
    """The stretches of a step, sequence by sequence; `recorded` and `given` are the record's digest and samples.

    The mixture in force is told where it is another than the one told `before`.
    """
    mixed = ", ".join(f"{printable(name)} {number:,}" for name, number in step.sequences.items())
    lines = [
        f"step {step.step}: {counted(sum(step.sequences.values()), 'sequences')} ({mixed}), "
        f"{counted(step.tokens, 'tokens')}, digest {step.digest}{_against(step.digest, recorded)}"
    ]
    if mentions is not None:
        found = sum(len(sample.spans) for sample in step.samples)
        lines[0] += f", {counted(found, 'stretches')} with {printable(mentions)}"
    if given is not None:
        others = ", ".join(f"{first:,} to {after - 1:,}" for first, after in given)
        lines.append(f"the record says that it was given other sequences than the recipe's: {others}")
    if step.shares != before:
        force = ", ".join(f"{printable(name)} {percent(share)}" for name, share in step.shares.items() if share)
        lines.append(f"mixture in force: {force}")
    for sample in step.samples:
        for span in sample.spans:
            where = f"{span.file}, {span.position}" if span.file else f"document {span.document}"
            lines.append(
                f"\nsequence {sample.sample}  {printable(span.source)}  {printable(where)}  "
                f"tokens {span.start:,} to {span.stop:,} of {span.document_tokens:,}  epoch {span.epoch}\n"
                f"  {one_line(span.excerpt)}"
            )
    return "\n".join(lines)


def _against(digest: str, recorded: str | None) -> str:
    if recorded is None:
        return " (not in the record)"
    return " (the record's)" if recorded == digest else f"; the record has another: {recorded}"


def funnel_text(entries: Sequence[Mapping[str, Any]], warned: Sequence[str]) -> str:
    """The funnel as a table, and what falls on one group of text above all."""
    rows = [[e["source"], e["stage"], e.get("reason") or "", e["documents"], e["bytes"]] for e in entries]
    return table(["source", "stage", "reason", "documents", "bytes"], rows) + _warned(warned)


def import_text(manifest: Mapping[str, Any]) -> str:
    """What an imported corpus is, as a note behind an answer; empty for one that was prepared from text."""
    from stoker.data.imported import import_note

    note = import_note(manifest)
    return "" if note is None else f"\nnote: {printable(note)}\n"


def falls_text(cells: Sequence[Fall], by: str, warned: Sequence[str]) -> str:
    """Shares that every reason takes of every group."""
    if not cells:
        return "no document was dropped, and nothing was cut out of any\n"
    groups = list(dict.fromkeys(cell.group for cell in cells))
    reached = {name: max(cell.reached for cell in cells if cell.group == name) for name in groups}
    shown = sorted(groups, key=lambda name: -reached[name])[:_GROUPS_SHOWN]
    shown = [name for name in groups if name in shown]
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for cell in cells:
        mark = " !" if cell.far else ""
        share = f"{percent(cell.share)} ({cell.documents:,}){mark}" if cell.documents else "-"
        rows.setdefault((cell.stage, cell.reason), {})[cell.group] = share
    lines = [[*pair, *(own.get(name, "not asked") for name in shown)] for pair, own in rows.items()]
    text = table(["stage", "reason", *map(printable, shown)], lines)
    if len(shown) < len(groups):
        text += f"and {len(groups) - len(shown):,} more groups by {by}; --json has all\n"
    return text + _warned(warned)


def what_if_text(found: WhatIf, samples: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """What other thresholds would change, most of all first, and some of the documents."""
    lines = [
        f"{one.reason}: drops {one.measure} {one.drops} {one.after:.6g} instead of {one.before:.6g} "
        f"({', '.join(map(printable, one.sources))})"
        for one in found.moved
    ]
    for change, about_it in _CHANGES.items():
        documents, length, tokens = found.total(change)
        if documents:
            about = "" if change == "dropped" else "about "
            lines.append(f"{counted(documents, 'documents')} {about_it}: {size(length)}, {about}{tokens:,} tokens")
    if not found.changed:
        return "\n".join([*lines, "no document would meet another fate\n"])
    if found.total("passes")[0]:
        lines.append(f"what {_listed(found.later)} would say of those that pass cannot be told from here")
    if found.orphans:
        lines.append(
            f"{counted(found.orphans, 'documents')} dropped as copies of documents that would now be dropped: "
            "one of each would take its original's place"
        )
    headers = ["change", "source", "kind", "language", "reason", "new reason", "documents", "bytes", "tokens"]
    cells = [[in_a_cell(value) for value in astuple(one)] for one in found.changed]
    lines += ["", table(headers, cells)]
    for heading, rows in samples.items():
        lines += [f"{heading}:", ledger_table(rows)]
    return "\n".join(lines)


_CHANGES: dict[Change, str] = {
    "passes": "that were dropped would pass",
    "dropped": "of the corpus would be dropped",
    "other reason": "would be dropped for another reason",
    "dropped before": "would be dropped here and no more by a later stage",
}


def difference_text(found: Difference, samples: Sequence[Sequence[Mapping[str, Any]]]) -> str:
    """Both funnels, tokens, thresholds, and what became of the documents that met another fate."""
    stages = [
        [printable(one.source), one.stage, one.reason or "", one.before, one.after, _gained(one.before, one.after)]
        for one in found.funnel
        if one.before or one.after
    ]
    text = table(["source", "stage", "reason", "before", "after", "change"], stages) + "\n"
    tokens = [
        [printable(one.source), one.before, one.after, _gained(one.before, one.after)] for one in found.sources
    ]
    text += table(["source", "tokens before", "after", "change"], tokens) + "\n"
    if found.thresholds:
        moved = [[printable(o.source), o.reason, o.measure, o.before, o.after] for o in found.thresholds]
        text += table(["source", "reason", "measure", "threshold before", "after"], moved) + "\n"
    text += f"{counted(found.unchanged, 'documents')} the same in both"
    if found.changed_text:
        text += f", {counted(found.changed_text, 'documents')} with the same fate and another text"
    text += "\n"
    for what, those in (("came into training", _coming(found)), ("went out of training", _going(found))):
        if those:
            documents, length = sum(one.documents for one in those), sum(one.bytes for one in those)
            text += f"{counted(documents, 'documents')}, {size(length)}, {what}\n"
    for transition, rows in zip(found.transitions, samples, strict=True):
        to = "" if transition.to_source == transition.source else f" -> {printable(transition.to_source)}"
        text += (
            f"\n{printable(transition.source)}{to}: {transition.before} -> {transition.after}: "
            f"{counted(transition.documents, 'documents')}, {size(transition.bytes)}\n"
        )
        text += "".join(f"  {printable(row['identifier'])}\n" for row in rows)
    return text


def _coming(found: Difference) -> list[Transition]:
    return [one for one in found.transitions if one.after == "kept" != one.before]


def _going(found: Difference) -> list[Transition]:
    return [one for one in found.transitions if one.before == "kept" != one.after]


def _gained(before: int | None, after: int | None) -> str:
    change = (after or 0) - (before or 0)
    return f"{change:+,}" if change else ""


def _warned(warned: Sequence[str]) -> str:
    return "".join(f"\n! {printable(one)}\n" for one in warned)


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)
