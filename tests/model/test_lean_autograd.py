"""The operations that keep less for backward compute what their plain formulas do, and keep what they say."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from stoker.model.lean_autograd import gated, rms_norm, rotated


def plain_norm(x: Tensor, weight: Tensor) -> Tensor:
    return F.rms_norm(x.to(weight.dtype), weight.shape, weight, 1e-5)


def plain_swiglu(gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(gate) * up


def plain_geglu(gate: Tensor, up: Tensor) -> Tensor:
    return F.gelu(gate, approximate="tanh") * up


def plain_rotation(x: Tensor) -> Tensor:
    """As a product of complex numbers."""
    cosine, sine = angles(x)
    first, second = x.to(cosine.dtype).chunk(2, dim=-1)
    turned = torch.complex(first, second) * torch.complex(cosine, sine)
    return torch.cat((turned.real, turned.imag), dim=-1).to(x.dtype)


def angles(x: Tensor) -> tuple[Tensor, Tensor]:
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    angle = torch.linspace(-3, 3, x.shape[1] * x.shape[3] // 2, dtype=dtype).view(1, x.shape[1], 1, -1)
    return angle.cos(), angle.sin()


class Operation(NamedTuple):
    lean: Callable[..., Tensor]
    plain: Callable[..., Tensor]
    shapes: tuple[tuple[int, ...], ...]
    kept: tuple[tuple[int, ...], ...]
    """Shapes of what is kept besides parameters and angles."""


WIDE = (3, 5, 2, 8)
OPERATIONS = {
    "norm": Operation(lambda x, w: rms_norm(x, w, 1e-5), plain_norm, ((3, 5, 8), (8,)), ((3, 5, 8), (3, 5, 1))),
    "head norm": Operation(lambda x, w: rms_norm(x, w, 1e-5), plain_norm, (WIDE, (8,)), (WIDE, (3, 5, 2, 1))),
    "swiglu": Operation(lambda g, u: gated(g, u, True), plain_swiglu, ((3, 5, 8),) * 2, ((3, 5, 8),) * 2),
    "geglu": Operation(lambda g, u: gated(g, u, False), plain_geglu, ((3, 5, 8),) * 2, ((3, 5, 8),) * 2),
    "rotation": Operation(lambda x: rotated(x, *angles(x)), plain_rotation, (WIDE,), ()),
}


def draw(shapes: tuple[tuple[int, ...], ...], dtype: torch.dtype) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    drawn = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    return [x.to(dtype).requires_grad_() for x in drawn]


def differentiated(function: Callable[..., Tensor], inputs: list[Tensor]) -> list[Tensor]:
    """The result and the inputs' gradients, where the result is used twice."""
    result = function(*inputs)
    wave = torch.linspace(-1, 2, result.numel(), dtype=torch.float64).view(result.shape).to(result.dtype)
    gradients = torch.autograd.grad((result * wave + result.square()).sum(), inputs)
    return [result.detach(), *gradients]


@pytest.mark.parametrize("name", OPERATIONS)
def test_gradients_are_those_of_finite_differences(name: str) -> None:
    operation = OPERATIONS[name]
    assert torch.autograd.gradcheck(operation.lean, draw(operation.shapes, torch.float64))


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-14), (torch.float32, 1e-6), (torch.bfloat16, 0.02)]
)
def test_results_and_gradients_are_the_plain_formulas(name: str, dtype: torch.dtype, tolerance: float) -> None:
    operation = OPERATIONS[name]
    inputs = draw(operation.shapes, dtype)
    for got, wanted in zip(
        differentiated(operation.lean, inputs), differentiated(operation.plain, inputs), strict=True
    ):
        assert got.dtype == wanted.dtype
        torch.testing.assert_close(got, wanted, rtol=tolerance, atol=tolerance * float(wanted.abs().max()))


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_gradient_may_be_laid_out_otherwise(name: str) -> None:
    operation = OPERATIONS[name]
    inputs = draw(operation.shapes, torch.float64)
    for got, wanted in zip(
        differentiated(lambda *x: operation.lean(*x).transpose(0, 1).contiguous(), inputs),
        differentiated(lambda *x: operation.plain(*x).transpose(0, 1).contiguous(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(got, wanted)


@pytest.mark.parametrize("name", OPERATIONS)
def test_nothing_is_tracked_without_gradients(name: str) -> None:
    operation = OPERATIONS[name]
    inputs = draw(operation.shapes, torch.float32)
    with torch.no_grad():
        result = operation.lean(*inputs)
    assert not result.requires_grad
    assert torch.equal(result, operation.lean(*inputs))


@pytest.mark.parametrize("name", OPERATIONS)
def test_only_what_is_said_is_kept(name: str) -> None:
    operation = OPERATIONS[name]
    inputs, kept = draw(operation.shapes, torch.float32), []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.shape), lambda x: x):
        operation.lean(*inputs)
    free = {(8,), *(tuple(x.shape) for x in angles(torch.empty(WIDE)))}
    assert sorted(tuple(shape) for shape in kept if tuple(shape) not in free) == sorted(operation.kept)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_16_bit_input_is_normed_in_the_precision_of_the_weight(dtype: torch.dtype) -> None:
    (x,), (weight,) = draw(((3, 5, 8),), dtype), draw(((8,),), torch.float32)
    with torch.autocast("cpu", dtype):
        lean, plain = (differentiated(norm, [x, weight]) for norm in (OPERATIONS["norm"].lean, plain_norm))
    assert [t.dtype for t in lean] == [torch.float32, dtype, torch.float32]
    for got, wanted in zip(lean, plain, strict=True):
        rounding = 1e-5 if got.dtype == torch.float32 else 0.01
        torch.testing.assert_close(got, wanted, rtol=rounding, atol=rounding)


def test_a_frozen_weight_and_a_fixed_input_are_left_alone() -> None:
    x, weight = draw(((3, 5, 8), (8,)), torch.float64)
    for inputs in ((x.detach(), weight), (x, weight.detach())):
        of = [t for t in inputs if t.requires_grad]
        (got,) = torch.autograd.grad(rms_norm(*inputs, 1e-5).square().sum(), of)
        (wanted,) = torch.autograd.grad(plain_norm(*inputs).square().sum(), of)
        torch.testing.assert_close(got, wanted)


@pytest.mark.parametrize("name", OPERATIONS)
def test_the_compiler_sees_the_plain_formula(name: str) -> None:
    operation, graphs = OPERATIONS[name], []

    def keep(graph: torch.fx.GraphModule, _: list[Tensor]) -> Callable[..., object]:
        graphs.append(graph.code)
        return graph.forward

    inputs = draw(operation.shapes, torch.float64)
    compiled = torch.compile(operation.lean, backend=keep, fullgraph=True)
    torch.testing.assert_close(compiled(*inputs), operation.plain(*inputs))
    assert len(graphs) == 1
    assert "autograd" not in graphs[0]
