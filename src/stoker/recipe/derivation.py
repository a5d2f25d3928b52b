"""From a number of parameters to a whole recipe: shape, vocabulary, tokens, batch, learning rate, with reasons."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from stoker.errors import BadInput
from stoker.recipe import Model
from stoker.recipe.size import parameter_count
from stoker.recipe.tokenizer import SMALLEST_VOCABULARY

_SCALES = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}
_FEWEST_PARAMETERS, _MOST_PARAMETERS = 1e5, 1e12
_TOKENS_PER_PARAMETER = 20
_SMALL_VOCABULARIES = (448, 384, 320, 288)
_SPARE = 1.1


@dataclass(frozen=True)
class Derived:
    """One value and why it is what it is."""

    value: int | float | str | bool | None
    reason: str


@dataclass(frozen=True)
class Derivation:
    """Everything that follows from the wanted size; the names are those of the recipe's fields."""

    model: dict[str, Derived]
    parameters: int
    vocabulary_size: Derived
    tokens: int
    steps: Derived
    sequence_length: Derived
    global_batch_size: Derived
    learning_rate: Derived
    warmup_steps: Derived
    precision: Derived
    checkpoint_every: Derived
    evaluation_every: Derived


def read_amount(text: str, option: str) -> float:
    """`350m`, `1.5b` or `2e9` as a number. Raises `BadInput` that names `option`."""
    found = re.fullmatch(r"\s*([0-9][0-9_,]*(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)\s*([kKmMbBgGtT]?)\s*", text)
    if found is None:
        raise BadInput(f"{option}: expected an amount such as 350m, 1.5b or 2e9, got {text!r}")
    number = float(found[1].replace("_", "").replace(",", "")) * _SCALES[found[2].lower()]
    if not (number > 0 and math.isfinite(number)):
        raise BadInput(f"{option}: expected an amount above zero, got {text!r}")
    return number


