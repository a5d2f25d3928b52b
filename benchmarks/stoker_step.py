"""Stoker's own training step on made-up tokens, as `stoker train` runs it on one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from stoker.data.feeding import MicroBatch
from stoker.model import Decoder, initialise
from stoker.parallel import Settings, apply, single_process_world
from stoker.recipe import Recipe
from stoker.training.clock import PhaseClock
from stoker.training.optimizer import build_optimizer
from stoker.training.step import TrainingStep


def recipe_of(case: dict[str, Any], compiled: bool = False, document_mask: bool = False) -> Recipe:
    """The recipe of a benchmark case: {hidden, layers, heads, ffn, vocabulary, length, batch, tied}."""
    return Recipe.model_validate(
        {
            "name": "benchmark",
            "data": {"sources": [{"name": "made-up", "paths": ["none"]}]},
            "model": {
                "hidden_size": case["hidden"],
                "layers": case["layers"],
                "heads": case["heads"],
                "ffn_hidden_size": case["ffn"],
                "tie_embeddings": case["tied"],
                **case.get("model", {}),
            },
            "training": {
                "steps": 1_000_000,
                "sequence_length": case["length"],
                "global_batch_size": case["batch"],
                "micro_batch_size": case["batch"],
                "compile": compiled,
                "document_mask": document_mask,
                **case.get("training", {}),
            },
        }
    )


def build(
    case: dict[str, Any], stream: Iterator[torch.Tensor], compiled: bool, documents: int
) -> Callable[[], float]:
    """A function that trains one step on the next tokens of `stream` (int64 [batch, length + 1]).

    Each sequence holds `documents` documents; more than one are kept apart.
    """
    recipe = recipe_of(case, compiled, documents > 1)
    device = torch.device("cpu")
    model = Decoder(recipe.model, case["vocabulary"], case["length"])
    initialise(model, recipe.model, seed=0)
    laid_out = apply(model, single_process_world(device), Settings(compile_blocks=compiled))
    optimizer = build_optimizer(laid_out.held, recipe.training)
    trainer = TrainingStep(recipe, ["made-up"], laid_out, optimizer, None, PhaseClock(device))
    done = 0

    def step() -> float:
        nonlocal done
        done += 1
        batch = micro_batch(next(stream), documents)
        return trainer(done, [batch], with_modules=False, stop=False).loss

    return step


def micro_batch(tokens: torch.Tensor, documents: int) -> MicroBatch:
    """`tokens` [B, L + 1] as a micro-batch whose sequences hold `documents` documents of equal length."""
    B, L = tokens.shape[0], tokens.shape[1] - 1
    places = torch.arange(L)
    document = places * documents // L
    starts = torch.tensor([(i * L + documents - 1) // documents for i in range(documents)])
    return MicroBatch(
        tokens=tokens[:, :-1].contiguous(),
        targets=tokens[:, 1:].contiguous(),
        positions=(places - starts[document]).expand(B, L).contiguous(),
        documents=document.to(torch.int32).expand(B, L).contiguous(),
        sources=torch.zeros(B, dtype=torch.int64),
        samples=torch.arange(B),
    )
