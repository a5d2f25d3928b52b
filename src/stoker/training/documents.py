"""The loss of each document of a step, and of each stretch of the sequence, from the losses of single tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stoker.data.feeding import MicroBatch
from stoker.parallel import ParallelModel

_STRETCHES = 8
_FEWEST_TOKENS = 8
"""Counted tokens that a document must have in a sample for its mean to be compared with others'."""


@dataclass(frozen=True)
class DocumentLoss:
    """The loss of one document, or of the part of it that a sample holds."""

    sample: int
    source: str
    first_token: int
    """Where in the sample it begins."""
    tokens: int
    """How many of the sample's tokens are its."""
    loss: float
    """Mean cross-entropy over those of them that count, nats."""

    def row(self) -> dict[str, Any]:
        """As in the record."""
        return {
            "sample": self.sample,
            "source": self.source,
            "first_token": self.first_token,
            "tokens": self.tokens,
            "loss": self.loss,
        }


def stretches(length: int) -> list[tuple[int, int]]:
    """Eight equal stretches of a sequence, first and last + 1 of each; fewer where it has fewer tokens."""
    bounds = [length * place // _STRETCHES for place in range(_STRETCHES + 1)]
    return [(first, last) for first, last in pairwise(bounds) if first < last]


def stretch_of(length: int, places: Tensor | None, device: torch.device) -> Tensor:
    """int64: the number of the stretch that each of `places` of a sequence lies in; None: that each place does."""
    found = stretches(length)
    sizes = torch.tensor([last - first for first, last in found])
    number = torch.arange(len(found)).repeat_interleave(sizes).to(device)
    return number if places is None else number[places]


def worst_documents(
    model: ParallelModel,
    batches: Sequence[MicroBatch],
    losses: Mapping[int, Tensor],
    source_names: Sequence[str],
    most: int,
) -> list[DocumentLoss]:
    """The `most` documents of this rank's samples with the largest mean loss, the largest first.

    `batches` are on the CPU; `losses` [B, tokens of this rank] are of some of them, by number. On ranks that answer
    for no token, and on all but the first along `cp`, there are none. Collective over `cp`.
    """
    if not losses:
        return []
    numbers = sorted(losses)
    own = torch.stack([losses[number] for number in numbers]).to("cpu", torch.float64).numpy()
    rows = [batches[number] for number in numbers]
    documents = np.concatenate([batch.documents.numpy() for batch in rows])
    samples, length = documents.shape
    places = model.own_places(length)
    found = np.zeros(documents.shape)
    found[:, slice(None) if places is None else places.cpu().numpy()] = own.reshape(samples, -1)
    starts = np.ones(documents.shape, dtype=bool)
    starts[:, 1:] = documents[:, 1:] != documents[:, :-1]
    begins = np.flatnonzero(starts)
    sums = np.add.reduceat(found.reshape(-1), begins)
    if places is not None:
        sums = model.sum_over_parts(torch.from_numpy(sums).to(model.world.device)).cpu().numpy()
    if model.world.coordinate.cp:
        return []
    counts = np.add.reduceat(np.concatenate([batch.targets.numpy() >= 0 for batch in rows]).reshape(-1), begins)
    enough = np.flatnonzero(counts >= _FEWEST_TOKENS)
    means = sums[enough] / counts[enough]
    worst = enough[np.argsort(-np.nan_to_num(means, nan=np.inf), kind="stable")[:most]]
    ends = np.append(begins[1:], found.size)
    numbers_of_samples = np.concatenate([batch.samples.numpy() for batch in rows])
    sources = np.concatenate([batch.sources.numpy() for batch in rows])
    return [
        DocumentLoss(
            sample=int(numbers_of_samples[begins[one] // length]),
            source=source_names[int(sources[begins[one] // length])],
            first_token=int(begins[one] % length),
            tokens=int(ends[one] - begins[one]),
            loss=float(sums[one] / counts[one]),
        )
        for one in worst.tolist()
    ]
