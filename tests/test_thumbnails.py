"""Thumbnails against maxima of each head's whole matrix, block by block in plain Python."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from calls_by_hand import plain_call

from attnviz import attention, thumbnails, weight_blocks
from attnviz.attention_call import AttentionCall

HEADS, KV_HEADS, D_K, D_V, BATCH = 6, 2, 7, 11, 3


@pytest.fixture(params=[2**20, 100, 1], autouse=True, ids=["one block", "blocks", "rows"])
def block(request, monkeypatch):
    """Whatever the block of weights, the pictures are the same."""
    monkeypatch.setattr(weight_blocks, "BLOCK_WEIGHTS", request.param)
    monkeypatch.setattr(weight_blocks, "BLOCK_ROWS", 5 if request.param == 100 else 128)


def call(queries: int, keys: int, **changes) -> AttentionCall:
    dice = torch.Generator().manual_seed(1)
    fields = {
        "query": torch.randn(BATCH, HEADS, queries, D_K, generator=dice),
        "key": torch.randn(BATCH, KV_HEADS, keys, D_K, generator=dice),
        "value": torch.randn(BATCH, KV_HEADS, keys, D_V, generator=dice),
        "scale": 0.9,
    }
    return plain_call(**(fields | changes))


def block_by_block(of: AttentionCall, head: int, side: int, batch: int) -> np.ndarray:
    weights = attention.weights(of, head, batch).numpy()
    visible = np.ones(weights.shape, bool)
    if of.mask is not None:
        visible = of.mask.expand(BATCH, HEADS, *of.n)[batch, head].numpy()
    if of.observed_weights is not None:
        visible = weights > 0
    down, across = (min(count, side) for count in of.n)
    cells = np.full((down, across), np.nan)
    for query, key in np.ndindex(weights.shape):
        # The last block that begins at or before the token.
        row = max(r for r in range(down) if r * of.n[0] // down <= query)
        column = max(c for c in range(across) if c * of.n[1] // across <= key)
        if visible[query, key]:
            cells[row, column] = np.fmax(cells[row, column], weights[query, key])
    return cells


def causal(n: int, window: int) -> torch.Tensor:
    return torch.ones(1, 1, n, n, dtype=torch.bool).tril().triu(1 - window)


def left_padded(n: int) -> torch.Tensor:
    mask = torch.ones(BATCH, 1, n, n, dtype=torch.bool).tril()
    mask[1, :, :, :4] = False
    return mask


CALLS = {
    "all visible": (call(13, 13), 5),
    "more keys than queries": (call(3, 17), 5),
    "causal": (call(13, 13, mask=causal(13, 13)), 5),
    "a window": (call(23, 23, mask=causal(23, 3)), 7),
    "padded": (call(13, 13, mask=left_padded(13)), 5),
    "one mask a head": (
        call(
            *(13, 13),
            mask=torch.rand(1, HEADS, 13, 13, generator=torch.Generator().manual_seed(2)) > 0.8,
        ),
        5,
    ),
    "few tokens": (call(5, 5, mask=causal(5, 5)), 8),
    "the model's own": (
        call(
            *(13, 13),
            query=None,
            key=None,
            observed_weights=torch.eye(13).roll(-1, 1).expand(BATCH, HEADS, 13, 13),
        ),
        5,
    ),
}


@pytest.mark.parametrize("of", CALLS.values(), ids=CALLS)
def test_each_cell_is_the_largest_weight_of_its_block(of: tuple[AttentionCall, int]):
    one, side = of
    for batch in range(BATCH):
        found = thumbnails.thumbnails(one, side, batch).numpy()
        assert found.shape == (HEADS, *(min(count, side) for count in one.n))
        for head in range(HEADS):
            expected = block_by_block(one, head, side, batch)
            np.testing.assert_allclose(found[head], expected, atol=1e-6)


def test_two_by_two_by_hand():
    logits = torch.tensor([[0.0, 0.0], [np.log(3.0), 0.0]])
    one = plain_call(
        query=logits[None, None],
        key=torch.eye(2)[None, None],
        value=torch.eye(2)[None, None],
        scale=1.0,
        mask=torch.ones(1, 1, 2, 2, dtype=torch.bool).tril(),
    )
    found = thumbnails.thumbnails(one, 8)[0]
    np.testing.assert_allclose(found.numpy(), [[1, np.nan], [0.75, 0.25]], atol=1e-6)
    np.testing.assert_allclose(thumbnails.thumbnails(one, 1)[0].numpy(), [[1]], atol=1e-6)


@pytest.mark.parametrize(
    ("heads", "side"), [(1, 40), (72, 40), (144, 40), (200, 33), (1920, 10), (9000, 8)]
)
def test_the_more_heads_the_smaller(heads: int, side: int):
    assert thumbnails.side_for(heads) == side
    if side > thumbnails.SMALLEST:
        assert heads * side**2 <= thumbnails.CELLS
