"""What a cache of keys and values saves a run's model that writes, in one run on one thread.

    OMP_NUM_THREADS=1 python benchmarks/synthetic.py [--tokens 256]

The same rows are drawn by the same generator, from a model with the weights of no training, once with the logits of
whole sequences and once with `CachedLogits`. Tokens of all rows over CPU seconds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from torch import Tensor

from stoker.data.synthetic.jobs import Author, Prompt, Sampling, jobs_of
from stoker.data.synthetic.local import LocalGenerator, LocalModel
from stoker.model import CachedLogits, Decoder, initialise
from stoker.recipe import Model

VOCABULARY = 8192
SIZES = {
    "4 layers of 256": Model(hidden_size=256, layers=4, heads=4, kv_heads=2, ffn_hidden_size=704),
    "8 layers of 512": Model(hidden_size=512, layers=8, heads=8, kv_heads=2, ffn_hidden_size=1408),
}


def drawn(logits: Callable[[Tensor], Tensor], window: int, rows: int, tokens: int) -> tuple[list[str], float]:
    """(texts, tokens in a CPU second) of `rows` rows of a prompt of 16 tokens."""
    local = LocalModel(logits, lambda text: list(range(1, 17)), lambda ids: " ".join(map(str, ids)), None, window)
    prompts, sampling = [Prompt("1", "a prompt")], Sampling((1.0,), rows, tokens=tokens)
    jobs = jobs_of(prompts, sampling, Author("untrained", None))
    start = time.process_time()
    texts = [answer.text for _, answer in LocalGenerator(local, sampling, jobs, rows).answers(jobs)]
    return texts, rows * tokens / (time.process_time() - start)


def main() -> None:
    """Print the table."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--tokens", type=int, default=256)
    tokens = arguments.parse_args().tokens
    torch.set_num_threads(1)
    print(f"{'tokens a CPU second':<20}{'rows':>6}{'whole':>10}{'cached':>10}{'ratio':>8}{'same text':>11}")
    for name, config in SIZES.items():
        model = Decoder(config, VOCABULARY, tokens + 16)
        initialise(model, config, 0)
        model.eval()

        def whole(seen: Tensor, model: Decoder = model) -> Tensor:
            with torch.no_grad():
                logits = model(seen, last_only=True)
            assert isinstance(logits, Tensor)
            return logits[:, -1]

        for rows in (1, 16):
            before, slow = drawn(whole, tokens + 16, rows, tokens)
            after, fast = drawn(CachedLogits(model), tokens + 16, rows, tokens)
            same = sum(one == other for one, other in zip(before, after, strict=True)) / rows
            print(f"{name:<20}{rows:6}{slow:10.1f}{fast:10.1f}{fast / slow:8.1f}{same:11.0%}")


if __name__ == "__main__":
    main()
