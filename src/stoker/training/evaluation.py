"""Loss on held-out documents, per source. Draws nothing at random and changes no state."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from stoker.data.feeding import HeldOut
from stoker.model import Decoder, generate
from stoker.parallel import World
from stoker.recipe import Recipe
from stoker.training.held_out_text import HeldOutText
from stoker.training.precision import autocast


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


@torch.no_grad()
def evaluate(
    model: torch.nn.Module, recipe: Recipe, held_out: Sequence[HeldOut], world: World
) -> list[SourceScore]:
    """Score `model` on each source's held-out sequences, divided over the ranks of `world`.

    Collective. Every rank runs the same number of forward passes, so that sharded weights
    are gathered in step; a rank without a batch repeats one and counts it as nothing.
    """
    training_before = model.training
    model.eval()
    scores = []
    for source in held_out:
        ranks = world.layout.data_parallel_size
        totals = torch.zeros(2, dtype=torch.float64, device=world.device)
        rounds = -(-len(source.batches) // ranks)
        for round_index in range(rounds):
            index = round_index * ranks + world.rank
            counts = index < len(source.batches)
            batch = source.batches[index if counts else 0].to(world.device)
            with autocast(recipe.training.precision, world.device):
                losses = model(
                    batch.tokens,
                    batch.targets,
                    positions=batch.positions,
                    documents=batch.documents if recipe.training.document_mask else None,
                )
            if counts:
                totals[0] += losses.token_losses.sum(dtype=torch.float64)
                totals[1] += (batch.targets >= 0).sum()
        total, tokens = (float(value) for value in world.sum(totals))
        if tokens:
            scores.append(SourceScore(source.name, total / tokens, int(tokens), source.bytes))
    model.train(training_before)
    return scores


@torch.no_grad()
def continue_prompts(model: Decoder, recipe: Recipe, text: HeldOutText) -> list[tuple[str, str]]:
    """Continue each of the recipe's prompts; returns (prompt, continuation).

    Collective when the weights are sharded: every rank draws the same tokens from the same seed.
    """
    training_before = model.training
    model.eval()
    settings = recipe.evaluation
    pairs = []
    for prompt, ids in zip(settings.prompts, text.prompts, strict=True):
        new = generate(
            model,
            ids,
            count=settings.sample_tokens,
            temperature=settings.temperature,
            seed=recipe.seed,
            eos_id=text.eos_id,
        )
        pairs.append((prompt, text.decode(new)))
    model.train(training_before)
    return pairs
