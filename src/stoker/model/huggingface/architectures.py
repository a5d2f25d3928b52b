"""Which class of transformers computes a model exactly, decided from the recipe's `model` section alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from stoker.errors import BadInput
from stoker.recipe import Model

Value = str | bool

_ANY_HEADS = ("one per head", "one", "groups")
_EVEN_WIDTH = ("hidden_size / heads", "other, with hidden_size a multiple of heads")
_ANY_WIDTH = (*_EVEN_WIDTH, "other")
_GATED = ("swiglu", "geglu")
_BOTH = (False, True)

_PLAIN: dict[str, tuple[Value, ...]] = {
    "activation": _GATED,
    "norm": ("rms",),
    "norm_position": ("pre",),
    "qk_norm": ("none",),
    "position": ("rope",),
    "sliding_window": ("none",),
    "attention_bias": (False,),
    "attention_output_bias": (False,),
    "ffn_bias": (False,),
    "attention_softcap": ("none",),
    "logit_softcap": ("none",),
    "kv_heads": _ANY_HEADS,
    "head_size": _ANY_WIDTH,
    "latent_attention": ("none",),
    "moe": ("none",),
}
"""What a class accepts of each feature unless it says otherwise."""

_ATTENTION = ("attention.query", "attention.key", "attention.value", "attention.output")
_GATED_FFN = ("feed_forward.gate", "feed_forward.up", "feed_forward.down")
_PLAIN_FFN = ("feed_forward.up", "feed_forward.down")


@dataclass(frozen=True)
class Architecture:
    """One class of transformers: what it can express, and how its weights are named."""

    name: str
    """The class, as `architectures` in config.json names it."""
    model_type: str
    accepts: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    """Values of each feature that the class computes exactly, where they differ from the plain ones."""
    weights: Literal["llama", "gemma", "gpt2", "gpt_bigcode"] = "llama"
    """Naming and storage of weights; `gemma`: norms hold weight - 1, the embedding is scaled by sqrt(D)."""
    norms: Literal["pre", "vault", "outer"] = "pre"
    """How the norms of a block are called."""
    feed_forward: Literal["mlp.{}_proj", "c_fc"] = "mlp.{}_proj"
    biases_together: tuple[tuple[str, ...], ...] = ()
    """Projections that have biases all or none: those missing are written as zeros."""
    always_biases: bool = False
    experts: Literal["mlp", "block_sparse_moe"] = "mlp"
    """How a mixture of experts is called."""

    def mismatches(self, config: Model) -> list[str]:
        """What stands against exporting `config` as this class; empty when it fits."""
        found = features(config)
        wrong = []
        for name, allowed in {**_PLAIN, **self.accepts}.items():
            if found[name] not in allowed:
                wanted = " or ".join(_worded(value) for value in allowed)
                wrong.append(f"model.{name} must be {wanted}, but is {_worded(found[name])}")
        return wrong


ARCHITECTURES = (
    Architecture(
        "LlamaForCausalLM",
        "llama",
        {
            "attention_bias": _BOTH,
            "attention_output_bias": _BOTH,
            "ffn_bias": _BOTH,
            "head_size": _EVEN_WIDTH,
        },
        biases_together=(_ATTENTION, _GATED_FFN),
    ),
    Architecture("MistralForCausalLM", "mistral", {"sliding_window": ("none", "set")}),
    Architecture(
        "MixtralForCausalLM",
        "mixtral",
        {"sliding_window": ("none", "set"), "moe": ("softmax, normalised, in all layers",)},
        experts="block_sparse_moe",
    ),
    Architecture(
        "Qwen3MoeForCausalLM",
        "qwen3_moe",
        {
            "qk_norm": ("head",),
            "attention_bias": _BOTH,
            "attention_output_bias": _BOTH,
            "moe": (
                "softmax, normalised, in all layers",
                "softmax, normalised",
                "softmax, in all layers",
                "softmax",
            ),
        },
        biases_together=(_ATTENTION,),
    ),
    Architecture(
        "DeepseekV3ForCausalLM",
        "deepseek_v3",
        {"latent_attention": ("set, with norm_epsilon 1e-6",), "moe": ("sigmoid, with shared experts",)},
    ),
    Architecture(
        "Qwen3ForCausalLM",
        "qwen3",
        {
            "qk_norm": ("head",),
            "sliding_window": ("none", "set"),
            "attention_bias": _BOTH,
            "attention_output_bias": _BOTH,
        },
        biases_together=(_ATTENTION,),
    ),
    Architecture(
        "ArceeForCausalLM",
        "arcee",
        {
            "activation": ("gelu",),
            "attention_bias": _BOTH,
            "attention_output_bias": _BOTH,
            "ffn_bias": _BOTH,
            "head_size": _EVEN_WIDTH,
        },
        biases_together=(_ATTENTION, _PLAIN_FFN),
    ),
    Architecture(
        "Olmo2ForCausalLM",
        "olmo2",
        {
            "norm_position": ("post",),
            "qk_norm": ("full",),
            "attention_bias": _BOTH,
            "attention_output_bias": _BOTH,
        },
        norms="outer",
        biases_together=(_ATTENTION,),
    ),
    Architecture(
        "Olmo3ForCausalLM",
        "olmo3",
        {
            "norm_position": ("post",),
            "qk_norm": ("full",),
            "sliding_window": ("set",),
            "attention_bias": _BOTH,
            "attention_output_bias": _BOTH,
        },
        norms="outer",
        biases_together=(_ATTENTION,),
    ),
    Architecture(
        "Exaone4ForCausalLM",
        "exaone4",
        {"norm_position": ("post",), "qk_norm": ("head",), "sliding_window": ("none", "set")},
        norms="outer",
    ),
    Architecture(
        "Gemma2ForCausalLM",
        "gemma2",
        {
            "norm_position": ("both",),
            "sliding_window": ("none", "set"),
            "attention_bias": _BOTH,
            "attention_output_bias": _BOTH,
            "attention_softcap": ("none", "set"),
            "logit_softcap": ("none", "set"),
            "head_size": _EVEN_WIDTH,
        },
        weights="gemma",
        norms="outer",
        biases_together=(_ATTENTION,),
    ),
    Architecture(
        "Gemma3ForCausalLM",
        "gemma3_text",
        {
            "norm_position": ("both",),
            "qk_norm": ("head",),
            "sliding_window": ("none", "set"),
            "attention_bias": _BOTH,
            "attention_output_bias": _BOTH,
            "logit_softcap": ("none", "set"),
            "head_size": _EVEN_WIDTH,
        },
        weights="gemma",
        norms="outer",
        biases_together=(_ATTENTION,),
    ),
    Architecture(
        "VaultGemmaForCausalLM",
        "vaultgemma",
        {
            "sliding_window": ("none", "set"),
            "attention_bias": _BOTH,
            "attention_output_bias": _BOTH,
            "attention_softcap": ("none", "set"),
            "logit_softcap": ("none", "set"),
            "head_size": _EVEN_WIDTH,
        },
        weights="gemma",
        norms="vault",
        biases_together=(_ATTENTION,),
    ),
    Architecture(
        "GPT2LMHeadModel",
        "gpt2",
        {
            "activation": ("gelu",),
            "norm": ("layer",),
            "position": ("learned",),
            "attention_bias": _BOTH,
            "attention_output_bias": _BOTH,
            "ffn_bias": _BOTH,
            "kv_heads": ("one per head",),
            "head_size": ("hidden_size / heads",),
        },
        weights="gpt2",
        always_biases=True,
    ),
    Architecture(
        "GPTBigCodeForCausalLM",
        "gpt_bigcode",
        {
            "activation": ("gelu",),
            "norm": ("layer",),
            "position": ("learned",),
            "attention_bias": _BOTH,
            "attention_output_bias": _BOTH,
            "ffn_bias": _BOTH,
            "kv_heads": ("one",),
            "head_size": ("hidden_size / heads",),
        },
        weights="gpt_bigcode",
        always_biases=True,
    ),
    Architecture(
        "Starcoder2ForCausalLM",
        "starcoder2",
        {
            "activation": ("gelu",),
            "norm": ("layer",),
            "sliding_window": ("none", "set"),
            "attention_bias": _BOTH,
            "attention_output_bias": _BOTH,
            "ffn_bias": _BOTH,
        },
        feed_forward="c_fc",
        biases_together=((*_ATTENTION, *_PLAIN_FFN),),
    ),
    Architecture(
        "StableLmForCausalLM",
        "stablelm",
        {"norm": ("layer",), "attention_bias": _BOTH, "head_size": ("hidden_size / heads",)},
    ),
)
"""In order of preference: widely read classes first.

