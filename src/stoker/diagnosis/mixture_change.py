"""Steps whose tokens come from the sources in other shares than before."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from stoker.diagnosis.finding import Evidence, Finding, confidence_of
from stoker.diagnosis.recent_past import Numbers, Steps, window_of
from stoker.diagnosis.remedies import remedy

OVERSAMPLED, SHIFTED = "oversampled_source", "mixture_shift"
_LEAST = 0.08
"""Of the tokens, that come from other sources than before."""
_TIMES = 2.0
"""Over the largest such share of the past: batches of few sequences have few mixtures to choose from."""
_TOGETHER = 4
"""Rows over which shares are averaged, so that the mixture's own pattern does not count."""
_SAMPLES_OFF = 2.0
"""By so many samples at most is a source off its share in any stretch of a mixture that is kept."""
_RECORDED = 0.98


def find_mixture_changes(
    steps: Steps,
    tokens: Mapping[str, Numbers],
    planned: Mapping[str, Numbers] | None = None,
    samples: Numbers | None = None,
) -> list[Finding]:
    """Stretches of rows whose shares of sources, over four rows, differ from those of the window before (32 rows).

    `tokens` [rows] of each source are NaN where a row has none of it. By more than 8% of the tokens, and twice the
    most that four rows differed by before. What is usual is held while a stretch lasts. Where the shares come back
    it is a source that was taken more often for a time; where they do not, another mixture.

    `planned` [rows] are the shares that the recipe gives each source at each row. Where they change, what counts is
    how far the tokens are from them.

    `samples` [rows] of a step, where they are known: a batch of few samples of many sources cannot keep the shares
    exactly, and counts only where it is farther from them than whole samples make it.
    """
    if len(tokens) < 2 or steps.size < 3 * _TOGETHER:
        return []
    counts = np.nan_to_num(np.stack(list(tokens.values())))
    plan = np.stack([(planned or {}).get(name, np.zeros(steps.size)) for name in tokens])
    moved = plan - plan[:, :1]
    counts -= counts.sum(axis=0) * moved  # as if the plan of the first row held for all
    kept = np.nansum(np.stack(list(tokens.values())), axis=0) > 0
    steps, counts, moved = steps[kept], counts[:, kept], moved[:, kept]
    of_sample = _tokens_of_sample(counts, None if samples is None else samples[kept])
    if steps.size < 3 * _TOGETHER:
        return []
    window = window_of(steps.size)
    found: list[Finding] = []
    rows = np.arange(steps.size)
    """Those that are not of a stretch that was found: what comes after one is held against what was before it."""
    # Until a window has passed nobody knows how far four rows of so few sequences differ by chance.
    at = max(2 * _TOGETHER, window)
    while True:
        sums = _sums(counts[:, rows])
        noticed = _noticed(sums, at, window, of_sample)
        if noticed is None:
            return found
        usual = _share(sums, max(0, noticed - window - _TOGETHER), noticed - _TOGETHER)
        first = _first(counts[:, rows], usual, noticed)
        last = _last(sums, usual, first, of_sample)
        meant = moved[:, rows[first : last + 1]].mean(axis=1)
        found.append(_finding(list(tokens), steps[rows], sums, usual, meant, first, last))
        rows = np.delete(rows, slice(first, last + 1))
        at = max(at, first)


