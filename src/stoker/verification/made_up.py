"""Tokens made up for a step: packed documents of uneven lengths, and targets that do not count."""

from __future__ import annotations

import torch
from torch import Tensor

from stoker.counter_random import key_of
from stoker.data.feeding import MicroBatch
from stoker.layout import Layout
from stoker.model.loss import IGNORED
from stoker.verification.subject import Subject

SOURCES = ("first", "second")
_DOCUMENTS = 4
"""At most, in a sequence."""
_IGNORED_SHARE = 0.1


def global_batch(subject: Subject, sequences: int, step: int) -> MicroBatch:
    """All `sequences` of `step`: the same for every layout.

    One sequence has no target that counts, and one a few at its end.
    """
    length = subject.training.sequence_length
    generator = generator_of(subject.seed, "tokens", step)
    text = torch.randint(subject.vocabulary_size, (sequences, length + 1), generator=generator)
    begins = torch.zeros(sequences, length, dtype=torch.bool)
    for row in begins:
        more = int(torch.randint(_DOCUMENTS, (), generator=generator))
        row[torch.randperm(length, generator=generator)[:more]] = True
    begins[:, 0] = True
    places = torch.arange(length)
    last_begin = torch.where(begins, places, 0).cummax(dim=1).values
    targets = text[:, 1:].clone()
    targets[:, :-1][begins[:, 1:]] = IGNORED
    targets[torch.rand(targets.shape, generator=generator) < _IGNORED_SHARE] = IGNORED
    targets[0, : -(length // 4)] = IGNORED
    targets[1 % sequences] = IGNORED
    return MicroBatch(
        tokens=text[:, :-1].contiguous(),
        targets=targets,
        positions=places - last_begin,
        documents=(begins.cumsum(dim=1) - 1).to(torch.int32),
        sources=torch.arange(sequences) % len(SOURCES),
        samples=(step - 1) * sequences + torch.arange(sequences),
    )


def own_rows(subject: Subject, layout: Layout, data_parallel_rank: int) -> list[slice]:
    """Which sequences of the global batch each micro-batch of a rank has."""
    own = subject.sequences(layout) // layout.data_parallel_size
    count = subject.micro_batches(layout)
    size, begin = own // count, data_parallel_rank * own
    return [slice(begin + number * size, begin + (number + 1) * size) for number in range(count)]


def generator_of(seed: int, *what: str | int) -> torch.Generator:
    """A generator whose draws follow from `what` alone."""
    return torch.Generator().manual_seed(key_of(seed, "verification", *what) % 2**63)


def disturbance(seed: int, name: str, shape: tuple[int, ...]) -> Tensor:
    """What is added to the initial values of the parameter `name`: fp32, of the whole `shape`.

    Fresh biases are 0, fresh norms 1 and fresh attention even: much could be wrong there that nobody sees.
    """
    drawn = torch.randn(shape, generator=generator_of(seed, "disturbance", name))
    if len(shape) < 2:
        return drawn * 0.1
    looked_up = name.endswith("embedding.weight")
    return drawn * (0.5 if looked_up else 0.5 / shape[-1] ** 0.5)
