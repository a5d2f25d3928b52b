"""Whether transformers computes what the model computes: logits and gradients, side by side.

Weights close to their first values hide mistakes (a wrong order of query rows looks like rounding), so besides
the real weights the same architecture is compared with weights drawn anew, small and large, with norms and
biases drawn too.

Training keeps documents in one sequence apart; transformers knows no such mask. A sequence is one document
here, where both agree.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stoker.counter_random import key_of
from stoker.durable_files import write_json
from stoker.errors import StokerError
from stoker.model.decoder import Decoder
from stoker.model.huggingface.architectures import Architecture
from stoker.model.huggingface.configuration import configuration
from stoker.model.huggingface.library import transformers_library
from stoker.model.huggingface.weights import converted, in_memory
from stoker.recipe import LatentAttention, MixtureOfExperts, Model

TOLERANCE = 1e-5
"""Largest root mean square of a difference, relative to that of what is compared."""
DRAWN_STDS = (0.02, 0.2)
_FLOPS = 4e12
_LOGITS = 2**27
_ATTENTION = 2**28
_DRAWN_TOKENS = 1024
_DRAWN_HIDDEN = 64


@dataclass(frozen=True)
class Parity:
    """Relative root mean square differences, and the tokens they were measured over."""

    logits: float
    """With the real weights, read from the written folder."""
    drawn_logits: dict[str, float]
    """With weights drawn anew, by their standard deviation."""
    drawn_gradients: dict[str, float]
    """Gradients of the loss for all our parameters together, by standard deviation of the weights."""
    tokens: int
    drawn_tokens: int


def check_parity(folder: Path, architecture: Architecture, model: Decoder) -> Parity:
    """Load `folder` through transformers on the CPU in fp32 and compare it with `model`.

    The input is the full sequence length and longer than the sliding window, as far as it can be computed in
    about a minute; weights are drawn for a model of the same architecture in small sizes. Raises `StokerError` when
    something differs by more than `TOLERANCE`.
    """
    logits, tokens = _real(folder, architecture, model)
    drawn_logits, drawn_gradients, drawn_tokens = {}, {}, 0
    config, vocabulary_size = reduced(model.config, model.vocabulary_size)
    for std in DRAWN_STDS:
        result = _drawn(architecture, config, vocabulary_size, model.sequence_length, std)
        drawn_logits[str(std)], drawn_gradients[str(std)], drawn_tokens = result
    return Parity(logits, drawn_logits, drawn_gradients, tokens, drawn_tokens)


def reduced(config: Model, vocabulary_size: int) -> tuple[Model, int]:
    """The same architecture in sizes at which weights of 0.2 leave the softmax of attention unsaturated.

    In a saturated one rounding grows beyond any tolerance. How heads share keys, and how their width relates
    to the hidden size, stays; the window is narrowed, so that many tokens lie beyond it. Small sizes stay.
    """
    changes: dict[str, Any] = {"dropout": 0.0, "layer_drop": 0.0, "z_loss": 0.0, "mtp_depth": 0}
    if config.sliding_window is not None:
        changes["sliding_window"] = min(config.sliding_window, 24)
    if config.hidden_size > _DRAWN_HIDDEN or config.layers > 4:
        group = config.heads // config.key_value_heads
        kv_heads = min(config.key_value_heads, 4 if group == 1 else 2)
        heads = kv_heads * min(group, 4)
        head_size = min(config.size_of_head, 16 if heads <= 4 else 8)
        hidden_size = heads * head_size
        if config.size_of_head * config.heads != config.hidden_size:
            hidden_size += heads if config.hidden_size % config.heads == 0 else 1
        changes |= {
            "layers": min(config.layers, 3),
            "heads": heads,
            "kv_heads": kv_heads,
            "head_size": head_size,
            "hidden_size": hidden_size,
            "ffn_hidden_size": min(config.ffn_hidden_size, 160),
        }
        if config.moe is not None:
            changes["moe"] = _fewer_experts(config.moe)
        if config.latent_attention is not None:
            changes |= {"kv_heads": None, "head_size": None, "heads": min(config.heads, 4), "hidden_size": 64}
            changes["latent_attention"] = _smaller_latents(config.latent_attention)
    return config.model_copy(update=changes), min(vocabulary_size, 512)


def _fewer_experts(moe: MixtureOfExperts) -> MixtureOfExperts:
    groups = min(moe.groups, 4)
    chosen = min(moe.chosen_groups, 2) if moe.chosen_groups < moe.groups else groups
    experts = groups * min(moe.experts // moe.groups, 8 // groups if groups < 4 else 3)
    return moe.model_copy(
        update={
            "experts": experts,
            "experts_per_token": min(moe.experts_per_token, 2, experts),
            "expert_ffn_hidden_size": min(moe.expert_ffn_hidden_size or 48, 48),
            "first_dense_layers": min(moe.first_dense_layers, 1),
            "groups": groups,
            "groups_per_token": chosen,
        }
    )


def _smaller_latents(latent: LatentAttention) -> LatentAttention:
    return latent.model_copy(
        update={
            "kv_rank": min(latent.kv_rank, 24),
            "query_rank": None if latent.query_rank is None else min(latent.query_rank, 32),
            "nope_head_size": min(latent.nope_head_size, 8),
            "rope_head_size": min(latent.rope_head_size, 4),
            "value_head_size": min(latent.value_head_size, 8),
        }
    )


def _real(folder: Path, architecture: Architecture, model: Decoder) -> tuple[float, int]:
    theirs = _loaded(folder)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    tokens = _tokens(model.vocabulary_size, _length(model.config, model, parameters))
    was_training = model.training
    try:
        with torch.no_grad():
            ours = model.eval()(tokens)
            difference = _relative(theirs(input_ids=tokens, use_cache=False).logits, ours)
    finally:
        model.train(was_training)
    _require(difference, f"logits of {architecture.name} with the trained weights", "they are")
    return difference, tokens.shape[1]


def _drawn(
    architecture: Architecture, config: Model, vocabulary_size: int, sequence_length: int, std: float
) -> tuple[float, float, int]:
    """Relative differences of logits and of gradients with weights drawn anew, and the tokens read."""
    ours = Decoder(config, vocabulary_size, sequence_length).eval()
    draw_weights(ours, std)
    parameters = sum(parameter.numel() for parameter in ours.parameters())
    tokens = _tokens(vocabulary_size, _length(config, ours, parameters, _DRAWN_TOKENS))
    theirs = _built(configuration(architecture, config, vocabulary_size, sequence_length, None, None))
    leaves = {name: value.detach().clone().requires_grad_() for name, value in ours.named_parameters()}
    inputs = leaves | {name: buffer.detach() for name, buffer in ours.named_buffers()}
    names = [name for name, _ in theirs.named_parameters()]
    renamed = in_memory(converted(architecture, config, inputs), names)
    _require_same_names(architecture, theirs, renamed, config.tie_embeddings)

    our_logits = ours(tokens)
    their_logits = torch.func.functional_call(theirs, renamed, (), {"input_ids": tokens, "use_cache": False}).logits
    weights = f"weights of standard deviation {std}"
    logits = _relative(their_logits, our_logits)
    _require(logits, f"logits of {architecture.name} with {weights}", "they are")
    torch.autograd.backward([_loss(our_logits, tokens), _loss(their_logits, tokens)])
    gradients, worst = _gradient_difference(ours, leaves)
    _require(gradients, f"gradients of {architecture.name} with {weights}", f"most at {worst}, they are")
    return logits, gradients, tokens.shape[1]


def draw_weights(model: nn.Module, std: float) -> None:
    """Fill every parameter with N(0, std²), norms with 1 + N(0, 0.25²): nothing is left at a constant."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            generator = torch.Generator().manual_seed(key_of(0, "parity", name) >> 1)
            drawn = torch.randn(parameter.shape, generator=generator)
            is_norm = parameter.dim() == 1 and name.endswith(".weight")
            parameter.copy_(1 + 0.25 * drawn if is_norm else std * drawn)
        for name, buffer in model.named_buffers():
            generator = torch.Generator().manual_seed(key_of(0, "parity", name) >> 1)
            buffer.copy_(0.1 * torch.randn(buffer.shape, generator=generator))