def _sums(counts: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.cumsum(np.concatenate([np.zeros((len(counts), 1)), counts], axis=1), axis=1)


def _share(sums: npt.NDArray[np.float64], begin: int, end: int) -> Numbers:
    own = sums[:, end] - sums[:, begin]
    return np.asarray(own / max(float(own.sum()), 1.0))


def _moved(sums: npt.NDArray[np.float64], usual: Numbers, begin: int, end: int) -> float:
    return float(np.abs(_share(sums, begin, end) - usual).sum() / 2)


def _tokens_of_sample(counts: npt.NDArray[np.float64], samples: Numbers | None) -> float:
    """Tokens of a sample at the median of the rows; 0 where that is not known."""
    if samples is None or not (known := np.isfinite(samples) & (samples > 0)).any():
        return 0.0
    return float(np.median(counts[:, known].sum(axis=0) / samples[known]))


def _least(
    shares: npt.NDArray[np.float64], tokens: npt.NDArray[np.float64], of_sample: float
) -> npt.NDArray[np.float64]:
    """How far the shares of stretches must be from `shares` [sources, stretches] to count.

    `tokens` [stretches] of each. Whole samples put every source off by so many; one that is due less than one
    sample, by as much less.
    """
    due = np.minimum(1.0, shares * tokens / max(of_sample, 1e-9)).sum(axis=0) / 2
    return np.asarray(np.maximum(_LEAST, _SAMPLES_OFF * due * of_sample / np.maximum(tokens, 1)))


def _noticed(sums: npt.NDArray[np.float64], at: int, window: int, of_sample: float) -> int | None:
    """The first end of four rows whose shares differ from those of the window before them."""
    rows = sums.shape[1] - 1
    ends = np.arange(2 * _TOGETHER, rows + 1)
    if not ends.size:
        return None
    own = sums[:, ends] - sums[:, ends - _TOGETHER]
    past = sums[:, ends - _TOGETHER] - sums[:, np.maximum(ends - _TOGETHER - window, 0)]
    usual = past / np.maximum(past.sum(axis=0), 1)
    moved = np.abs(own / own.sum(axis=0) - usual).sum(axis=0) / 2
    most = np.maximum.accumulate(np.concatenate([[0.0] * _TOGETHER, moved]))[: moved.size]
    least = _least(usual, own.sum(axis=0), of_sample)
    high = np.flatnonzero((moved > np.maximum(least, _TIMES * most)) & (ends >= at))
    return int(ends[high[0]]) if high.size else None


def _first(counts: npt.NDArray[np.float64], usual: Numbers, noticed: int) -> int:
    """The first of the rows up to `noticed` from which on their shares differ, by most together."""
    begin = max(0, noticed - 2 * _TOGETHER)
    rows = counts[:, begin:noticed]
    towards = np.sign(counts[:, noticed - 1] / counts[:, noticed - 1].sum() - usual)
    moved = (towards[:, None] * (rows / rows.sum(axis=0) - usual[:, None])).sum(axis=0) / 2
    return begin + int(np.argmin(np.concatenate([[0.0], np.cumsum(moved - moved[-1] / 2)])[:-1]))


def _last(sums: npt.NDArray[np.float64], usual: Numbers, first: int, of_sample: float) -> int:
    """The last row before four rows that are near the usual again."""
    rows = sums.shape[1] - 1
    peak = max(_moved(sums, usual, first, min(first + _TOGETHER, rows)), _LEAST)
    ends = np.arange(first + _TOGETHER, rows + 1)
    own = sums[:, ends] - sums[:, ends - _TOGETHER]
    moved = np.abs(own / own.sum(axis=0) - usual[:, None]).sum(axis=0) / 2
    near = np.maximum(peak / 3, _least(usual[:, None], own.sum(axis=0), of_sample) / 2)
    back = np.flatnonzero(moved < near)
    if not back.size:
        return int(rows - 1)
    # The four rows that are near the usual may begin with one that is not.
    last = int(ends[back[0]]) - _TOGETHER - 1
    while last + 2 < rows and _moved(sums, usual, last + 1, last + 2) > peak / 2:
        last += 1
    return int(last)


def _finding(
    names: list[str],
    steps: Steps,
    sums: npt.NDArray[np.float64],
    usual: Numbers,
    meant: Numbers,
    first: int,
    last: int,
) -> Finding:
    """`meant`: by how much the plan's shares had moved by then, which `sums` and `usual` have not."""
    share = _share(sums, first, last + 1)
    change = share - usual
    grown = [names[i] for i in np.argsort(-change) if change[i] > max(_LEAST / 2, change.max() / 2)]
    lasts = last >= steps.size - 1
    step = int(steps[first])
    order = np.argsort(-np.abs(change))[:3]
    return Finding(
        kind="mixture_shift",
        cause=SHIFTED if lasts else OVERSAMPLED,
        severity="warning",
        first_step=step,
        last_step=int(steps[last]),
        sources=tuple(grown),
        confidence=max(_RECORDED, confidence_of(float(change.max()), _LEAST)),
        evidence=tuple(
            Evidence(measure=f"share of {names[i]} in the tokens", expected=float(usual[i] + meant[i]),
                     observed=float(share[i] + meant[i]), step=step)
            for i in order
        ),
        remedy=remedy("check_mixture", step=step),
    )  # fmt: skip
