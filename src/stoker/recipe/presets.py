"""Ready-made shapes: small ones to try things with, and published ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Preset:
    """A named shape: field values of `model`, the vocabulary it was published with, and where."""

    shape: dict[str, Any]
    published_vocabulary: int
    source: str


def _small(
    hidden: int, layers: int, heads: int, kv_heads: int, ffn: int, vocabulary: int, tied: bool = True
) -> Preset:
    shape = {
        "hidden_size": hidden,
        "layers": layers,
        "heads": heads,
        "kv_heads": kv_heads,
        "ffn_hidden_size": ffn,
        "tie_embeddings": tied,
    }
    return Preset(shape, vocabulary, "Stoker: the Llama recipe, sized for its name with this vocabulary")


def _llama_3(
    hidden: int, layers: int, heads: int, ffn: int, source: str, tied: bool = False, head_size: int = 128
) -> Preset:
    shape = {
        "hidden_size": hidden,
        "layers": layers,
        "heads": heads,
        "kv_heads": 8,
        "head_size": head_size,
        "ffn_hidden_size": ffn,
        "norm_epsilon": 1e-5,
        "rope_theta": 500000.0,
        "tie_embeddings": tied,
    }
    return Preset(shape, 128256, source)


def _qwen_3(hidden: int, layers: int, heads: int, ffn: int, tied: bool) -> Preset:
    shape = {
        "hidden_size": hidden,
        "layers": layers,
        "heads": heads,
        "kv_heads": 8,
        "head_size": 128,
        "ffn_hidden_size": ffn,
        "norm_epsilon": 1e-6,
        "rope_theta": 1000000.0,
        "qk_norm": "head",
        "tie_embeddings": tied,
    }
    return Preset(shape, 151936, "Qwen3 Technical Report, arXiv:2505.09388, table 1, and the published configs")


def _gpt_3(hidden: int, layers: int, heads: int, remark: str = "") -> Preset:
    shape = {
        "hidden_size": hidden,
        "layers": layers,
        "heads": heads,
        "ffn_hidden_size": 4 * hidden,
        "activation": "gelu",
        "norm": "layer",
        "norm_epsilon": 1e-5,
        "position": "learned",
        "attention_bias": True,
        "attention_output_bias": True,
        "ffn_bias": True,
        "tie_embeddings": True,
    }
    return Preset(shape, 50257, "Brown et al. 2020, arXiv:2005.14165, table 2.1" + remark)


def _switch(name: str, experts: int) -> Preset:
    """A small preset with so many experts in place of each feed-forward block."""
    dense = PRESETS[name]
    moe = {"experts": experts, "experts_per_token": 1, "auxiliary_loss": 0.01, "capacity_factor": 1.25}
    source = (
        f"Stoker: {name} with {experts} experts a layer, one for each token (Switch Transformer, arXiv:2101.03961)"
    )
    return Preset({**dense.shape, "moe": moe}, dense.published_vocabulary, source)


def _qwen_3_moe(hidden: int, layers: int, heads: int, ffn: int, expert_ffn: int) -> Preset:
    moe = {
        "experts": 128,
        "experts_per_token": 8,
        "expert_ffn_hidden_size": expert_ffn,
        "normalise_weights": True,
        "auxiliary_loss": 0.001,
    }
    shape = {**_qwen_3(hidden, layers, heads, ffn, tied=False).shape, "kv_heads": 4, "moe": moe}
    return Preset(shape, 151936, "Qwen3 Technical Report, arXiv:2505.09388, table 2, and the published configs")


_MIXTRAL = {
    "hidden_size": 4096,
    "layers": 32,
    "heads": 32,
    "kv_heads": 8,
    "ffn_hidden_size": 14336,
    "rope_theta": 1000000.0,
    "moe": {"experts": 8, "experts_per_token": 2, "normalise_weights": True, "auxiliary_loss": 0.02},
}
_DEEPSEEK_V2_LITE = {
    "hidden_size": 2048,
    "layers": 27,
    "heads": 16,
    "latent_attention": {
        "kv_rank": 512,
        "nope_head_size": 128,
        "rope_head_size": 64,
        "value_head_size": 128,
    },
    "ffn_hidden_size": 10944,
    "norm_epsilon": 1e-6,
    "moe": {
        "experts": 64,
        "experts_per_token": 6,
        "expert_ffn_hidden_size": 1408,
        "shared_experts": 2,
        "first_dense_layers": 1,
        "auxiliary_loss": 0.001,
    },
}
_DEEPSEEK_V3 = {
    "hidden_size": 7168,
    "layers": 61,
    "heads": 128,
    "latent_attention": {
        "kv_rank": 512,
        "query_rank": 1536,
        "nope_head_size": 128,
        "rope_head_size": 64,
        "value_head_size": 128,
    },
    "ffn_hidden_size": 18432,
    "norm_epsilon": 1e-6,
    "mtp_depth": 1,
    "moe": {
        "experts": 256,
        "experts_per_token": 8,
        "expert_ffn_hidden_size": 2048,
        "shared_experts": 1,
        "first_dense_layers": 3,
        "gate": "sigmoid",
        "normalise_weights": True,
        "weight_scale": 2.5,
        "groups": 8,
        "groups_per_token": 4,
        "auxiliary_loss": 0.0001,
        "bias_update_rate": 0.001,
    },
}

_LLAMA_3 = "The Llama 3 Herd of Models, arXiv:2407.21783, table 3"
_LLAMA_3_2 = "Llama 3.2 model card and configs (without the scaling of angles for 128k tokens)"

PRESETS: dict[str, Preset] = {
    "1m": _small(128, 4, 4, 2, 256, 4096),
    "3m": _small(192, 6, 6, 2, 512, 4096),
    "10m": _small(320, 6, 10, 5, 896, 8192),
    "20m": _small(384, 8, 6, 6, 1024, 8192, tied=False),
    "60m": _small(640, 10, 10, 5, 1920, 16384),
    "125m": _small(768, 16, 12, 4, 2048, 32768),
    "350m": _small(1024, 28, 16, 4, 2816, 32768),
    "1b": _small(2048, 18, 16, 8, 5632, 65536),
    "llama-3.2-1b": _llama_3(2048, 16, 32, 8192, _LLAMA_3_2, tied=True, head_size=64),
    "llama-3.2-3b": _llama_3(3072, 28, 24, 8192, _LLAMA_3_2, tied=True),
    "llama-3-8b": _llama_3(4096, 32, 32, 14336, _LLAMA_3),
    "llama-3-70b": _llama_3(8192, 80, 64, 28672, _LLAMA_3),
    "llama-3-405b": _llama_3(16384, 126, 128, 53248, _LLAMA_3),
    "qwen-3-0.6b": _qwen_3(1024, 28, 16, 3072, tied=True),
    "qwen-3-1.7b": _qwen_3(2048, 28, 16, 6144, tied=True),
    "qwen-3-4b": _qwen_3(2560, 36, 32, 9728, tied=True),
    "qwen-3-8b": _qwen_3(4096, 36, 32, 12288, tied=False),
    "qwen-3-14b": _qwen_3(5120, 40, 40, 17408, tied=False),
    "qwen-3-32b": _qwen_3(5120, 64, 64, 25600, tied=False),
    "gpt-3-125m": _gpt_3(768, 12, 12),
    "gpt-3-350m": _gpt_3(1024, 24, 16),
    "gpt-3-760m": _gpt_3(1536, 24, 16),
    "gpt-3-1.3b": _gpt_3(2048, 24, 16, "; printed there with 24 heads of 128, which do not make 2048"),
    "gpt-3-2.7b": _gpt_3(2560, 32, 32),
    "gpt-3-6.7b": _gpt_3(4096, 32, 32),
    "gpt-3-13b": _gpt_3(5120, 40, 40, "; printed there with width 5140, which 40 heads of 128 do not make"),
    "gpt-3-175b": _gpt_3(12288, 96, 96),
    "mixtral-8x7b": Preset(
        _MIXTRAL, 32000, "Mixtral of Experts, arXiv:2401.04088, table 1, and the published config"
    ),
    "qwen-3-30b-a3b": _qwen_3_moe(2048, 48, 32, 6144, 768),
    "qwen-3-235b-a22b": _qwen_3_moe(4096, 94, 64, 12288, 1536),
    "deepseek-v2-lite": Preset(
        _DEEPSEEK_V2_LITE, 102400, "DeepSeek-V2, arXiv:2405.04434, appendix B, and the published config"
    ),
    "deepseek-v3": Preset(
        _DEEPSEEK_V3,
        129280,
        "DeepSeek-V3 Technical Report, arXiv:2412.19437, section 4.2, and the published config",
    ),
}
PRESETS["46m-a10m"] = _switch("10m", 8)
