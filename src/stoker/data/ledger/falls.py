"""On what text each filter falls: whether one kind, language or class of text loses more to it than the rest.

A filter that is fair takes about the same share of every kind. One that takes far more of code, of formulae or of
Chinese than of everything else is either right about that text or, more often, measures what is normal there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import exp, log, sqrt
from statistics import NormalDist
from typing import Any, Literal

import polars as pl

from stoker.data.ledger.asked import is_asked
from stoker.data.ledger.description import Description
from stoker.data.ledger.schema import CUTS, DUPLICATES, READING, SELECTION

Grouping = Literal["kind", "language", "content"]
_GROUPINGS: tuple[Grouping, ...] = ("kind", "language", "content")
CONTENT = {"cjk": "Chinese, Japanese or Korean", "formula": "formulae", "code": "code"}
"""Classes of text that a document may belong to, more than one at once, by the characters it holds."""
NEITHER = "none of these"
"""What is left is no class of its own: to lose more of it is no reason for a warning."""
UNKNOWN = "unknown"

FAR = 2.0
"""A group loses far more when its loss is surely more than this many times that of the others."""
_DOUBT = 0.01
"""Chance that a table in which nothing is far has a warning all the same (Bonferroni over its cells)."""
_FEWEST = 5
"""Fewer documents are no reason for a warning."""
CUT_INSIDE = "cut inside"
"""In place of a stage: what is cut out of documents that stay, or masked in them."""
_NO_JUDGEMENT = (
    "in_earlier_corpus",
    "repeated_passages",
    "repeated_paragraphs",
    "repeated_lines",
    "repeated_substrings",
    *DUPLICATES,
)
"""Reasons that do not depend on what text looks like: some kinds of text are repeated more often than others."""
_BEFORE_ANY_JUDGEMENT = (READING, "clean")
"""Stages behind which what is `empty` was so before; what others emptied by their cuts, they judged."""


@dataclass(frozen=True, slots=True)
class Fall:
    """What one reason took of one group of text."""

    stage: str
    reason: str
    group: str
    documents: int
    """Removed, or those in which something was cut."""
    reached: int
    """Documents of the group that came so far."""
    bytes: int
    """Of these documents, as they were read."""
    others_documents: int
    """Removed of all other groups that are asked the same."""
    others_reached: int
    at_least: float | None
    """The share that the group loses is at least this many times the others'; None where there are no others."""
    far: bool
    """Whether `at_least` is `FAR` or more and the documents are not too few to say so."""

    @property
    def share(self) -> float:
        """Of the group's documents that came so far."""
        return self.documents / self.reached if self.reached else 0.0

    @property
    def others_share(self) -> float:
        """Of the others'."""
        return self.others_documents / self.others_reached if self.others_reached else 0.0

    def as_json(self) -> dict[str, Any]:
        """As a plain dictionary, with both shares."""
        return asdict(self) | {"share": self.share, "others_share": self.others_share}


def falls(summary: pl.DataFrame, description: Description, by: Grouping) -> list[Fall]:
    """What every reason took of every group, in the order of the funnel; groups in order of their documents.

    Shares are of documents. The bound on how many times more a group loses is that of a ratio of two shares (the
    logarithm's standard error; Katz et al. 1978), with half a document added to every count.
    """
    frame = _grouped(summary.filter(pl.col("verdict") != "fault"), by)
    order = {stage: place for place, stage in enumerate((READING, *description.stages, SELECTION))}
    dropped = frame.filter(pl.col("verdict") == "dropped").select("stage", "reason").unique()
    pairs = sorted(dropped.iter_rows(), key=lambda pair: (order.get(pair[0], len(order)), pair[1]))
    asked = _asked(description)
    place = pl.col("stage").replace_strict(order, default=len(order), return_dtype=pl.Int64).fill_null(len(order))
    cells: list[Fall] = []
    for stage, reason in pairs:
        reached = frame.filter(
            place >= order.get(stage, len(order))
        )  # a document that stays has no stage: the last
        if reason in asked:
            reached = reached.filter(asked[reason])
        cells += _cells(reached, stage, reason, by)
    comparisons = sum(cell.at_least is not None for cell in cells)
    return cells if not comparisons else [_judged(cell, comparisons) for cell in cells]


def cut_falls(cuts: pl.DataFrame, by: Grouping) -> list[Fall]:
    """In what share of every group that stays each cut was made, as `falls` has it of what was removed.

    What is repeated, and furniture of hosts, is looked for in some sources only: those in which none was found do
    not count among the others.
    """
    frame = _grouped(cuts, by)
    cells: list[Fall] = []
    for cut in frame["cut"].unique(maintain_order=True).to_list():
        own = frame.filter(pl.col("cut") == cut)
        if cut in CUTS:
            own = own.filter(pl.col("documents").sum().over("source") > 0)
        everything, everywhere = int(own["documents"].sum()), int(own["asked"].sum())
        if not everything:
            continue
        for name, group in _groups(own, by).items():
            documents, asked = int(group["documents"].sum()), int(group["asked"].sum())
            if asked:
                others = everything - documents, everywhere - asked
                bound = 0.0 if others[1] else None
                size = int(group["bytes"].sum())
                cells.append(Fall(CUT_INSIDE, cut, name, documents, asked, size, *others, bound, far=False))
    comparisons = sum(cell.at_least is not None for cell in cells)
    return cells if not comparisons else [_judged(cell, comparisons) for cell in cells]


