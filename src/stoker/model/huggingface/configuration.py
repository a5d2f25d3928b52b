"""The contents of config.json and generation_config.json.

Keys are written in both schemas: that of transformers 5 (`rope_parameters`, `dtype`) and that of version 4
(`rope_theta`, `rope_scaling`, `torch_dtype`), which would otherwise silently read a theta of 10000.
"""

from __future__ import annotations

from typing import Any

from stoker.model.huggingface.architectures import Architecture
from stoker.recipe import Model

_ACTIVATION = {"swiglu": "silu", "geglu": "gelu_pytorch_tanh", "gelu": "gelu_pytorch_tanh"}


def configuration(
    architecture: Architecture,
    config: Model,
    vocabulary_size: int,
    sequence_length: int,
    bos_id: int | None,
    eos_id: int | None,
) -> dict[str, Any]:
    """config.json for `config` as `architecture`."""
    general = {
        "architectures": [architecture.name],
        "model_type": architecture.model_type,
        "vocab_size": vocabulary_size,
        "bos_token_id": bos_id,
        "eos_token_id": eos_id,
        "pad_token_id": None,
        "tie_word_embeddings": config.tie_embeddings,
        "initializer_range": config.initial_std,
        "use_cache": True,
        "dtype": "float32",
        "torch_dtype": "float32",
    }
    if architecture.weights in ("gpt2", "gpt_bigcode"):
        return {**general, **_gpt2(architecture, config, sequence_length)}
    return {**general, **_decoder(config, sequence_length), **_own(architecture, config, sequence_length)}


def generation_configuration(bos_id: int | None, eos_id: int | None) -> dict[str, Any]:
    """generation_config.json: where generated text begins and ends."""
    return {"bos_token_id": bos_id, "eos_token_id": eos_id}


def _gpt2(architecture: Architecture, config: Model, sequence_length: int) -> dict[str, Any]:
    own: dict[str, Any] = {
        "n_embd": config.hidden_size,
        "n_layer": config.layers,
        "n_head": config.heads,
        "n_inner": config.ffn_hidden_size,
        "n_positions": sequence_length,
        "layer_norm_epsilon": config.norm_epsilon,
        "activation_function": "gelu_pytorch_tanh",
        "resid_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "attn_pdrop": 0.0,
        "scale_attn_weights": True,
    }
    if architecture.weights == "gpt2":
        # The name other readers of GPT-2 know; the same function.
        return {**own, "activation_function": "gelu_new", "n_ctx": sequence_length}
    return {**own, "multi_query": True}


def _decoder(config: Model, sequence_length: int) -> dict[str, Any]:
    return {
        "hidden_size": config.hidden_size,
        "intermediate_size": config.ffn_hidden_size,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.key_value_heads,
        "head_dim": config.size_of_head,
        "hidden_act": _ACTIVATION[config.activation],
        "max_position_embeddings": sequence_length,
        "rms_norm_eps": config.norm_epsilon,
        "attention_dropout": 0.0,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta},
        "rope_theta": config.rope_theta,
        "rope_scaling": None,
    }


