"""Which class a recipe's model becomes, what is refused, and what config.json says to old and new readers."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from stoker.errors import BadInput
from stoker.model.huggingface import architecture_for
from stoker.model.huggingface.architectures import ARCHITECTURES
from stoker.model.huggingface.configuration import configuration
from stoker.model.huggingface.parity import reduced
from stoker.recipe import Model
from stoker.recipe.presets import PRESETS
from tests.model.huggingface.shapes import BASE, SHAPES, shape


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({"position": "alibi"}, ["model.position must be rope, but is alibi"]),
        ({"norm_position": "post"}, ["model.qk_norm must be full, but is none", "model.qk_norm must be head"]),
        ({"qk_norm": "full"}, ["model.qk_norm must be none", "but is full"]),
        ({"norm": "layer", "qk_norm": "head"}, ["model.qk_norm must be none, but is head"]),
        ({"sliding_window": 8, "ffn_bias": True}, ["model.sliding_window must be none, but is set"]),
        (
            {"position": "learned", "norm": "layer", "activation": "gelu"},
            ["model.kv_heads must be one per head, but is groups", "model.kv_heads must be one,"],
        ),
        (
            {"attention_softcap": 30.0, "norm_position": "both", "qk_norm": "head"},
            ["model.attention_softcap must be none, but is set"],
        ),
    ],
)
def test_what_no_class_computes_is_refused_by_field(changes: dict[str, Any], fields: list[str]) -> None:
    with pytest.raises(BadInput) as refusal:
        architecture_for(Model(**{**BASE, **changes}))
    for field in fields:
        assert field in str(refusal.value)


def test_every_combination_gets_a_class_or_a_named_reason() -> None:
    found: set[str] = set()
    switches = product(
        ("swiglu", "gelu"), ("rms", "layer"), ("pre", "post", "both"), ("none", "head", "full"), ("rope", "learned")
    )
    for activation, norm, norm_position, qk_norm, position in switches:
        for window, cap, kv_heads in product((None, 7), (None, 5.0), (1, 2, 4)):
            changes = {
                "activation": activation,
                "norm": norm,
                "norm_position": norm_position,
                "qk_norm": qk_norm,
                "position": position,
                "sliding_window": window,
                "attention_softcap": cap,
                "kv_heads": kv_heads,
            }
            config = Model(**{**BASE, **changes})
            fitting = [architecture for architecture in ARCHITECTURES if not architecture.mismatches(config)]
            if fitting:
                assert architecture_for(config) == fitting[0]
                found.add(fitting[0].name)
            else:
                with pytest.raises(BadInput, match=r"model\.\w+ must be .*, but is "):
                    architecture_for(config)
    with_experts = {"MixtralForCausalLM", "Qwen3MoeForCausalLM", "DeepseekV3ForCausalLM"}
    assert found == {architecture.name for architecture in ARCHITECTURES} - with_experts


@pytest.mark.parametrize(
    ("name", "changes", "reason"),
    [
        ("mixtral", {"capacity_factor": 1.0}, "drops tokens"),
        ("mixtral", {"shared_experts": 1}, "shared experts"),
        ("qwen3 moe", {"gate": "sigmoid"}, "but is sigmoid, without shared experts"),
        ("deepseek v3", {"shared_experts": 0}, "but is sigmoid, without shared experts"),
        ("deepseek v3", {"group_score": "best"}, "groups by their best expert"),
    ],
)
def test_a_mixture_that_no_class_computes_is_refused(name: str, changes: dict[str, Any], reason: str) -> None:
    config = Model(**{**BASE, **SHAPES[name][1], "moe": {**SHAPES[name][1]["moe"], **changes}})
    with pytest.raises(BadInput, match=reason):
        architecture_for(config)


def test_latents_normed_with_another_epsilon_are_refused() -> None:
    with pytest.raises(BadInput, match="norm_epsilon 1e-6, but is set, with another norm_epsilon"):
        architecture_for(shape("deepseek v3").model_copy(update={"norm_epsilon": 1e-5}))


def test_every_supported_class_is_exported_in_the_tests() -> None:
    assert {name for name, _ in SHAPES.values()} == {architecture.name for architecture in ARCHITECTURES}


@pytest.mark.parametrize("name", [name for name in SHAPES if not name.startswith("gpt")])
def test_configuration_is_read_by_versions_4_and_5(name: str) -> None:
    config = shape(name)
    content = configuration(architecture_for(config), config, 304, 32, 0, 1)
    assert content["rope_theta"] == config.rope_theta == 5000.0
    assert content["rope_scaling"] is None
    nested = content["rope_parameters"]
    for rope in [nested] if "rope_theta" in nested else nested.values():
        assert rope["rope_theta"] == 5000.0
        assert rope["rope_type"] == "default"
    assert content["dtype"] == content["torch_dtype"] == "float32"
    assert content["max_position_embeddings"] == 32
    assert content["pad_token_id"] is None
    if config.attention_softcap is not None:
        assert content["_attn_implementation"] == "eager"


OF_NO_CLASS = {
    "46m-a10m": "with a capacity_factor, which drops tokens",
    "deepseek-v2-lite": "softmax, with groups, shared experts, a bias or a weight_scale",
}


@pytest.mark.parametrize("name", OF_NO_CLASS)
def test_a_preset_that_no_class_computes_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(BadInput, match=OF_NO_CLASS[name]):
        architecture_for(Model.model_validate({"preset": name}))


@pytest.mark.parametrize("name", [name for name in PRESETS if name not in OF_NO_CLASS])
def test_every_other_preset_has_a_class_and_the_drawn_model_the_same(name: str) -> None:
    config = Model.model_validate({"preset": name})
    small, vocabulary_size = reduced(config, PRESETS[name].published_vocabulary)
    assert architecture_for(small) == architecture_for(config)
    assert small.hidden_size <= 128
    assert vocabulary_size <= 512


@pytest.mark.parametrize("name", SHAPES)
def test_the_drawn_model_of_a_large_one_is_of_the_same_class(name: str) -> None:
    large = Model(
        **{
            **BASE,
            **{"hidden_size": 1152, "heads": 12, "kv_heads": 4},
            **{key: value for key, value in SHAPES[name][1].items() if key not in ("hidden_size", "kv_heads")},
            **({"kv_heads": 12} if name.startswith("gpt2") else {"kv_heads": 1} if name == "gpt_bigcode" else {}),
            **({"kv_heads": None} if name.startswith("deepseek") else {}),
        }
    )
    small, _ = reduced(large, 304)
    assert Model.model_validate(small.model_dump()) == small
    assert architecture_for(small) == architecture_for(large)
    assert small.hidden_size <= 128