def warnings(cells: Sequence[Fall]) -> list[str]:
    """A sentence for each group that loses far more than the others."""
    return [_warning(cell) for cell in cells if cell.far]


def _warning(cell: Fall) -> str:
    sure = f"({cell.documents:,} documents; surely over {cell.at_least:,.1f} times the others' share)"
    if cell.stage == CUT_INSIDE:
        return (
            f"`{cell.reason}` cuts something out of {cell.share:.1%} of the documents in {cell.group} that stay "
            f"and {cell.others_share:.2%} of the others {sure}"
        )
    return (
        f"`{cell.reason}` ({cell.stage}) takes {cell.share:.1%} of the documents in {cell.group} that reach it and "
        f"{cell.others_share:.2%} of the others {sure}: `stoker data sample … {cell.reason}` shows whether they "
        "deserve it"
    )


def all_falls(
    summary: pl.DataFrame, description: Description, cuts: pl.DataFrame | None, by: Grouping
) -> list[Fall]:
    """What was removed, and then what was cut out of the rest, where a ledger says so."""
    return [*falls(summary, description, by), *([] if cuts is None else cut_falls(cuts, by))]


def all_warnings(summary: pl.DataFrame, description: Description, cuts: pl.DataFrame | None = None) -> list[str]:
    """The warnings by kind, by language and by class of text."""
    return [one for by in _GROUPINGS for one in warnings(all_falls(summary, description, cuts, by))]


def far_falls(
    summary: pl.DataFrame, description: Description, cuts: pl.DataFrame | None = None
) -> list[dict[str, Any]]:
    """What is warned of, as plain dictionaries with `by`: `kind`, `language` or `content`."""
    return [
        {"by": by, **cell.as_json()}
        for by in _GROUPINGS
        for cell in all_falls(summary, description, cuts, by)
        if cell.far
    ]


def _grouped(summary: pl.DataFrame, by: Grouping) -> pl.DataFrame:
    if by != "content":
        return summary.with_columns(pl.col(by).fill_null(UNKNOWN).alias("group"))
    return summary


def _groups(frame: pl.DataFrame, by: Grouping) -> dict[str, pl.DataFrame]:
    """The rows of each group; groups of content may overlap."""
    if by != "content":
        sizes = frame.group_by("group", maintain_order=True).agg(pl.col("documents").sum())
        names = sizes.sort("documents", descending=True, maintain_order=True)["group"].to_list()
        return {name: frame.filter(pl.col("group") == name) for name in names}
    groups = {name: frame.filter(pl.col(column)) for column, name in CONTENT.items()}
    return groups | {NEITHER: frame.filter(~pl.any_horizontal(*CONTENT))}


def _cells(reached: pl.DataFrame, stage: str, reason: str, by: Grouping) -> list[Fall]:
    everything, everywhere, _ = _taken(reached, stage, reason)
    cells = []
    for name, group in _groups(reached, by).items():
        documents, came, size = _taken(group, stage, reason)
        others = everywhere - came
        if came:
            bound = 0.0 if others else None
            cells.append(
                Fall(stage, reason, name, documents, came, size, everything - documents, others, bound, far=False)
            )
    return cells


def _taken(frame: pl.DataFrame, stage: str, reason: str) -> tuple[int, int, int]:
    """Documents removed, documents that came, bytes removed."""
    gone = frame.filter(
        (pl.col("verdict") == "dropped") & (pl.col("stage") == stage) & (pl.col("reason") == reason)
    )
    return int(gone["documents"].sum()), int(frame["documents"].sum()), int(gone["bytes"].sum())


def _judged(cell: Fall, comparisons: int) -> Fall:
    if cell.at_least is None:
        return cell
    deviations = NormalDist().inv_cdf(1 - _DOUBT / comparisons)
    taken, others = cell.documents + 0.5, cell.others_documents + 0.5
    reached, others_reached = cell.reached + 0.5, cell.others_reached + 0.5
    error = sqrt(max(0.0, 1 / taken - 1 / reached + 1 / others - 1 / others_reached))
    bound = exp(log(taken / reached) - log(others / others_reached) - deviations * error)
    was_empty = cell.reason == "empty" and cell.stage in _BEFORE_ANY_JUDGEMENT
    judged = cell.reason not in _NO_JUDGEMENT and not was_empty and cell.group != NEITHER
    far = judged and bound >= FAR and cell.documents >= _FEWEST
    return Fall(**{**asdict(cell), "at_least": bound, "far": far})


def _asked(description: Description) -> Mapping[str, pl.Expr]:
    """For each reason of a rule: of which documents it is asked, by their source and language."""
    asked: dict[str, pl.Expr] = {}
    for source, _, rule in description.rules():
        own = (pl.col("source") == source.name) & is_asked(rule)
        asked[rule.reason] = asked[rule.reason] | own if rule.reason in asked else own
    return asked