def derive(wanted: float, tokens: float | None, supports: Callable[[int], bool] | None = None) -> Derivation:
    """Derive a recipe for about `wanted` parameters, trained on `tokens` tokens (default: 20 for each parameter).

    `supports` says whether a vocabulary of so many entries can be trained on the text; where nothing is known of
    the text, any can. Raises `BadInput` outside 100 thousand to 1 trillion parameters.
    """
    if not _FEWEST_PARAMETERS <= wanted <= _MOST_PARAMETERS:
        raise BadInput(f"--parameters: expected 100k to 1t, got {wanted:g}")
    derived = _supported_vocabulary(_vocabulary(wanted), supports)
    vocabulary = int(str(derived.value))
    model, shape = _shape(wanted, vocabulary)
    count = parameter_count(shape, vocabulary)
    total_tokens = tokens if tokens is not None else _TOKENS_PER_PARAMETER * count.total
    length = _sequence_length(wanted)
    compute = 6 * count.matrix * total_tokens
    batch_tokens = 0.2920 * compute**0.3271
    most = max(1, int(total_tokens // length))
    batch = min(max(8, round(batch_tokens / length / 8) * 8), most)
    steps = math.ceil(total_tokens / (batch * length))
    ratio = total_tokens / count.total
    chinchilla = "Hoffmann et al. 2022 (Chinchilla) find about 20 the best use of a given compute"
    outside = "" if 1e17 <= compute <= 2e19 else " (fitted from 1e17 to 2e19, so an extrapolation here)"
    rate = 0.3118 * compute**-0.1250
    return Derivation(
        model=model,
        parameters=count.total,
        vocabulary_size=derived,
        tokens=round(total_tokens),
        steps=Derived(
            steps, f"{total_tokens:,.0f} tokens, {ratio:.3g} per parameter; {chinchilla}; more tokens still help"
        ),
        sequence_length=Derived(length, "longer for larger models; memory and time of attention grow with it"),
        global_batch_size=Derived(
            batch,
            f"{batch * length:,} tokens; DeepSeek LLM (arXiv:2401.02954, eq. 1): 0.2920 C^0.3271 = "
            f"{batch_tokens:,.0f} tokens at C = {compute:.2g} FLOPs{outside}",
        ),
        learning_rate=Derived(
            float(f"{rate:.2g}"),
            f"DeepSeek LLM (arXiv:2401.02954, eq. 1): 0.3118 C^-0.1250 at C = {compute:.2g}{outside}",
        ),
        warmup_steps=Derived(min(2000, steps // 50), "a fiftieth of the steps, at most the 2,000 of DeepSeek LLM"),
        precision=_precision(wanted),
        checkpoint_every=Derived(max(1, min(1000, steps // 20)), "a twentieth of the steps, at most 1,000"),
        evaluation_every=Derived(max(1, steps // 20), "a twentieth of the steps"),
    )


def _precision(wanted: float) -> Derived:
    if wanted < 1e8:
        return Derived("fp32", "small enough for a processor, where 16-bit products are slow; bf16 on a GPU")
    return Derived("bf16", "computes in bf16 with fp32 weights, for a GPU; fp32 on a processor")


def _vocabulary(wanted: float) -> int:
    for below, size in ((3e6, 2048), (2e7, 4096), (1e8, 8192), (4e8, 16384), (1e9, 32768), (1e10, 65536)):
        if wanted < below:
            return size
    return 131072


def _supported_vocabulary(usual: int, supports: Callable[[int], bool] | None) -> Derived:
    """The usual size, or the largest of a few smaller ones that the text has enough for, with a tenth to spare:
    preparing it leaves some out."""
    if supports is None or supports(round(usual * _SPARE)):
        return Derived(
            usual, "a power of two whose embedding is a small part of the model; larger ones need more text"
        )
    sizes = [usual >> halvings for halvings in range(1, usual.bit_length()) if usual >> halvings >= 512]
    for size in (*sizes, *_SMALL_VOCABULARIES):
        if supports(round(size * _SPARE)):
            return Derived(size, f"less than the usual {usual:,}: the text given supports no {usual:,} entries")
    return Derived(
        SMALLEST_VOCABULARY,
        "the smallest there is: the text given is too little to train a tokenizer on; give more, or a "
        "tokenizer that was trained on other text (tokenizer.path)",
    )


def _sequence_length(wanted: float) -> int:
    for below, length in ((5e6, 256), (5e7, 512), (5e8, 1024), (3e9, 2048)):
        if wanted < below:
            return length
    return 4096


def _shape(wanted: float, vocabulary: int) -> tuple[dict[str, Derived], Model]:
    """The width and depth that come closest to `wanted` parameters at about the wanted ratio of the two."""
    head = 32 if wanted < 5e6 else 64 if wanted < 1e9 else 128
    aspect = 48 if wanted < 1e8 else 64 if wanted < 1e9 else 128
    tied = wanted < 5e8
    multiple = 1 if wanted < 1e7 else 2 if wanted < 1e8 else 4 if wanted < 1e9 else 8
    middle = (wanted * aspect / 12) ** (1 / 3) / head  # a block has about 12 × hidden_size² parameters
    best: tuple[float, Model] | None = None
    for heads in range(multiple, math.ceil(1.5 * middle) + multiple + 1, multiple):
        if heads < middle / 2.5 - multiple:
            continue
        for layers in _likely_layers(heads * head, aspect):
            model = _candidate(heads, head, layers, tied, grouped=wanted >= 1e9)
            total = parameter_count(model, vocabulary).total
            cost = 4 * abs(math.log(total / wanted)) + abs(math.log(model.hidden_size / layers / aspect))
            if best is None or cost < best[0]:
                best = (cost, model)
    assert best is not None
    model = best[1]
    values = {
        "hidden_size": Derived(
            model.hidden_size,
            f"{model.hidden_size / model.layers:.0f} times the layers; matters little (Kaplan et al. 2020)",
        ),
        "layers": Derived(model.layers, "with hidden_size, the nearest to the wanted parameters"),
        "heads": Derived(model.heads, f"heads of {head}" + (f", a multiple of {multiple}" if multiple > 1 else "")),
        "kv_heads": Derived(
            model.kv_heads,
            "as many as heads"
            if model.kv_heads == model.heads
            else "queries in groups (Ainslie et al. 2023): a smaller cache when the model is used",
        ),
        "ffn_hidden_size": Derived(
            model.ffn_hidden_size, "8/3 of hidden_size: with SwiGLU as large as 4 times without (Shazeer 2020)"
        ),
        "tie_embeddings": Derived(
            tied,
            "output and input embeddings are one matrix: otherwise a large part of a small model"
            if tied
            else "at this size a separate output matrix costs little and helps",
        ),
    }
    return values, model


def _likely_layers(hidden: int, aspect: int) -> range:
    centre = hidden / aspect
    return range(max(2, math.floor(centre / 2)), max(4, math.ceil(centre * 2)) + 1)


def _candidate(heads: int, head: int, layers: int, tied: bool, grouped: bool) -> Model:
    hidden = heads * head
    kv = max(d for d in range(1, min(8, heads) + 1) if heads % d == 0) if grouped else heads
    return Model(
        hidden_size=hidden,
        layers=layers,
        heads=heads,
        kv_heads=kv,
        ffn_hidden_size=math.ceil(hidden * 8 / 3 / 64) * 64,
        tie_embeddings=tied,
    )