Qwen2 is left out on purpose: version 5 of transformers opens every folder of that class with Qwen 2's own way
of splitting text, whatever tokenizer.json says. Llama with a zero output bias is the same function.
"""


_WORDED = ("kv_heads", "head_size", "latent_attention", "moe")
"""Features that are put in words of their own."""


def features(config: Model) -> dict[str, Value]:
    """What of `config` decides the class; sizes do not."""
    optional = ("sliding_window", "attention_softcap", "logit_softcap")
    return {
        **{name: getattr(config, name) for name in _PLAIN if name not in (*optional, *_WORDED)},
        **{name: "none" if getattr(config, name) is None else "set" for name in optional},
        "kv_heads": _sharing(config),
        "head_size": _width(config),
        "latent_attention": _latent(config),
        "moe": _mixture(config),
    }


def architecture_for(config: Model) -> Architecture:
    """The class that computes `config` exactly.

    Raises `BadInput`, naming the fields in the way and the values that would do, when there is none.
    """
    candidates = [(architecture.mismatches(config), architecture) for architecture in ARCHITECTURES]
    for wrong, architecture in candidates:
        if not wrong:
            return architecture
    candidates.sort(key=lambda candidate: len(candidate[0]))
    nearest: dict[str, str] = {}
    for wrong, architecture in candidates:
        nearest.setdefault("; ".join(wrong), architecture.name)
    lines = [f"  {wrong} ({name})" for wrong, name in list(nearest.items())[:5]]
    raise BadInput(
        "no class of Hugging Face transformers computes exactly this model, so it cannot be exported. "
        "Each of these changes to the recipe would make it one, after training with it:\n" + "\n".join(lines)
    )


def _sharing(config: Model) -> str:
    if config.key_value_heads == config.heads:
        return "one per head"
    return "one" if config.key_value_heads == 1 else "groups"


def _width(config: Model) -> str:
    if config.size_of_head * config.heads == config.hidden_size:
        return _EVEN_WIDTH[0]
    return _EVEN_WIDTH[1] if config.hidden_size % config.heads == 0 else "other"


def _latent(config: Model) -> str:
    if config.latent_attention is None:
        return "none"
    # The class norms its latents with this epsilon whatever its config says.
    return "set, with norm_epsilon 1e-6" if config.norm_epsilon == 1e-6 else "set, with another norm_epsilon"


def _mixture(config: Model) -> str:
    """What of a mixture of experts decides the class; what no class knows has a word of its own."""
    moe = config.moe
    if moe is None:
        return "none"
    if moe.capacity_factor is not None:
        return "with a capacity_factor, which drops tokens"
    if moe.gate == "sigmoid":
        if moe.groups > 1 and moe.group_score != "best_two":
            return "sigmoid, with groups by their best expert"
        return "sigmoid, with shared experts" if moe.shared_experts else "sigmoid, without shared experts"
    plain = moe.groups == 1 and not moe.shared_experts and not moe.bias_update_rate and moe.weight_scale == 1.0
    if not plain:
        return "softmax, with groups, shared experts, a bias or a weight_scale"
    normalised = ", normalised" if moe.normalise_weights else ""
    return f"softmax{normalised}" + ("" if moe.first_dense_layers else ", in all layers")


def _worded(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else value
