"""Results of a verification as text for people, for pages and for machines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from stoker.plural import counted
from stoker.verification.figures import Difference
from stoker.verification.verify import Result

SHOWN = ("loss", "gradient", "norm", "weight", "state", "evaluation", "checkpoint")
HEADERS = ("layout", "recompute", "ranks", "precision", *SHOWN, "worst at", "seconds", "result")


def rows(results: Sequence[Result]) -> list[list[object]]:
    """A row for each layout and precision, as `HEADERS` says."""
    found: list[list[object]] = []
    for result in results:
        for precision, worst in result.worst.items():
            where = max(worst.values(), key=lambda one: one.ratio)
            found.append(
                [
                    str(result.layout),
                    result.recompute,
                    result.layout.world_size,
                    precision,
                    *(_error(worst.get(kind)) for kind in SHOWN),
                    where.name,
                    round(result.seconds, 1),
                    "ok" if _agrees(worst) else "DIFFERS",
                ]
            )
        if result.error is not None:
            nothing = [""] * (len(HEADERS) - 5)
            found.append(
                [
                    str(result.layout),
                    result.recompute,
                    result.layout.world_size,
                    *nothing,
                    round(result.seconds, 1),
                    "FAILED",
                ]
            )
    return found


def verdict(results: Sequence[Result]) -> str:
    """How many agree, and of each of the others where it differs first."""
    bad = [result for result in results if not result.agrees]
    lines = [f"{len(results) - len(bad)} of {counted(len(results), 'layouts')} agree with one process"]
    lines += [f"DIFFERS  {result.layout}: {result.first or result.error}" for result in bad]
    return "\n".join(lines)


def as_json(result: Result) -> dict[str, Any]:
    """All of one result."""
    return {
        "layout": result.layout.model_dump(),
        "description": str(result.layout),
        "recompute": result.recompute,
        "ranks": result.layout.world_size,
        "agrees": result.agrees,
        "first": None if result.first is None else vars(result.first),
        "error": result.error,
        "seconds": result.seconds,
        "worst": {
            precision: {kind: vars(one) for kind, one in worst.items()} for precision, worst in result.worst.items()
        },
    }


MARKDOWN_HEADERS = ("model", "precision", "layouts", "ranks", *SHOWN, "differ")


def markdown_rows(name: str, results: Sequence[Result]) -> list[list[object]]:
    """A row for each precision: the worst of all layouts that came to an end."""
    found: list[list[object]] = []
    for precision in dict.fromkeys(precision for result in results for precision in result.worst):
        at_hand = [result for result in results if precision in result.worst or result.error is not None]
        worst = [result.worst.get(precision, {}) for result in at_hand]
        largest = [
            max((of_kind[kind] for of_kind in worst if kind in of_kind), key=lambda one: one.ratio, default=None)
            for kind in SHOWN
        ]
        found.append(
            [
                name,
                precision,
                len(at_hand),
                f"up to {max(result.layout.world_size for result in at_hand)}",
                *map(_error, largest),
                sum(result.error is not None or not _agrees(result.worst[precision]) for result in at_hand),
            ]
        )
    return found


def markdown(headers: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    """A table of a Markdown page."""
    written = [headers, ["---"] * len(headers), *lines]
    return "".join("| " + " | ".join(str(cell) for cell in line) + " |\n" for line in written)


def _agrees(worst: dict[str, Difference]) -> bool:
    return all(one.agrees for one in worst.values())


def _error(one: Difference | None) -> str:
    return "" if one is None else "0" if one.error == 0 else f"{one.error:.1e}"
