"""A model of ours as a generator: batches of prompts of one length, each row drawn from its own seed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from stoker.counter_random import draw_u64, key_of
from stoker.data.synthetic.jobs import Answer, Job, Sampling


@dataclass(frozen=True)
class LocalModel:
    """What a model has to do."""

    last_logits: Callable[[torch.Tensor], torch.Tensor]
    """Logits [B, V] of the token after int64 [B, L]."""
    encode: Callable[[str], list[int]]
    """Ids of a prompt, begun as a document is."""
    decode: Callable[[list[int]], str]
    eos_id: int | None
    window: int
    """Tokens that it sees."""


class LocalGenerator:
    """Draws rows from a model.

    Which rows are drawn together is decided by the prompts alone and never by what is there already, so that the
    last bits of the logits, and the text, are the same when a run is killed and taken up again."""

    def __init__(self, model: LocalModel, sampling: Sampling, jobs: Sequence[Job], batch: int = 16) -> None:
        self._model, self._sampling = model, sampling
        by_length: dict[int, list[tuple[Job, list[int]]]] = defaultdict(list)
        for job in jobs:
            ids = model.encode(job.prompt.text)[-model.window :]
            by_length[len(ids)].append((job, ids))
        self._batches = [
            rows[start : start + batch]
            for _, rows in sorted(by_length.items())
            for start in range(0, len(rows), batch)
        ]

    def answers(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, Answer]]:
        """The answers to `jobs` (and to those in one batch with them)."""
        wanted = {job.identifier for job in jobs}
        for batch in self._batches:
            if any(job.identifier in wanted for job, _ in batch):
                yield from zip((job for job, _ in batch), self._drawn(batch), strict=True)

    def _drawn(self, batch: Sequence[tuple[Job, list[int]]]) -> list[Answer]:
        model, sampling = self._model, self._sampling
        ids = torch.tensor([row for _, row in batch])
        prompt = ids.shape[1]
        ended = np.zeros(len(batch), np.bool_)
        for number in range(sampling.tokens):
            logits = model.last_logits(ids[:, -model.window :]).to("cpu", torch.float64).numpy()
            chosen = [
                drawn_token(logits[row], job.temperature, sampling.top_p, _uniform(job.seed, number))
                for row, (job, _) in enumerate(batch)
            ]
            ids = torch.cat([ids, torch.tensor(chosen)[:, None]], dim=1)
            if model.eos_id is not None:
                ended |= np.asarray(chosen) == model.eos_id
            if ended.all():
                break
        return [self._answer(row[prompt:]) for row in ids.tolist()]

    def _answer(self, ids: list[int]) -> Answer:
        end = self._model.eos_id
        finished = end is not None and end in ids
        own = ids[: ids.index(end)] if finished and end is not None else ids
        return Answer(self._model.decode(own), len(own), "stop" if finished else "length")


def _uniform(seed: int, number: int) -> float:
    """The draw for one token of one row, 0 to 1."""
    return float(draw_u64(key_of(seed, "synthesize"), np.asarray([number], np.uint64))[0]) / 2**64


def drawn_token(logits: npt.NDArray[np.float64], temperature: float, top_p: float, uniform: float) -> int:
    """The token at `uniform` (0 to 1) of the distribution of `logits` [V], likeliest first.

    Of the distribution the smallest set of likeliest tokens that has at least `top_p` of it is kept.
    """
    if temperature == 0:
        return int(logits.argmax())
    scaled = logits / temperature
    order = np.argsort(-scaled, kind="stable")
    shares = np.exp(scaled[order] - scaled[order[0]])
    shares /= shares.sum()
    sums = np.cumsum(shares)
    kept = int(np.searchsorted(sums, min(top_p, 1.0) - 1e-12)) + 1
    place = int(np.searchsorted(sums[:kept], uniform * sums[min(kept, len(sums)) - 1], side="right"))
    return int(order[min(place, kept - 1, len(order) - 1)])