def _own(architecture: Architecture, config: Model, sequence_length: int) -> dict[str, Any]:
    """The keys that only some classes have."""
    biased = config.attention_bias or config.attention_output_bias
    match architecture.model_type:
        case "llama" | "arcee":
            return {"attention_bias": biased, "mlp_bias": config.ffn_bias}
        case "mixtral":
            return {"sliding_window": config.sliding_window, **_mixtral(config)}
        case "qwen3_moe":
            return {"attention_bias": biased, **_qwen3_moe(config)}
        case "deepseek_v3":
            return _deepseek_v3(config)
        case "mistral":
            return {"sliding_window": config.sliding_window}
        case "qwen3":
            used = config.sliding_window is not None
            window = {"use_sliding_window": used, "max_window_layers": 0 if used else config.layers}
            return {"attention_bias": biased, **window, **_windows(config)}
        case "olmo2":
            return {"attention_bias": biased}
        case "olmo3":
            return {"attention_bias": biased, **_windows(config), **_rope_by_layer_type(config)}
        case "exaone4":
            # With a window set the class leaves full layers without rope, so all layers must slide.
            return {"sliding_window_pattern": None, **_windows(config)}
        case "gemma2" | "vaultgemma":
            capped: dict[str, Any] = {"attn_logit_softcapping": config.attention_softcap}
            if config.attention_softcap is not None:
                # Version 4 would choose an implementation that silently leaves the cap out.
                capped["_attn_implementation"] = "eager"
            return {**_gemma(config, biased, sequence_length), **capped}
        case "gemma3_text":
            by_type = {**_rope_by_layer_type(config), "rope_local_base_freq": config.rope_theta}
            return {**_gemma(config, biased, sequence_length), "attn_logit_softcapping": None, **by_type}
        case "starcoder2":
            return {
                "use_bias": biased or config.ffn_bias,
                "norm_epsilon": config.norm_epsilon,
                "sliding_window": config.sliding_window,
                "residual_dropout": 0.0,
                "embedding_dropout": 0.0,
            }
        case "stablelm":
            rope = {"rope_type": "default", "rope_theta": config.rope_theta, "partial_rotary_factor": 1.0}
            return {
                "use_qkv_bias": config.attention_bias,
                "layer_norm_eps": config.norm_epsilon,
                "partial_rotary_factor": 1.0,
                "rope_parameters": rope,
                "qk_layernorm": False,
                "use_parallel_residual": False,
                "hidden_dropout": 0.0,
            }
    raise ValueError(f"no configuration is known for {architecture.model_type}")


def _mixtral(config: Model) -> dict[str, Any]:
    assert config.moe is not None
    return {
        "num_local_experts": config.moe.experts,
        "num_experts_per_tok": config.moe.experts_per_token,
        "intermediate_size": config.expert_width,
        "router_aux_loss_coef": config.moe.auxiliary_loss,
        "router_jitter_noise": 0.0,
    }


def _qwen3_moe(config: Model) -> dict[str, Any]:
    assert config.moe is not None
    return {
        "use_sliding_window": False,
        "num_experts": config.moe.experts,
        "num_experts_per_tok": config.moe.experts_per_token,
        "moe_intermediate_size": config.expert_width,
        "norm_topk_prob": config.moe.normalise_weights,
        "decoder_sparse_step": 1,
        "mlp_only_layers": list(range(config.moe.first_dense_layers)),
        "router_aux_loss_coef": config.moe.auxiliary_loss,
    }


def _windows(config: Model) -> dict[str, Any]:
    kind = "full_attention" if config.sliding_window is None else "sliding_attention"
    return {"sliding_window": config.sliding_window, "layer_types": [kind] * config.layers}


def _rope_by_layer_type(config: Model) -> dict[str, Any]:
    rope = {"rope_type": "default", "rope_theta": config.rope_theta}
    return {"rope_parameters": {"full_attention": rope, "sliding_attention": dict(rope)}}


def _gemma(config: Model, biased: bool, sequence_length: int) -> dict[str, Any]:
    return {
        "hidden_activation": _ACTIVATION[config.activation],
        "attention_bias": biased,
        "query_pre_attn_scalar": config.size_of_head,
        "final_logit_softcapping": config.logit_softcap,
        **_windows(config),
        # The classes ask for a width even where no layer slides.
        "sliding_window": config.sliding_window or sequence_length,
    }


def _deepseek_v3(config: Model) -> dict[str, Any]:
    moe, latent = config.moe, config.latent_attention
    assert moe is not None
    assert latent is not None
    return {
        "head_dim": latent.rope_head_size,
        "kv_lora_rank": latent.kv_rank,
        "q_lora_rank": latent.query_rank,
        "qk_nope_head_dim": latent.nope_head_size,
        "qk_rope_head_dim": latent.rope_head_size,
        "v_head_dim": latent.value_head_size,
        "rope_interleave": False,
        "attention_bias": False,
        "moe_intermediate_size": config.expert_width,
        "n_routed_experts": moe.experts,
        "n_shared_experts": moe.shared_experts,
        "num_experts_per_tok": moe.experts_per_token,
        "first_k_dense_replace": moe.first_dense_layers,
        "n_group": moe.groups,
        "topk_group": moe.chosen_groups,
        "norm_topk_prob": moe.normalise_weights,
        "routed_scaling_factor": moe.weight_scale,
        "scoring_func": "sigmoid",
        "topk_method": "noaux_tc",
        "num_nextn_predict_layers": 0,
    }
