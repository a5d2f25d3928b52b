"""Mixtures of experts against the plain formulation, and what must not change with the division of a batch."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from stoker.model import Decoder, initialise
from stoker.model.decoder import Shared
from stoker.model.experts import Experts
from stoker.model.mixture_of_experts import MixtureOfExperts
from stoker.model.router import Routing, WholeSequences, with_loss
from stoker.recipe import MixtureOfExperts as Settings
from stoker.recipe import Model
from tests.model.plain_decoder import cross_entropies, document_logits
from tests.model.shapes import LENGTH, SHAPES, VOCABULARY, WITH_EXPERTS, config_of, draw_tokens, model_of

SWITCH: dict[str, Any] = {"experts": 4, "experts_per_token": 1}
ROWS = 4


def with_experts(base: str = "llama", **settings: Any) -> Model:
    return config_of(base, moe={**(SHAPES[base].get("moe") or SWITCH), **settings})


def gradients(model: Decoder) -> dict[str, Tensor]:
    found = {}
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        found[name] = parameter.grad.clone()
    model.zero_grad()
    return found


def assert_equal_gradients(got: dict[str, Tensor], wanted: dict[str, Tensor], tolerance: float = 1e-10) -> None:
    total = math.sqrt(sum(float(gradient.square().sum()) for gradient in wanted.values()))
    for name, gradient in got.items():
        assert float((gradient - wanted[name]).norm()) <= tolerance * max(
            float(wanted[name].norm()), 1e-3 * total
        ), name


VARIANTS = [
    *(with_experts(name) for name in WITH_EXPERTS),
    with_experts("switch", capacity_factor=1.0, auxiliary_loss=0.5, z_loss=0.2),
    with_experts("mixtral", capacity_factor=0.6, auxiliary_loss=0.5),
    with_experts("deepseek-v3", capacity_factor=1.25, auxiliary_loss=0.5, z_loss=0.1),
    with_experts("deepseek-v2", auxiliary_loss=2.0),
]


@pytest.mark.parametrize("config", VARIANTS, ids=range(len(VARIANTS)))
def test_losses_and_gradients_with_the_routers_terms_equal_the_plain_formulation(config: Model) -> None:
    config = config.model_copy(update={"mtp_depth": 0})
    model = model_of(config)
    tokens, targets = draw_tokens(2, LENGTH), draw_tokens(2, LENGTH, seed=1)
    losses = model(tokens, targets, loss_scale=0.3)
    losses.loss_sum.backward()

    state = {name: p.detach().clone().requires_grad_() for name, p in model.named_parameters()}
    state |= dict(model.named_buffers())
    terms: list[Tensor] = []
    main = torch.zeros((), dtype=torch.float64)
    for row in range(2):
        logits = document_logits(state, config, tokens[row].tolist(), terms)
        main = main + 0.3 * cross_entropies(logits, targets[row].tolist()).sum()
    (main + 0.3 * sum(terms)).backward()
    assert losses.loss_sum.item() == pytest.approx(main.item(), rel=1e-12)
    assert_equal_gradients(gradients(model), {name: s.grad for name, s in state.items() if s.grad is not None})
    statistics = [mixture.take_statistics() for mixture in model.mixtures().values()]
    moe = config.moe
    assert moe is not None
    counted = sum(float(moe.auxiliary_loss * s.auxiliary_loss + moe.z_loss * s.z_loss) for s in statistics)
    assert counted == pytest.approx(float(sum(terms).detach()), rel=1e-10)


@given(st.data())
@settings(max_examples=25)
def test_any_drawn_mixture_equals_the_plain_formulation(data: st.DataObject) -> None:
    one_of = lambda *values: data.draw(st.sampled_from(values))  # noqa: E731
    groups, per_group = one_of(1, 2, 3), one_of(2, 3)
    chosen = data.draw(st.integers(1, groups))
    k = data.draw(st.integers(1, min(4, chosen * per_group)))
    config = config_of(
        "llama",
        activation=one_of("swiglu", "geglu"),
        norm_position=one_of("pre", "post", "both"),
        moe={
            "experts": groups * per_group,
            "experts_per_token": k,
            "groups": groups,
            "groups_per_token": chosen,
            "group_score": one_of("best", "best_two"),
            "gate": one_of("softmax", "sigmoid"),
            "normalise_weights": k > 1 and one_of(True, False),
            "shared_experts": one_of(0, 1, 2),
            "first_dense_layers": one_of(0, 1),
            "bias_update_rate": one_of(0.0, 0.1),
            "capacity_factor": one_of(None, 0.3, 1.0, 2.0),
            "weight_scale": one_of(1.0, 1.7),
        },
    )
    model = model_of(config)
    tokens = draw_tokens(1, data.draw(st.integers(1, 9)))
    wanted = document_logits(model.state_dict(), config, tokens[0].tolist())
    assert torch.allclose(model(tokens)[0], wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("config", VARIANTS, ids=range(len(VARIANTS)))
@pytest.mark.parametrize("parts", [2, 4])
def test_gradients_do_not_depend_on_the_division_of_the_batch(config: Model, parts: int) -> None:
    """The routers' terms too: NVIDIA/Megatron-LM#3672."""
    model = model_of(config)
    tokens, targets = draw_tokens(ROWS, LENGTH), draw_tokens(ROWS, LENGTH, seed=1)
    scale = 1.0 / tokens.numel()
    model(tokens, targets, loss_scale=scale).loss_sum.backward()
    whole = gradients(model)
    counted = {name: mixture.take_statistics() for name, mixture in model.mixtures().items()}
    for part in range(parts):
        rows = slice(part * ROWS // parts, (part + 1) * ROWS // parts)
        model(tokens[rows], targets[rows], loss_scale=scale).loss_sum.backward()
    assert_equal_gradients(gradients(model), whole, 1e-12)
    for name, mixture in model.mixtures().items():
        for in_parts, at_once in zip(mixture.take_statistics(), counted[name], strict=True):
            assert torch.allclose(in_parts, at_once, rtol=1e-12)


def test_the_auxiliary_loss_of_the_batch_is_the_coefficient_times_the_mean_over_tokens() -> None:
    """With even shares of the gate the loss of every token is 1, and its gradient that of the definition."""
    config = with_experts("switch", auxiliary_loss=1.0)
    model = model_of(config)
    router = model.blocks["0"].feed_forward.router
    torch.nn.init.zeros_(router.weight)
    tokens = draw_tokens(2, LENGTH)
    model(tokens, tokens, loss_scale=1 / tokens.numel())
    statistics = model.blocks["0"].feed_forward.take_statistics()
    assert float(statistics.auxiliary_loss / statistics.tokens) == pytest.approx(1.0)
    assert float(statistics.entropy / statistics.tokens) == pytest.approx(math.log(4))
    assert float(statistics.z_loss / statistics.tokens) == pytest.approx(math.log(4) ** 2)
    assert statistics.tokens_per_expert.tolist() == [32, 0, 0, 0]  # of equal scores the first


def test_the_routers_terms_act_in_training_alone() -> None:
    config = with_experts("switch", auxiliary_loss=5.0, z_loss=5.0)
    plain = model_of(with_experts("switch", auxiliary_loss=0.0))
    model = model_of(config)
    tokens = draw_tokens(1, LENGTH)
    for one in (model, plain):
        one.eval()(tokens, tokens).loss_sum.backward()
    assert_equal_gradients(gradients(model), gradients(plain), 0.0)
    for one in (model, plain):
        one.train()(tokens).sum().backward()
    assert_equal_gradients(gradients(model), gradients(plain), 0.0)
    model.take = [mixture.take_statistics() for mixture in model.mixtures().values()]
    assert all(int(statistics.tokens) == LENGTH for statistics in model.take)
    assert all(int(mixture.take_statistics().tokens) == 0 for mixture in model.mixtures().values())


def test_a_part_of_the_model_that_does_not_end_it_has_the_routers_terms_too() -> None:
    config = with_experts("switch", auxiliary_loss=0.5)
    tokens, targets = draw_tokens(2, LENGTH), draw_tokens(2, LENGTH, seed=1)
    whole, first, last = (model_of(config) for _ in range(3))
    whole(tokens, targets, loss_scale=0.1).loss_sum.backward()
    first.keep(0, 1)
    last.keep(1, 2)
    between = first(tokens, loss_scale=0.1)
    last(tokens, targets, hidden=between, loss_scale=0.1).loss_sum.backward()
    wanted = gradients(whole)
    assert_equal_gradients(gradients(first) | gradients(last), wanted)


@pytest.mark.parametrize("name", [*WITH_EXPERTS, "capacity"])
def test_recomputation_in_backward_uses_the_same_experts_and_counts_once(name: str) -> None:
    config = with_experts("mixtral", capacity_factor=0.8) if name == "capacity" else config_of(name)
    model, again = model_of(config), model_of(config)
    tokens, targets = draw_tokens(2, LENGTH), draw_tokens(2, LENGTH, seed=1)
    for block in again.blocks.values():
        recompute(block)
    for one in (model, again):
        one(tokens, targets, loss_scale=0.1).loss_sum.backward()
    assert_equal_gradients(gradients(again), gradients(model), 1e-13)
    for got, wanted in zip(again.mixtures().values(), model.mixtures().values(), strict=True):
        assert (
            got.take_statistics().tokens_per_expert.tolist() == wanted.take_statistics().tokens_per_expert.tolist()
        )


def recompute(block: torch.nn.Module) -> None:
    plain = block.forward
    block.forward = lambda *arguments: checkpoint(plain, *arguments, use_reentrant=False)  # type: ignore[assignment]


def test_recomputation_keeps_the_choice_even_when_the_scores_have_changed() -> None:
    """A kernel that rounds otherwise the second time, driven to the extreme: the router's weight is another."""
    config = with_experts("switch")
    mixture = model_of(config).blocks["0"].feed_forward
    x, routing = torch.randn(1, LENGTH, 12, dtype=torch.float64), Routing()
    first = mixture.router(x, routing, WholeSequences()).experts
    with torch.no_grad():
        mixture.router.weight.neg_()
    assert torch.equal(mixture.router(x, routing, WholeSequences()).experts, first)
    assert not torch.equal(mixture.router(x, Routing(), WholeSequences()).experts, first)


def test_capacity_is_per_sequence_first_come_first_served() -> None:
    config = with_experts("switch", capacity_factor=0.5)
    mixture = model_of(config).blocks["0"].feed_forward
    torch.nn.init.zeros_(mixture.router.weight)  # everyone to expert 0
    x = torch.randn(3, LENGTH, 12, dtype=torch.float64)
    room = math.ceil(0.5 * 1 * LENGTH / 4)
    output = mixture(x)
    assert (output[:, :room] != 0).any(-1).all()
    assert not output[:, room:].any()
    assert int(mixture.take_statistics().dropped) == 3 * (LENGTH - room)


@pytest.mark.parametrize(
    ("factor", "k", "length", "experts", "capacity"),
    [(1.0, 1, 16, 4, 4), (1.25, 2, 16, 8, 5), (1.1, 1, 10, 11, 1), (0.01, 1, 16, 4, 1), (1.1, 2, 10, 2, 11)],
)
def test_capacity_is_rounded_up_exactly(factor: float, k: int, length: int, experts: int, capacity: int) -> None:
    settings = Settings(experts=experts, experts_per_token=k, capacity_factor=factor)
    assert settings.capacity(length) == capacity


class Halves(WholeSequences):
    """The first or second half of each sequence, with the choices of the other known beforehand."""

    def __init__(self, whole: Tensor, experts: int, second: bool) -> None:
        self.chosen, self.experts, self.second = whole, experts, second

    def length(self, at_hand: int) -> int:
        return 2 * at_hand

    def gather_choices(self, chosen_BLK: Tensor) -> Tensor:
        assert torch.equal(self.own(self.chosen), chosen_BLK)
        return self.chosen

    def own(self, x_BLK: Tensor) -> Tensor:
        return x_BLK.chunk(2, dim=1)[self.second]

    def sum(self, x: Tensor) -> Tensor:
        return torch.stack([(self.chosen == e).sum((1, 2)) for e in range(self.experts)], dim=1)


@pytest.mark.parametrize("name", WITH_EXPERTS)
def test_tokens_of_a_sequence_in_several_places_add_up_to_the_whole(name: str) -> None:
    config = with_experts(name, capacity_factor=0.8, auxiliary_loss=0.7)
    assert config.moe is not None
    mixture = model_of(config).blocks["1"].feed_forward
    x = torch.randn(2, LENGTH, 12, dtype=torch.float64)
    scale = torch.tensor(0.1, dtype=torch.float64)
    routing = Routing(scale)
    whole = mixture(x, routing)
    whole.square().sum().backward()
    wanted = {name: p.grad.clone() for name, p in mixture.named_parameters()}
    counted = mixture.take_statistics()
    mixture.zero_grad()
    chosen = routing.chosen[mixture.router]
    halves = []
    for second in (False, True):
        mixture.sequences = Halves(chosen, config.moe.experts, second)
        halves.append(mixture(x.chunk(2, dim=1)[second], Routing(scale)))
        halves[-1].square().sum().backward()
    assert torch.allclose(torch.cat(halves, dim=1), whole, rtol=1e-12)
    for name, parameter in mixture.named_parameters():
        assert torch.allclose(parameter.grad, wanted[name], rtol=1e-10, atol=1e-12), name
    for got, at_once in zip(mixture.take_statistics(), counted, strict=True):
        assert torch.allclose(got, at_once)


def test_another_dispatch_takes_sorted_rows_and_gives_back_theirs() -> None:
    mixture = model_of(config_of("mixtral")).blocks["0"].feed_forward
    x = torch.randn(2, LENGTH, 12, dtype=torch.float64)
    wanted = mixture(x)

    def one_by_one(experts: Experts, rows: Tensor, counts: Tensor) -> Tensor:
        assert int(counts.sum()) == len(rows)
        results = []
        for expert, part in enumerate(rows.split(counts.tolist())):
            only = torch.zeros_like(counts)
            only[expert] = len(part)
            results.append(experts(part, only))
        return torch.cat(results)

    mixture.dispatch = one_by_one
    assert torch.allclose(mixture(x), wanted, rtol=1e-12)


def test_an_expert_without_tokens_has_a_gradient_of_zeros() -> None:
    model = model_of(with_experts("switch", experts=40))
    tokens = draw_tokens(1, 3)
    model(tokens, tokens).loss_sum.backward()
    experts = model.blocks["0"].feed_forward.experts
    used = model.blocks["0"].feed_forward.take_statistics().tokens_per_expert > 0
    for parameter in (experts.gate, experts.up, experts.down):
        assert parameter.grad is not None
        assert not parameter.grad[~used].any()
        assert parameter.grad[used].flatten(1).any(dim=1).all()
    rows = torch.zeros(0, 12, dtype=torch.float64, requires_grad=True)
    experts.zero_grad()
    experts(rows, torch.zeros(40, dtype=torch.int64)).sum().backward()
    assert all(p.grad is not None and not p.grad.any() for p in experts.parameters())


def test_the_selection_bias_moves_towards_even_load() -> None:
    config = with_experts("deepseek-v3", bias_update_rate=0.01, first_dense_layers=0)
    model = model_of(config)
    mixture = model.blocks["0"].feed_forward
    tokens = draw_tokens(16, LENGTH)
    spread = []
    for _ in range(200):
        with torch.no_grad():
            model(tokens, tokens)
        counts = mixture.take_statistics().tokens_per_expert
        spread.append(float(counts.double().std() / counts.double().mean()))
        before = mixture.router.selection_bias.clone()
        mixture.update_selection_bias(counts)
        moved = mixture.router.selection_bias - before
        assert (moved[counts > counts.double().mean()] < 0).all()
        assert (moved[counts < counts.double().mean()] > 0).all()
        assert moved.abs().max() <= 0.0100001
    assert sum(spread[-20:]) < 0.5 * sum(spread[:20])
    initialise(model, config, 1)
    assert not mixture.router.selection_bias.any()


def test_the_bias_chooses_but_does_not_weigh() -> None:
    model = model_of(with_experts("deepseek-v3", groups=1, groups_per_token=None))
    mixture = model.blocks["1"].feed_forward
    mixture.router.selection_bias.copy_(torch.arange(8) * 100.0)
    choice = mixture.router(torch.randn(1, 5, 12, dtype=torch.float64), None, WholeSequences())
    assert choice.experts.tolist() == [[[7, 6, 5]] * 5]
    assert torch.allclose(choice.weights.sum(-1), torch.tensor(2.5, dtype=torch.float64))


def test_the_bias_is_saved_and_stays_fp32() -> None:
    model = model_of(config_of("deepseek-v3"), torch.float32)
    name = "blocks.1.feed_forward.router.selection_bias"
    before = model.state_dict()[name].clone()
    model.to(torch.bfloat16)
    assert model.state_dict()[name].dtype == torch.float32
    assert torch.equal(model.state_dict()[name], before)
    assert model.blocks["1"].feed_forward.router.weight.dtype == torch.bfloat16
    model.to("meta")
    assert model.state_dict()[name].dtype == torch.float32
    assert not list(Decoder(config_of("mixtral"), VOCABULARY, LENGTH).buffers())


@pytest.mark.parametrize("how", ["autocast", "pure"])
def test_the_router_computes_in_fp32_whatever_the_rest_computes_in(how: str) -> None:
    mixture = model_of(config_of("switch"), torch.float32).blocks["0"].feed_forward
    x = torch.randn(2, LENGTH, 12)
    if how == "pure":
        mixture, x = mixture.to(torch.bfloat16), x.bfloat16()
    exact = x.double() @ mixture.router.weight.detach().double().T
    with torch.autocast("cpu", torch.bfloat16, enabled=how == "autocast"):
        choice = mixture.router(x, None, WholeSequences())
        output = mixture(x)
    assert choice.weights.dtype == torch.float32
    wanted = torch.softmax(exact, -1).amax(-1, keepdim=True)
    assert torch.allclose(choice.weights.double(), wanted, rtol=1e-6)
    assert output.dtype == torch.bfloat16


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_products_in_one_kernel_equal_those_expert_by_expert(dtype: torch.dtype) -> None:
    from stoker.model.experts import _Groups, _GroupsInOneKernel

    counts = torch.tensor([8, 0, 16, 3])
    x, y = torch.randn(27, 16).to(dtype), torch.randn(27, 8).to(dtype)
    weight = torch.randn(4, 8, 16).to(dtype)
    plain, fused = _Groups(counts), _GroupsInOneKernel(counts)
    for got, wanted in (
        (fused.times(x, weight.mT), plain.times(x, weight.mT)),
        (fused.times(y, weight), plain.times(y, weight)),
        (fused.outer(y, x, weight), plain.outer(y, x, weight)),
    ):
        assert torch.allclose(got, wanted, rtol=0.02, atol=1e-4 if dtype == torch.float32 else 0.1)


def test_a_loss_inside_acts_whatever_the_outer_gradient_is() -> None:
    x, y = (torch.ones(3, requires_grad=True) for _ in range(2))
    (7 * with_loss(x, (2 * y).sum())).sum().backward()
    assert x.grad is not None
    assert y.grad is not None
    assert x.grad.tolist() == [7.0] * 3
    assert y.grad.tolist() == [2.0] * 3


def test_blocks_alone_need_nothing_from_the_model() -> None:
    block = model_of(config_of("deepseek-v3")).blocks["1"]
    x = torch.randn(1, 4, 12, dtype=torch.float64)
    assert torch.equal(block(x), block(x, Shared()))
    assert isinstance(block.feed_forward, MixtureOfExperts)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"experts_per_token": 5}, "use at most 4"),
        ({"groups": 3}, "use one of 1, 2, 4 groups"),
        ({"groups": 2, "groups_per_token": 3}, "use at most 2"),
        ({"experts_per_token": 3, "groups": 2, "groups_per_token": 1}, "raise groups_per_token"),
        ({"normalise_weights": True}, "raise experts_per_token"),
        ({"first_dense_layers": 2}, "lower it"),
    ],
)
def test_settings_that_cannot_be_are_refused_with_a_remedy(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        with_experts("switch", **settings)


@pytest.mark.parametrize(("name", "value"), [("activation", "gelu"), ("ffn_bias", True)])
def test_what_experts_do_not_know_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{name}.* experts"):
        config_of("switch", **{name: value})