def _length(config: Model, model: Decoder, parameters: int, most: int = 2**31) -> int:
    """Tokens that can be afforded: the whole sequence, or as much of it as stays within the bounds."""
    wanted = model.sequence_length
    if config.sliding_window is not None and config.position != "learned":
        wanted = max(wanted, 2 * config.sliding_window)
    bounds = (
        most,
        math.isqrt(_ATTENTION // config.heads),
        _LOGITS // model.vocabulary_size,
        int(_FLOPS / (4 * parameters)),
    )
    return min(wanted, max(16, min(bounds)))


def _tokens(vocabulary_size: int, length: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(vocabulary_size, (1, length), generator=generator)


def _loss(logits: Tensor, tokens: Tensor) -> Tensor:
    return F.cross_entropy(logits[0, :-1], tokens[0, 1:])


def _relative(theirs: Tensor, ours: Tensor) -> float:
    """Root mean square of the difference over that of ours; infinite when either is not finite."""
    theirs, ours = theirs.detach().double(), ours.detach().double()
    size, difference = ours.norm(), (theirs - ours).norm()
    if not bool(torch.isfinite(difference)):
        return math.inf
    return float(difference / size) if size > 0 else float(difference)


def _gradient_difference(ours: nn.Module, leaves: Mapping[str, Tensor]) -> tuple[float, str]:
    """Relative difference over all parameters together, and the parameter that adds most to it."""
    size, differences = 0.0, {}
    for name, parameter in ours.named_parameters():
        assert parameter.grad is not None
        theirs = leaves[name].grad
        theirs = torch.zeros_like(parameter) if theirs is None else theirs
        size += float(parameter.grad.double().square().sum())
        differences[name] = float((theirs.double() - parameter.grad.double()).square().sum())
    return math.sqrt(sum(differences.values()) / size), max(differences, key=lambda name: differences[name])


def _require(difference: float, what: str, where: str) -> None:
    if not difference <= TOLERANCE:
        raise StokerError(
            f"{what} differ from the model's own: {where} {difference:.1e} apart (relative root mean square; "
            f"at most {TOLERANCE:.0e} is rounding). Nothing was exported. If the installed transformers is newer "
            "than what this Stoker was tested with, install an earlier one and export again; report it otherwise"
        )


def _require_same_names(
    architecture: Architecture, theirs: nn.Module, renamed: Mapping[str, Tensor], tied: bool
) -> None:
    expected = {name: tuple(parameter.shape) for name, parameter in theirs.named_parameters(remove_duplicate=True)}
    expected |= {n: tuple(b.shape) for n, b in theirs.named_buffers() if n.endswith(".e_score_correction_bias")}
    expected.pop("lm_head.weight", None) if tied else None
    given = {name: tuple(tensor.shape) for name, tensor in renamed.items()}
    if expected != given:
        wrong = sorted(name for name in expected.keys() | given.keys() if expected.get(name) != given.get(name))
        raise StokerError(
            f"{architecture.name} of the installed transformers has other weights than are exported: "
            f"{', '.join(wrong[:5])}. Nothing was exported; install transformers 4.57 or 5.24 and export again"
        )


def _loaded(folder: Path) -> nn.Module:
    """The model in `folder` as a user loads it, refusing weights that are missing or left over."""
    library = transformers_library()
    model, found = library.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, output_loading_info=True, local_files_only=True
    )
    wrong = {kind: sorted(map(str, found.get(kind) or ())) for kind in ("missing_keys", "unexpected_keys")}
    if any(wrong.values()):
        raise StokerError(
            f"transformers reads the exported weights otherwise than they were written: {wrong}. "
            "Nothing was exported"
        )
    return model.eval()  # type: ignore[no-any-return]


def _built(content: dict[str, Any]) -> nn.Module:
    """A model from a config.json, which is read from a file as a user's is."""
    library = transformers_library()
    with tempfile.TemporaryDirectory() as folder:
        write_json(Path(folder) / "config.json", content)
        config = library.AutoConfig.from_pretrained(folder)
    model = library.AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32)
    return model.eval()  # type: ignore[no-any-return]
