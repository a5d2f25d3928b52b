"""One small model for each class of transformers, and variants of it."""

from __future__ import annotations

from typing import Any

from stoker.recipe import Model

BASE: dict[str, Any] = {
    "hidden_size": 24,
    "layers": 2,
    "heads": 4,
    "kv_heads": 2,
    "ffn_hidden_size": 40,
    "rope_theta": 5000.0,
}
BIASES = {"attention_bias": True, "attention_output_bias": True, "ffn_bias": True}
LAYER_GELU = {"norm": "layer", "activation": "gelu"}

SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaForCausalLM", {}),
    "llama tied": ("LlamaForCausalLM", {"tie_embeddings": True}),
    "llama wide heads": ("LlamaForCausalLM", {"head_size": 10}),
    "llama geglu": ("LlamaForCausalLM", {"activation": "geglu"}),
    "llama biases": ("LlamaForCausalLM", BIASES),
    "llama output bias": ("LlamaForCausalLM", {"attention_output_bias": True}),
    "llama ffn and qkv bias": ("LlamaForCausalLM", {"attention_bias": True, "ffn_bias": True}),
    "mistral": ("MistralForCausalLM", {"sliding_window": 7}),
    "mistral odd heads": ("MistralForCausalLM", {"hidden_size": 26, "head_size": 6}),
    "llama qkv bias": ("LlamaForCausalLM", {"attention_bias": True}),
    "vaultgemma qkv bias": ("VaultGemmaForCausalLM", {"attention_bias": True, "sliding_window": 7}),
    "qwen3": ("Qwen3ForCausalLM", {"qk_norm": "head", "head_size": 8, "tie_embeddings": True}),
    "qwen3 window": ("Qwen3ForCausalLM", {"qk_norm": "head", "sliding_window": 7, "attention_bias": True}),
    "arcee": ("ArceeForCausalLM", {"activation": "gelu", "ffn_bias": True}),
    "olmo2": ("Olmo2ForCausalLM", {"norm_position": "post", "qk_norm": "full"}),
    "olmo3": ("Olmo3ForCausalLM", {"norm_position": "post", "qk_norm": "full", "sliding_window": 7}),
    "exaone4": ("Exaone4ForCausalLM", {"norm_position": "post", "qk_norm": "head"}),
    "exaone4 window": (
        "Exaone4ForCausalLM",
        {"norm_position": "post", "qk_norm": "head", "sliding_window": 7},
    ),
    "gemma2": (
        "Gemma2ForCausalLM",
        {
            "norm_position": "both",
            "activation": "geglu",
            "attention_softcap": 5.0,
            "logit_softcap": 3.0,
            "sliding_window": 7,
            "tie_embeddings": True,
        },
    ),
    "gemma2 plain": ("Gemma2ForCausalLM", {"norm_position": "both", "attention_bias": True}),
    "gemma3": (
        "Gemma3ForCausalLM",
        {"norm_position": "both", "qk_norm": "head", "sliding_window": 7, "tie_embeddings": True},
    ),
    "gemma3 full": ("Gemma3ForCausalLM", {"norm_position": "both", "qk_norm": "head", "logit_softcap": 3.0}),
    "vaultgemma": ("VaultGemmaForCausalLM", {"attention_softcap": 5.0, "logit_softcap": 3.0}),
    "vaultgemma window": (
        "VaultGemmaForCausalLM",
        {"sliding_window": 7, "attention_output_bias": True, "tie_embeddings": True},
    ),
    "gpt2": (
        "GPT2LMHeadModel",
        {**LAYER_GELU, **BIASES, "position": "learned", "kv_heads": 4, "tie_embeddings": True},
    ),
    "gpt2 without biases": ("GPT2LMHeadModel", {**LAYER_GELU, "position": "learned", "kv_heads": 4}),
    "gpt_bigcode": ("GPTBigCodeForCausalLM", {**LAYER_GELU, **BIASES, "position": "learned", "kv_heads": 1}),
    "starcoder2": ("Starcoder2ForCausalLM", {**LAYER_GELU, "head_size": 10, "tie_embeddings": True}),
    "starcoder2 window": ("Starcoder2ForCausalLM", {**LAYER_GELU, **BIASES, "sliding_window": 7}),
    "mixtral": (
        "MixtralForCausalLM",
        {"sliding_window": 7, "moe": {"experts": 4, "experts_per_token": 2, "normalise_weights": True}},
    ),
    "qwen3 moe": (
        "Qwen3MoeForCausalLM",
        {
            "qk_norm": "head",
            "moe": {"experts": 6, "experts_per_token": 3, "expert_ffn_hidden_size": 12, "first_dense_layers": 1},
        },
    ),
    "deepseek v3": (
        "DeepseekV3ForCausalLM",
        {
            "kv_heads": None,
            "norm_epsilon": 1e-6,
            "mtp_depth": 1,
            "latent_attention": {
                "kv_rank": 10,
                "query_rank": 12,
                "nope_head_size": 6,
                "rope_head_size": 4,
                "value_head_size": 5,
            },
            "moe": {
                "experts": 8,
                "experts_per_token": 2,
                "expert_ffn_hidden_size": 12,
                "shared_experts": 2,
                "first_dense_layers": 1,
                "gate": "sigmoid",
                "normalise_weights": True,
                "weight_scale": 2.5,
                "groups": 4,
                "groups_per_token": 2,
                "bias_update_rate": 0.01,
            },
        },
    ),
    "deepseek v3 plain": (
        "DeepseekV3ForCausalLM",
        {
            "kv_heads": None,
            "norm_epsilon": 1e-6,
            "latent_attention": {"kv_rank": 10, "nope_head_size": 6, "rope_head_size": 4, "value_head_size": 6},
            "moe": {"experts": 4, "experts_per_token": 1, "shared_experts": 1, "gate": "sigmoid"},
        },
    ),
    "stablelm": ("StableLmForCausalLM", {"norm": "layer", "attention_bias": True}),
}


def shape(name: str) -> Model:
    """The small model called `name`."""
    return Model(**{**BASE, **SHAPES[name][1]})
