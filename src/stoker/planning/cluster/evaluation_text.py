"""How an evaluation is shown to people."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stoker.planning.cluster.evaluation import Errors, Evaluation

_HEADERS = ("source", "rows", "mean", "median", "bias", "memory", "Spearman", "regret", "left out")


def evaluation_text(evaluation: Evaluation) -> str:
    """A line a source, the means over sources, and what could not be modelled."""
    lines = [_row(_HEADERS)]
    for one in evaluation.sources:
        lines.append(
            _row(
                (
                    one.source,
                    str(one.rows - one.unmodelled),
                    *_three(one.time),
                    _percent(one.memory.mean if one.memory else None),
                    _share(one.spearman),
                    _percent(one.regret),
                    _percent(one.left_out_time.mean if one.left_out_time else None),
                )
            )
        )
    macro = evaluation.as_json()["macro"]
    lines.append(
        _row(
            (
                "mean over sources",
                str(sum(one.prediction is not None for one in evaluation.judged)),
                _percent(macro["time_mean"]),
                _percent(macro["time_median"]),
                "",
                _percent(macro["memory_mean"]),
                _share(macro["spearman"]),
                _percent(macro["regret"]),
                _percent(macro["left_out_time_mean"]),
            )
        )
    )
    lines.append("")
    lines.append(
        "mean, median and bias: step time, predicted over measured less 1; memory: mean; left out: mean of"
    )
    lines.append("step time with parameters fitted without the source.")
    if evaluation.unmeasured:
        lines.append(
            f"{evaluation.unmeasured:,} rows are predicted, but have neither step time nor memory to judge by."
        )
    if evaluation.reasons:
        lines.append("")
        lines.append("not modelled:")
        lines += [f"  {count:5,}  {reason}" for reason, count in evaluation.reasons.items()]
    return "\n".join(lines)


_WIDTHS = (46, 5, 7, 7, 8, 7, 9, 7, 9)


def _row(cells: tuple[str, ...]) -> str:
    padded = [cells[0][: _WIDTHS[0]].ljust(_WIDTHS[0])]
    padded += [cell.rjust(width) for cell, width in zip(cells[1:], _WIDTHS[1:], strict=True)]
    return " ".join(padded).rstrip()


def _three(errors: Errors | None) -> tuple[str, str, str]:
    if errors is None:
        return "-", "-", "-"
    return _percent(errors.mean), _percent(errors.median), f"{100 * errors.bias:+.1f}%"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}%"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
