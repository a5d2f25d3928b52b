"""Decoder-only language models in plain PyTorch, for one device; nothing here knows of processes.

Letters in shapes: batch B, length L, hidden D, heads H, key and value heads G, head size K,
inner feed-forward width F, vocabulary V, tokens N = B × L.
"""

from stoker.model.cached_decoding import CachedLogits
from stoker.model.decoder import Block, Decoder
from stoker.model.generation import generate
from stoker.model.initialisation import initial_values, initialise
from stoker.model.loss import TokenLosses, chunked_cross_entropy
from stoker.recipe.size import FlopsPerToken, ParameterCount, flops_per_token, parameter_count

__all__ = [
    "Block",
    "CachedLogits",
    "Decoder",
    "FlopsPerToken",
    "ParameterCount",
    "TokenLosses",
    "chunked_cross_entropy",
    "flops_per_token",
    "generate",
    "initial_values",
    "initialise",
    "parameter_count",
]
