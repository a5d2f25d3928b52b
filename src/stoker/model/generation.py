"""Text from a model: one token after another, drawn from its own generator."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from stoker.counter_random import key_of


def generate(
    last_logits: Callable[[torch.Tensor], torch.Tensor],
    prompt_ids: Sequence[int],
    count: int,
    window: int,
    temperature: float = 1.0,
    seed: int = 0,
    eos_id: int | None = None,
) -> list[int]:
    """Up to `count` tokens that continue `prompt_ids`, the prompt left out; ends before `eos_id`.

    `last_logits` gives logits [1, V] of the token after int64 [1, L]; it sees the last `window` tokens,
    all of them again for each token drawn. Temperature 0 takes the likeliest token. The result depends
    on the arguments alone, and no global random state moves. Raises `ValueError` for an empty prompt.
    """
    if not prompt_ids:
        raise ValueError("generation needs at least one token to continue; give the beginning-of-text token")
    # Drawn on the processor: the same tokens whatever the device's generator.
    generator = torch.Generator().manual_seed(key_of(seed, "generate") >> 1)
    ids = list(prompt_ids)
    for _ in range(count):
        chosen = _choose(last_logits(torch.tensor([ids[-window:]]))[0], temperature, generator)
        if chosen == eos_id:
            break
        ids.append(chosen)
    return ids[len(prompt_ids) :]


def _choose(logits: torch.Tensor, temperature: float, generator: torch.Generator) -> int:
    logits = logits.to("cpu", torch.float64)
    if temperature == 0:
        return int(logits.argmax())
    return int(torch.multinomial(torch.softmax(logits / temperature, dim=-1), 1, generator=generator))
