"""Stochastic depth and dropout."""

from __future__ import annotations

import pytest
import torch

from stoker.model.draws import LayerDraws, branch_scales, drop
from tests.model.shapes import LENGTH, config_of, draw_tokens, model_of


def test_draws_belong_to_the_sample_wherever_it_lies() -> None:
    samples = torch.arange(100, 108)
    whole = branch_scales(samples, 0.5, 4, step=7, seed=1)
    order = torch.tensor([5, 0, 3])
    part = branch_scales(samples[order], 0.5, 4, step=7, seed=1)
    for of_all, of_some in zip(whole, part, strict=True):
        assert of_all is not None
        assert of_some is not None
        assert torch.equal(of_all[order], of_some)


def test_layers_are_skipped_more_often_with_depth_and_kept_ones_make_up_for_it() -> None:
    scales = branch_scales(torch.arange(20_000), 0.4, 4, step=1, seed=0)
    for layer, scale in enumerate(scales):
        assert scale is not None
        probability = 0.4 * (layer + 1) / 4
        assert (scale == 0).double().mean().item() == pytest.approx(probability, abs=0.015)
        assert scale.mean().item() == pytest.approx(1.0, abs=0.03)


@pytest.mark.parametrize("change", [{"step": 8}, {"seed": 2}])
def test_another_step_or_seed_draws_anew(change: dict[str, int]) -> None:
    samples = torch.arange(200)
    first = branch_scales(samples, 0.5, 1, **{"step": 7, "seed": 1})[0]
    other = branch_scales(samples, 0.5, 1, **{"step": 7, "seed": 1, **change})[0]
    assert first is not None
    assert other is not None
    assert not torch.equal(first, other)


def test_losses_do_not_depend_on_how_the_batch_is_divided() -> None:
    model = model_of(config_of("llama", layer_drop=0.6)).train()
    tokens, samples = draw_tokens(6, LENGTH), torch.arange(40, 46)
    whole = model(tokens, tokens, samples=samples, step=3, seed=9).token_losses
    for rows in ([0, 1, 2], [5], [4, 3]):
        part = model(tokens[rows], tokens[rows], samples=samples[rows], step=3, seed=9).token_losses
        assert torch.equal(part, whole[rows])
    assert not torch.equal(whole, model(tokens, tokens, samples=samples, step=4, seed=9).token_losses)


def test_a_skipped_layer_is_as_if_it_were_not_there() -> None:
    model = model_of(config_of("geglu-both")).eval()
    block = model.blocks["0"]
    x = torch.randn(2, LENGTH, 12, dtype=torch.float64)
    scale = torch.tensor([0.0, 1.0], dtype=torch.float64)[:, None, None]
    out = block(x, draws=LayerDraws(branch_scale=scale))
    assert torch.equal(out[0], x[0])
    assert torch.allclose(out[1], block(x)[1], rtol=1e-13)


def test_every_parameter_gets_a_gradient_even_when_all_samples_skip_its_layer() -> None:
    model = model_of(config_of("llama", layer_drop=0.99)).train()
    tokens = draw_tokens(1, LENGTH)
    step = next(s for s in range(50) if not branch_scales(torch.tensor([1]), 0.99, 2, s, 0)[1].any())
    model(tokens, tokens, samples=torch.tensor([1]), step=step).loss_sum.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert not model.blocks["1"].attention.query.weight.grad.any()


def test_evaluation_neither_drops_nor_needs_samples() -> None:
    tokens = draw_tokens(2, LENGTH)
    dropping = model_of(config_of("llama", layer_drop=0.5, dropout=0.5)).eval()
    assert torch.equal(dropping(tokens), model_of(config_of("llama")).eval()(tokens))


def test_training_without_sample_numbers_is_refused() -> None:
    with pytest.raises(ValueError, match="samples"):
        model_of(config_of("llama", layer_drop=0.5)).train()(draw_tokens(1, LENGTH))


def test_dropout_belongs_to_step_sample_and_place_wherever_they_lie() -> None:
    model = model_of(config_of("llama", dropout=0.3)).train()
    tokens, samples = draw_tokens(4, LENGTH), torch.arange(7, 11)
    whole = model(tokens, samples=samples, step=2, seed=5)
    torch.manual_seed(1)
    assert torch.equal(model(tokens[2:], samples=samples[2:], step=2, seed=5), whole[2:])
    assert not torch.equal(model(tokens, samples=samples, step=3, seed=5), whole)
    assert not torch.equal(model(tokens, samples=samples + 1, step=2, seed=5), whole)


def test_dropout_drops_its_share_of_every_part_and_scales_the_rest() -> None:
    x = torch.ones(20, LENGTH, 12, dtype=torch.float64)
    numbers = torch.arange(20)[:, None] * 1000 + torch.arange(LENGTH)
    dropped = drop(x, 0.3, numbers, torch.tensor(11))
    assert (dropped == 0).double().mean().item() == pytest.approx(0.3, abs=0.03)
    assert set(dropped.unique().tolist()) == {0.0, 1 / 0.7}
    assert torch.equal(drop(x[:, 3:5], 0.3, numbers[:, 3:5], torch.tensor(11)), dropped[:, 3:5])
    assert not torch.equal(drop(x, 0.3, numbers, torch.tensor(12)), dropped)
