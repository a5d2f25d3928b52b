"""Every class that is supported is loaded by transformers and computes the same; a mistake is caught."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from stoker.errors import BadInput, MissingExtra, StokerError
from stoker.model import Decoder, initialise
from stoker.model.huggingface import ExportReport, export, export_model, parity, weights
from stoker.model.huggingface.architectures import Architecture
from stoker.model.huggingface.parity import draw_weights
from stoker.recipe import Model
from tests.model.huggingface.shapes import SHAPES, shape

VOCABULARY, LENGTH = 304, 32


def decoder(config: Model, std: float | None = 0.2, vocabulary_size: int = VOCABULARY) -> Decoder:
    """A model with weights of standard deviation `std`, or its first ones when None."""
    model = Decoder(config, vocabulary_size, LENGTH).eval()
    initialise(model, config, 1) if std is None else draw_weights(model, std)
    return model


def written(name: str, tokenizer: Path, folder: Path, std: float | None = 0.2, **options: Any) -> ExportReport:
    """Export the small model called `name`."""
    config = shape(name)
    return export_model(decoder(config, std), config, tokenizer, folder, bos_id=0, eos_id=1, **options)


@pytest.mark.parametrize("name", SHAPES)
def test_transformers_computes_the_same(name: str, tokenizer_path: Path, tmp_path: Path) -> None:
    report = written(name, tokenizer_path, tmp_path / "export")
    assert report.architecture == SHAPES[name][0]
    figures = [report.parity.logits, *report.parity.drawn_logits.values(), *report.parity.drawn_gradients.values()]
    assert max(figures) < 2e-6
    assert report.parity.tokens == LENGTH

    model = decoder(shape(name))
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "export").eval()
    assert theirs.dtype == torch.float32
    assert theirs.config.vocab_size == VOCABULARY
    assert theirs.get_input_embeddings().weight.shape[0] == VOCABULARY
    assert theirs.get_output_embeddings().weight.shape[0] == VOCABULARY
    tokens = torch.randint(VOCABULARY, (2, LENGTH), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        torch.testing.assert_close(theirs(tokens).logits, model(tokens), rtol=1e-4, atol=1e-4)


def test_cached_generation_equals_ours(tokenizer_path: Path, tmp_path: Path) -> None:
    written("mistral", tokenizer_path, tmp_path / "export")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "export")
    tokens = torch.tensor([[5, 9, 2, 30]])
    made = theirs.generate(tokens, max_new_tokens=20, do_sample=False, eos_token_id=None, pad_token_id=0)
    with torch.no_grad():
        ours = decoder(shape("mistral"))(made[:, :-1]).argmax(-1)
    assert made[0, 4:].tolist() == ours[0, 3:].tolist()


Conversion = Callable[[Architecture, Model, Mapping[str, Tensor]], dict[str, Tensor]]
RIGHT: Conversion = weights.converted


def _rows_reordered(architecture: Architecture, config: Model, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Query and key rows as if neighbours were rotated together, the other convention of rope."""
    tensors = RIGHT(architecture, config, state)
    K = config.size_of_head
    order = torch.arange(K).view(2, K // 2).t().reshape(-1)
    for name in tensors:
        if "q_proj.weight" in name or "k_proj.weight" in name:
            tensors[name] = tensors[name].view(-1, K, config.hidden_size)[:, order].flatten(0, 1)
    return tensors


def _gate_and_up_swapped(
    architecture: Architecture, config: Model, state: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    tensors = RIGHT(architecture, config, state)
    for name in [name for name in tensors if ".gate_proj." in name]:
        other = name.replace("gate", "up")
        tensors[name], tensors[other] = tensors[other], tensors[name]
    return tensors


def _bias_lost(architecture: Architecture, config: Model, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    tensors = RIGHT(architecture, config, state)
    return {name: tensor * 0 if name.endswith("v_proj.bias") else tensor for name, tensor in tensors.items()}


def _norms_swapped(architecture: Architecture, config: Model, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    tensors = RIGHT(architecture, config, state)
    for name in list(tensors):
        if name.endswith("input_layernorm.weight"):
            other = name.replace("input_layernorm", "post_attention_layernorm")
            tensors[name], tensors[other] = tensors[other], tensors[name]
    return tensors


@pytest.mark.parametrize("fault", [_rows_reordered, _gate_and_up_swapped, _bias_lost, _norms_swapped])
@pytest.mark.parametrize("std", [None, 0.2], ids=["first weights", "moved weights"])
def test_wrong_conversion_is_caught(
    fault: Conversion, std: float | None, tokenizer_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "converted", fault)
    monkeypatch.setattr(parity, "converted", fault)
    with pytest.raises(StokerError, match=r"(logits|gradients) of LlamaForCausalLM .* differ"):
        written("llama biases", tokenizer_path, tmp_path / "export", std)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("fault", [_bias_lost, _norms_swapped])
def test_drawn_weights_catch_what_first_weights_hide(
    fault: Conversion, tokenizer_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = shape("llama biases")
    model = decoder(config, std=None)
    monkeypatch.setattr(export, "converted", fault)
    written_tensors = fault(Architecture("", "", biases_together=()), config, dict(model.state_dict()))
    right = RIGHT(Architecture("", "", biases_together=()), config, dict(model.state_dict()))
    assert all(torch.equal(written_tensors[name], right[name]) for name in right)
    monkeypatch.setattr(parity, "converted", fault)
    with pytest.raises(StokerError, match="weights of standard deviation"):
        export_model(model, config, tokenizer_path, tmp_path / "export", bos_id=0, eos_id=1)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("llama", {"rope_theta": 1e4, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}),
        ("llama", {"rms_norm_eps": 1e-3}),
        ("mistral", {"sliding_window": 8}),
        ("mistral", {"sliding_window": 6}),
        ("arcee", {"hidden_act": "gelu"}),
        ("gemma2", {"attn_logit_softcapping": None}),
        ("gemma2", {"final_logit_softcapping": None}),
    ],
)
def test_wrong_configuration_is_caught(
    name: str, wrong: dict[str, Any], tokenizer_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (export, parity):
        right = module.configuration
        changed = lambda *given, right=right: {**right(*given), **wrong}  # noqa: E731
        monkeypatch.setattr(module, "configuration", changed)
    with pytest.raises(StokerError, match="differ from the model's own"):
        written(name, tokenizer_path, tmp_path / "export")
    assert list(tmp_path.iterdir()) == []


def test_missing_tensor_is_caught(tokenizer_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def without(architecture: Architecture, config: Model, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {k: v for k, v in RIGHT(architecture, config, state).items() if k != "model.norm.weight"}

    monkeypatch.setattr(export, "converted", without)
    with pytest.raises(StokerError, match=r"missing_keys.*model\.norm\.weight"):
        written("llama", tokenizer_path, tmp_path / "export")


def test_large_weights_are_split_and_read_back(tokenizer_path: Path, tmp_path: Path) -> None:
    report = written("llama", tokenizer_path, tmp_path / "export", shard_bytes=20_000)
    shards = [file for file in report.files if file.startswith("model-")]
    assert len(shards) > 3
    index = json.loads((tmp_path / "export" / "model.safetensors.index.json").read_text())
    assert set(index["weight_map"].values()) == set(shards)
    assert report.parity.logits < 2e-6


def test_equal_exports_have_equal_bytes(tokenizer_path: Path, tmp_path: Path) -> None:
    for place in ("first", "second"):
        written("gemma2", tokenizer_path, tmp_path / place)
    first, second = ({f.name: f.read_bytes() for f in (tmp_path / p).iterdir()} for p in ("first", "second"))
    assert first == second


def test_whoever_may_read_one_file_may_read_all(tokenizer_path: Path, tmp_path: Path) -> None:
    written("llama", tokenizer_path, tmp_path / "export", shard_bytes=20_000)
    assert len({path.stat().st_mode for path in (tmp_path / "export").iterdir()}) == 1


def test_an_earlier_export_is_replaced(tokenizer_path: Path, tmp_path: Path) -> None:
    written("llama", tokenizer_path, tmp_path / "export", shard_bytes=20_000)
    report = written("llama tied", tokenizer_path, tmp_path / "export")
    assert sorted(path.name for path in (tmp_path / "export").iterdir()) == sorted(report.files)
    assert [path.name for path in tmp_path.iterdir()] == ["export"]


def test_an_earlier_export_outlives_a_refusal(
    tokenizer_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written("llama", tokenizer_path, tmp_path / "export")
    before = {f.name: f.read_bytes() for f in (tmp_path / "export").iterdir()}
    monkeypatch.setattr(export, "converted", _gate_and_up_swapped)
    with pytest.raises(StokerError):
        written("llama", tokenizer_path, tmp_path / "export")
    assert {f.name: f.read_bytes() for f in (tmp_path / "export").iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["export"]


def test_other_files_are_never_lost(tokenizer_path: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(BadInput, match=r"thesis\.txt.*name another folder"):
        written("llama", tokenizer_path, tmp_path)
    written("llama", tokenizer_path, tmp_path / "export")
    (tmp_path / "export" / "notes.txt").write_text("mine")
    with pytest.raises(BadInput, match=r"notes\.txt"):
        written("llama", tokenizer_path, tmp_path / "export")


def test_a_file_in_the_place_of_the_folder_is_refused(tokenizer_path: Path, tmp_path: Path) -> None:
    (tmp_path / "export").write_text("a file")
    with pytest.raises(BadInput, match="not a folder"):
        written("llama", tokenizer_path, tmp_path / "export")


def test_weights_that_are_not_finite_are_refused(tokenizer_path: Path, tmp_path: Path) -> None:
    model = decoder(shape("llama"))
    with torch.no_grad():
        model.norm.weight[0] = float("nan")
    with pytest.raises(StokerError, match=r"not finite.*norm\.weight"):
        export_model(model, shape("llama"), tokenizer_path, tmp_path / "export", bos_id=0, eos_id=1)
    assert list(tmp_path.iterdir()) == []


def test_without_transformers_the_extra_is_named(
    tokenizer_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtra, match=r"stoker\[export\]"):
        written("llama", tokenizer_path, tmp_path / "export")


def test_the_report_says_how_it_was_checked(tokenizer_path: Path, tmp_path: Path) -> None:
    report = written("llama", tokenizer_path, tmp_path / "export")
    assert json.loads(json.dumps(report.as_json()))["parity"]["tokens"] == LENGTH
    assert "LlamaForCausalLM" in report.as_text()
    kept = json.loads((tmp_path / "export" / "stoker-export.json").read_text())
    assert kept["versions"]["transformers"] == transformers.__version__
    assert str(tmp_path) not in json.dumps(kept)
