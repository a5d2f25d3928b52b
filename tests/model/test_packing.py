"""Documents packed into one sequence: none sees another, and each is as if it stood alone."""

from __future__ import annotations

import pytest
import torch
from torch.nn.attention.flex_attention import flex_attention

from stoker.model import attention
from stoker.model.masks import MaskRule, PackedDocuments, block_mask, dense_mask
from tests.model.shapes import LENGTH, SHAPES, VOCABULARY, WITH_EXPERTS, config_of, draw_tokens, model_of, pack

LENGTHS = [[7, 9], [1, 6, 9], [16], [4, 4, 4, 4]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_document_has_no_influence_on_another(shape: str, rows: int, dtype: torch.dtype) -> None:
    model = model_of(config_of(shape), dtype)
    positions, documents = pack(LENGTHS[:rows])
    tokens = draw_tokens(rows, LENGTH)
    before = model(tokens, None, positions, documents)
    changed = tokens.clone()
    changed[documents == 0] = (changed[documents == 0] + 1) % VOCABULARY
    after = model(changed, None, positions, documents)
    others = documents != 0
    if shape in WITH_EXPERTS:  # another number of rows in an expert's product may round otherwise
        assert torch.allclose(after[others], before[others], rtol=0, atol=1e-4 if dtype == torch.float32 else 1e-12)
    else:
        assert torch.equal(after[others], before[others])
    assert not torch.equal(after[~others], before[~others])


@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_do_not_cross_documents(shape: str) -> None:
    model = model_of(config_of(shape, tie_embeddings=False)).eval()  # routers balance whole sequences in training
    positions, documents = pack([[7, 9]])
    tokens = torch.arange(LENGTH)[None]
    targets = tokens.roll(-1, 1).masked_fill(documents == 0, -100)
    model(tokens, targets, positions, documents).loss_sum.backward()
    gradient = model.embedding.weight.grad
    assert gradient is not None
    assert not gradient[:7].any()
    assert gradient[7:LENGTH].any(dim=1).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_packed_losses_equal_those_of_documents_alone(shape: str) -> None:
    model = model_of(config_of(shape))
    positions, documents = pack(LENGTHS)
    tokens, targets = draw_tokens(4, LENGTH), draw_tokens(4, LENGTH, seed=1)
    packed = model(tokens, targets, positions, documents)
    alone = 0.0
    for row, sizes in enumerate(LENGTHS):
        for part, wanted in zip(tokens[row].split(sizes), targets[row].split(sizes), strict=True):
            alone += model(part[None], wanted[None]).loss_sum.item()
    assert packed.loss_sum.item() == pytest.approx(alone, rel=1e-12)


def test_the_numbers_that_name_documents_do_not_matter() -> None:
    model = model_of(config_of("llama"))
    positions, documents = pack([[7, 5, 4]])
    tokens = draw_tokens(1, LENGTH)
    renamed = torch.tensor([3, 9, -1], dtype=torch.int32)[documents.long()]
    assert torch.equal(model(tokens, None, positions, documents), model(tokens, None, positions, renamed))


def test_one_document_in_each_sequence_needs_no_mask() -> None:
    documents = torch.arange(3)[:, None].expand(3, LENGTH)
    assert MaskRule(None, None, False).build(documents, None, LENGTH, torch.device("cpu"), torch.float32) is None
    assert MaskRule(LENGTH, None, False).build(documents, None, LENGTH, torch.device("cpu"), torch.float32) is None


@pytest.mark.parametrize("kv_heads", [1, 3, 6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_documents_one_by_one_equal_a_dense_mask(kv_heads: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    draw = lambda heads: torch.randn(4, LENGTH, heads, 8, generator=generator, dtype=dtype)  # noqa: E731
    q, k, v, wanted = draw(6), draw(kv_heads), draw(kv_heads), draw(6)
    documents = pack(LENGTHS)[1]
    packed = MaskRule(None, None, False).build(documents, None, LENGTH, q.device, dtype)
    assert isinstance(packed, PackedDocuments)
    results = []
    for mask in (packed, dense_mask(documents, LENGTH, None, None, q.device, dtype)):
        leaves = [x.clone().requires_grad_() for x in (q, k, v)]
        mixed = attention.attend(leaves[0], leaves[1], leaves[2], mask, None)
        results.append((mixed.detach(), *torch.autograd.grad(mixed, leaves, wanted)))
    tolerance = 1e-13 if dtype == torch.float64 else 1e-5
    for one_by_one, dense in zip(*results, strict=True):
        assert torch.allclose(one_by_one, dense, rtol=0, atol=tolerance)


def test_document_attention_is_a_sound_operator() -> None:
    """Schema, fake kernels and autograd registration agree with what the operator does."""
    q, k = torch.randn(2, LENGTH, 4, 8, requires_grad=True), torch.randn(2, LENGTH, 2, 8, requires_grad=True)
    starts = torch.zeros(2, LENGTH, dtype=torch.bool)
    starts[:, 0] = starts[1, 5] = True
    operator = torch.ops.stoker.document_attention.default
    torch.library.opcheck(operator, (q, k, k.detach().clone().requires_grad_(), starts))


@pytest.mark.parametrize(("window", "softcap"), [(None, None), (4, None), (None, 1.0), (3, 2.0)])
def test_flex_attention_equals_a_dense_mask(
    window: int | None, softcap: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "_compiled_flex_attention", lambda: flex_attention)
    length = 160  # more than one of its blocks
    documents = pack([[100, 60], [160], [3, 150, 7]])[1]
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(3, length, heads, 16, generator=generator) for heads in (4, 2, 2))
    with torch.no_grad():
        blocks = block_mask(documents, length, window, q.device)
        dense = dense_mask(documents, length, window, None, q.device, q.dtype)
        assert torch.allclose(
            attention.attend(q, k, v, blocks, softcap), attention.attend(q, k, v, dense, softcap), atol=1e-5
        )
