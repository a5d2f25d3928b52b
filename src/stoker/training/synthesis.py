"""A run's model as a generator of synthetic text."""

from __future__ import annotations

import hashlib

import torch

from stoker.data.synthetic.jobs import Author
from stoker.data.synthetic.local import LocalModel
from stoker.data.tokenizer import TextEncoder
from stoker.model import CachedLogits
from stoker.parallel.world import choose_device
from stoker.run_directory import RunDirectory
from stoker.training.rank import use_processors
from stoker.training.trained_model import load_trained_model


def trained_author(run: RunDirectory, step: int | None, generation: int) -> tuple[LocalModel, Author]:
    """The model of `run` after `step` steps (default: the newest checkpoint), and what to call it.

    Raises `BadInput` when there is no such checkpoint.
    """
    trained = load_trained_model(run, step)
    digest = _digest(trained.model.state_dict())
    device = choose_device(trained.recipe.training.device, 0)
    use_processors(trained.recipe.training.threads, 1, device)
    logits = CachedLogits(trained.model.to(device).eval())
    encoder = TextEncoder(trained.corpus.tokenizer_path, trained.recipe.tokenizer)

    def encoded(text: str) -> list[int]:
        (ids,) = encoder.encode_documents([text])
        own: list[int] = ids.tolist()
        return own[:-1] if own and own[-1] == encoder.eos_id else own

    local = LocalModel(
        lambda seen: logits(seen.to(device)),
        encoded,
        lambda ids: encoder.decode(ids),
        encoder.eos_id,
        trained.recipe.training.sequence_length,
    )
    return local, Author(f"{trained.recipe.name} step {trained.step}", digest, generation)


def _digest(weights: dict[str, torch.Tensor]) -> str:
    """SHA-256 of weights, by name."""
    digest = hashlib.sha256()
    for name, tensor in sorted(weights.items()):
        digest.update(f"{name} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()
