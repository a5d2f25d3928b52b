"""Our weights under the names, and in the form, of a class of transformers.

Every step is a differentiable function of the weights, so that gradients can be compared through it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping

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
_LATENT_ATTENTION = {
    "attention.query": "self_attn.q_proj",
    "attention.query_down": "self_attn.q_a_proj",
    "attention.query_norm": "self_attn.q_a_layernorm",
    "attention.query_up": "self_attn.q_b_proj",
    "attention.kv_down": "self_attn.kv_a_proj_with_mqa",
    "attention.kv_norm": "self_attn.kv_a_layernorm",
    "attention.kv_up": "self_attn.kv_b_proj",
    "attention.output": "self_attn.o_proj",
}
_EXPERTS = {
    "mlp": {"gate": "gate_proj", "up": "up_proj", "down": "down_proj"},
    "block_sparse_moe": {"gate": "w1", "up": "w3", "down": "w2"},
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
_EXPERTS_BACK = {theirs: ours for names in _EXPERTS.values() for ours, theirs in names.items()}
_OF_EXPERT_IN_FILE = re.compile(r"(.+\.experts)\.\d+\.(\w+)\.weight")
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
_OF_EXPERTS = re.compile(r"blocks\.(\d+)\.feed_forward\.experts\.(gate|up|down)")
_OF_ROUTER = re.compile(r"blocks\.(\d+)\.feed_forward\.router\.(weight|selection_bias)")


def converted(architecture: Architecture, config: Model, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """`state`, a `Decoder`'s parameters by name, as `architecture` names and stores them.

    A tied head is absent, as in ours, and so are modules for further tokens, which no logits depend on.
    """
    tensors = {name: tensor for name, tensor in state.items() if not name.startswith("mtp.")}
    tensors = _with_zero_biases(architecture, tensors)
    if config.latent_attention is not None:
        tensors = _with_rotary_key_in_latent(tensors)
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
    mixtures = _mixtures(architecture, config, tensors)
    return mixtures | {
        _renamed(architecture, name): tensor
        for name, tensor in tensors.items()
        if not (_OF_EXPERTS.fullmatch(name) or _OF_ROUTER.fullmatch(name))
    }


def in_memory(tensors: Mapping[str, Tensor], names: Collection[str]) -> dict[str, Tensor]:
    """Tensors named as in files, as a model with parameters of these `names` has them.

    Version 5 of transformers puts experts above one another when it reads them.
    """
    found = {name.replace(".block_sparse_moe.gate.", ".mlp.gate."): x for name, x in tensors.items()}
    stacks = {name.rsplit(".", 1)[0] for name in names if name.endswith(".experts.gate_up_proj")}
    if not stacks:
        return dict(tensors)
    parts: dict[str, dict[str, list[Tensor]]] = {stack: {"gate": [], "up": [], "down": []} for stack in stacks}
    result = {}
    for name, tensor in found.items():
        match = _OF_EXPERT_IN_FILE.fullmatch(name)
        if match is None:
            result[name] = tensor
        else:
            parts[match[1].replace(".block_sparse_moe.", ".mlp.")][_EXPERTS_BACK[match[2]]].append(tensor)
    for stack, of in parts.items():
        result[f"{stack}.gate_up_proj"] = torch.cat((torch.stack(of["gate"]), torch.stack(of["up"])), dim=1)
        result[f"{stack}.down_proj"] = torch.stack(of["down"])
    return result


def _mixtures(architecture: Architecture, config: Model, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Routers and experts: a matrix for each expert, in their order."""
    renamed: dict[str, Tensor] = {}
    sub = architecture.experts
    for name, tensor in state.items():
        if match := _OF_EXPERTS.fullmatch(name):
            prefix = f"model.layers.{match[1]}.{sub}.experts"
            for number, matrix in enumerate(tensor.unbind(0)):
                renamed[f"{prefix}.{number}.{_EXPERTS[sub][match[2]]}.weight"] = matrix
        elif match := _OF_ROUTER.fullmatch(name):
            kind = "weight" if match[2] == "weight" else "e_score_correction_bias"
            renamed[f"model.layers.{match[1]}.{sub}.gate.{kind}"] = tensor
            bias = f"model.layers.{match[1]}.{sub}.gate.e_score_correction_bias"
            if architecture.model_type == "deepseek_v3" and bias not in renamed:
                renamed[bias] = tensor.new_zeros(len(tensor), dtype=torch.float32)
    return renamed


def _with_rotary_key_in_latent(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The projection to the shared key below that to the latent, as one matrix."""
    joined = {name: tensor for name, tensor in state.items() if ".attention.key_rope." not in name}
    for name, tensor in joined.items():
        if name.endswith(".attention.kv_down.weight"):
            joined[name] = torch.cat((tensor, state[name.replace(".kv_down.", ".key_rope.")]))
    return joined


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
    attention = _LATENT_ATTENTION if architecture.model_type == "deepseek_v3" else _ATTENTION
    names = {**attention, **_FEED_FORWARD[architecture.feed_forward], **_NORMS[architecture.norms]}
    names |= {f"feed_forward.shared.{part}": f"mlp.shared_experts.{part}_proj" for part in ("gate", "up", "down")}
    return f"{prefix.replace('blocks.', 'model.layers.')}{names[module]}.{kind}"
