"""Our weights under the names, and in the form, of a class of transformers.

Every step is a differentiable function of the weights, so that gradients can be compared through it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

import torch
from torch import Tensor

from stoker.model.huggingface.architectures import Architecture
from stoker.recipe import Model

_ATTENTION = {
    "attention.query": "self_attn.q_proj",
    "attention.key": "self_attn.k_proj",
    "attention.value": "self_attn.v_proj",
    "attention.output": "self_attn.o_proj",
    "attention.query_norm": "self_attn.q_norm",
    "attention.key_norm": "self_attn.k_norm",
}
_FEED_FORWARD = {
    "mlp.{}_proj": {f"feed_forward.{name}": f"mlp.{name}_proj" for name in ("gate", "up", "down")},
    "c_fc": {"feed_forward.up": "mlp.c_fc", "feed_forward.down": "mlp.c_proj"},
}
_NORMS = {
    "pre": {"attention_norm": "input_layernorm", "feed_forward_norm": "post_attention_layernorm"},
    "vault": {"attention_norm": "input_layernorm", "feed_forward_norm": "pre_feedforward_layernorm"},
    "outer": {
        "attention_norm": "input_layernorm",
        "attention_output_norm": "post_attention_layernorm",
        "feed_forward_norm": "pre_feedforward_layernorm",
        "feed_forward_output_norm": "post_feedforward_layernorm",
    },
}
_GPT2_BLOCK = {
    "attention_norm": "ln_1",
    "attention.fused": "attn.c_attn",
    "attention.output": "attn.c_proj",
    "feed_forward_norm": "ln_2",
    "feed_forward.up": "mlp.c_fc",
    "feed_forward.down": "mlp.c_proj",
}
_GPT2_OUTSIDE = {
    "embedding": "transformer.wte",
    "position_embedding": "transformer.wpe",
    "norm": "transformer.ln_f",
    "head": "lm_head",
}
_OUTSIDE = {"embedding": "model.embed_tokens", "norm": "model.norm", "head": "lm_head"}
_OF_BLOCK = re.compile(r"(blocks\.\d+\.)(.+)\.(weight|bias)")


def converted(architecture: Architecture, config: Model, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """`state`, a `Decoder`'s parameters by name, as `architecture` names and stores them.

    A tied head is absent, as in ours.
    """
    tensors = _with_zero_biases(architecture, dict(state))
    if architecture.weights == "gemma":
        tensors = _for_scaled_embedding(config, tensors)
        tensors = {name: tensor - 1.0 if "norm." in name else tensor for name, tensor in tensors.items()}
    if architecture.weights in ("gpt2", "gpt_bigcode"):
        tensors = _with_fused_attention(tensors)
    if architecture.weights == "gpt2":
        # GPT-2 multiplies from the other side (Conv1D).
        tensors = {
            name: tensor.t() if name.startswith("blocks.") and tensor.dim() == 2 else tensor
            for name, tensor in tensors.items()
        }
    return {_renamed(architecture, name): tensor for name, tensor in tensors.items()}


def _with_zero_biases(architecture: Architecture, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Biases of zero where the class has a bias and the model none: the same function."""
    groups = architecture.biases_together
    if architecture.always_biases:
        groups = tuple(
            (module,)
            for module in (
                *("attention.query", "attention.key", "attention.value", "attention.output"),
                *("feed_forward.up", "feed_forward.down"),
            )
        )
    for prefix in dict.fromkeys(match[1] for name in state if (match := _OF_BLOCK.fullmatch(name))):
        for group in groups:
            present = [f"{prefix}{module}.bias" in state for module in group]
            if not (architecture.always_biases or any(present)):
                continue
            for module, has in zip(group, present, strict=True):
                if not has:
                    weight = state[f"{prefix}{module}.weight"]
                    state[f"{prefix}{module}.bias"] = weight.new_zeros(len(weight))
    return state


def _for_scaled_embedding(config: Model, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Undo beforehand that the class multiplies embeddings by sqrt(D).

    A tied head is then too small by that factor, which the norm before it makes up for.
    """
    scale = math.sqrt(config.hidden_size)
    state["embedding.weight"] = state["embedding.weight"] / scale
    if config.tie_embeddings:
        state["norm.weight"] = state["norm.weight"] * scale
    return state


def _with_fused_attention(state: dict[str, Tensor]) -> dict[str, Tensor]:
    fused: dict[str, Tensor] = {}
    for name, tensor in state.items():
        if ".attention.query." in name:
            parts = [state[name.replace(".query.", f".{part}.")] for part in ("query", "key", "value")]
            fused[name.replace(".query.", ".fused.")] = torch.cat(parts)
        elif ".attention.key." not in name and ".attention.value." not in name:
            fused[name] = tensor
    return fused


def _renamed(architecture: Architecture, name: str) -> str:
    gpt2 = architecture.weights in ("gpt2", "gpt_bigcode")
    match = _OF_BLOCK.fullmatch(name)
    if match is None:
        module, kind = name.rsplit(".", 1)
        return f"{(_GPT2_OUTSIDE if gpt2 else _OUTSIDE)[module]}.{kind}"
    prefix, module, kind = match.groups()
    if gpt2:
        return f"{prefix.replace('blocks.', 'transformer.h.')}{_GPT2_BLOCK[module]}.{kind}"
    names = {**_ATTENTION, **_FEED_FORWARD[architecture.feed_forward], **_NORMS[architecture.norms]}
    return f"{prefix.replace('blocks.', 'model.layers.')}{names[module]}.{kind}"
