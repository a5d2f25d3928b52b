from __future__ import annotations

import pytest
import torch

from stoker.model import Decoder
from stoker.model import generate as generate_from
from tests.model.shapes import LENGTH, VOCABULARY, config_of, model_of

PROMPT = [3, 1, 4]


def generate(model: Decoder, prompt: list[int], count: int, *args: float, **kwargs: float) -> list[int]:
    def last_logits(seen: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return model(seen, last_only=True)[:, -1]

    return generate_from(last_logits, prompt, count, LENGTH, *args, **kwargs)


def test_temperature_zero_takes_the_likeliest_token_each_time() -> None:
    model = model_of(config_of("llama"))
    ids = list(PROMPT)
    for _ in range(5):
        ids.append(int(model(torch.tensor([ids]))[0, -1].argmax()))
    assert generate(model, PROMPT, 5, temperature=0) == ids[3:]


def test_the_same_seed_gives_the_same_text_and_another_seed_another() -> None:
    model = model_of(config_of("llama", dropout=0.5)).eval()
    texts = [generate(model, PROMPT, 12, temperature=5.0, seed=seed) for seed in (0, 0, 1)]
    assert texts[0] == texts[1] != texts[2]


def test_tokens_come_with_the_probabilities_of_the_softmax() -> None:
    model = model_of(config_of("llama"))
    temperature = 3.0
    wanted = torch.softmax(model(torch.tensor([PROMPT]))[0, -1] / temperature, -1)
    drawn = [generate(model, PROMPT, 1, temperature, seed=seed)[0] for seed in range(1500)]
    shares = torch.bincount(torch.tensor(drawn), minlength=VOCABULARY) / len(drawn)
    assert (shares - wanted).abs().max() < 0.04


def test_generation_leaves_random_state_alone() -> None:
    model = model_of(config_of("llama"))
    before = torch.get_rng_state()
    generate(model, PROMPT, 3)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("shape", ["llama", "gpt"])
def test_text_goes_on_beyond_the_sequence_length(shape: str) -> None:
    model = model_of(config_of(shape))
    text = generate(model, PROMPT, LENGTH + 5, temperature=0)
    assert len(text) == LENGTH + 5
    seen = torch.tensor([(PROMPT + text)[-LENGTH - 1 : -1]])
    assert text[-1] == int(model(seen)[0, -1].argmax())


def test_text_ends_before_the_end_token() -> None:
    model = model_of(config_of("llama"))
    text = generate(model, PROMPT, 10, temperature=5.0, seed=4)
    end = text[4]
    assert generate(model, PROMPT, 10, temperature=5.0, seed=4, eos_id=end) == text[: text.index(end)]


def test_an_empty_prompt_is_refused() -> None:
    with pytest.raises(ValueError, match="beginning-of-text"):
        generate(model_of(config_of("llama")), [], 3)
