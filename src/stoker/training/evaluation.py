"""Loss on held-out documents, per source. Draws nothing at random and changes no state."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from stoker.data.feeding import HeldOut
from stoker.model import generate
from stoker.parallel import ParallelModel
from stoker.recipe import Recipe
from stoker.training.held_out_text import HeldOutText
from stoker.training.precision import autocast
from stoker.training.step import inputs_of


@dataclass(frozen=True)
class SourceScore:
    """How well a model predicts the held-out text of one source."""

    source: str
    loss: float
    """Mean cross-entropy per token, nats."""
    tokens: int
    """Predicted tokens."""
    bytes: int
    """UTF-8 bytes of the text those tokens spell."""

    @property
    def perplexity(self) -> float:
        """exp(loss)."""
        return math.exp(min(self.loss, 700.0)) if not math.isnan(self.loss) else math.nan

    @property
    def bits_per_byte(self) -> float:
        """Bits needed per byte of text: comparable between tokenizers."""
        return self.loss * self.tokens / math.log(2) / self.bytes if self.bytes else math.nan

    @property
    def line(self) -> dict[str, object]:
        """What is told while the run goes on."""
        return {"source": self.source, "loss": self.loss, "bits_per_byte": self.bits_per_byte}

    def row(self, step: int) -> dict[str, object]:
        """As a row of the record."""
        return {
            "step": step,
            "source": self.source,
            "loss": self.loss,
            "tokens": self.tokens,
            "bytes": self.bytes,
            "perplexity": self.perplexity,
            "bits_per_byte": self.bits_per_byte,
        }


def evaluate(model: ParallelModel, recipe: Recipe, held_out: Sequence[HeldOut]) -> list[SourceScore]:
    """Score `model` on each source's held-out sequences, divided over its data-parallel ranks.

    Collective. Every rank runs the same number of forward passes, so that divided weights
    are gathered in step; a rank without a batch repeats one and counts it as nothing.
    """
    world = model.world
    model.train(False)
    scores = []
    for source in held_out:
        ranks = world.layout.data_parallel_size
        totals = torch.zeros(2, dtype=torch.float64, device=world.device)
        rounds = -(-len(source.batches) // ranks)
        for round_index in range(rounds):
            index = round_index * ranks + world.data_parallel_rank
            counts = index < len(source.batches)
            batch = source.batches[index if counts else 0].to(world.device)
            with autocast(recipe.training.precision, world.device):
                losses = model.evaluate(inputs_of(batch, recipe.training.document_mask))
            if counts:
                totals[0] += losses.sum()
                totals[1] += (batch.targets >= 0).sum() if model.counts else 0
        total, tokens = (float(value) for value in world.sum(totals))
        if tokens:
            scores.append(SourceScore(source.name, total / tokens, int(tokens), source.bytes))
    model.train()
    return scores


def mean_loss(scores: Sequence[SourceScore]) -> float | None:
    """Of all held-out tokens; None when there are none."""
    tokens = sum(score.tokens for score in scores)
    return sum(score.loss * score.tokens for score in scores) / tokens if tokens else None


def continue_prompts(model: ParallelModel, recipe: Recipe, text: HeldOutText) -> list[tuple[str, str]]:
    """Continue each of the recipe's prompts; returns (prompt, continuation).

    Collective: every rank draws the same tokens from the same seed.
    """
    model.train(False)
    settings, device = recipe.evaluation, model.world.device
    pairs = []
    for prompt, ids in zip(settings.prompts, text.prompts, strict=True):
        new = generate(
            lambda seen: model.last_logits(seen.to(device)),
            ids,
            count=settings.sample_tokens,
            window=recipe.training.sequence_length,
            temperature=settings.temperature,
            seed=recipe.seed,
            eos_id=text.eos_id,
        )
        pairs.append((prompt, text.decode(new)))
    model.train()
    return pairs
