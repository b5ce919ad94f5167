"""Windows and downsampled heads against the whole head's matrix, cut and scanned by loops."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache, partial

import pytest
import tiny_models
import torch
from calls_by_hand import plain_call
from torch import Tensor

from attnviz import attention, windows
from attnviz.attention_call import AttentionCall
from attnviz.capture import capture
from attnviz.windows import Blocks, by_largest, window

HEADS, KV_HEADS, QUERIES, KEYS, D_K, D_V, BATCH = 6, 2, 7, 11, 5, 3, 2
WHATS = ("weights", "scores", "logits")
WINDOWS = [
    (slice(None), slice(None)),
    (slice(2, 5), slice(3, 9)),
    (slice(6, 7), slice(0, 1)),
    (slice(0, 3), slice(8, 11)),
    (slice(-2, None), slice(-100, 4)),
]


@pytest.fixture(params=[2**20, 23, 1], autouse=True, ids=["at once", "some rows", "row by row"])
def block(request, monkeypatch):
    """However many rows at once, the numbers are the same."""
    monkeypatch.setattr(windows, "BLOCK_WEIGHTS", request.param)


def random(*sizes: int, seed: int = 2) -> Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed))


def call(**changes) -> AttentionCall:
    fields = {
        "query": random(BATCH, HEADS, QUERIES, D_K, seed=3),
        "key": random(BATCH, KV_HEADS, KEYS, D_K, seed=4),
        "value": random(BATCH, KV_HEADS, KEYS, D_V, seed=5),
        "scale": 0.9,
    }
    return plain_call(**(fields | changes))


SEEN = torch.ones(1, 1, QUERIES, KEYS, dtype=torch.bool).tril(KEYS - QUERIES)
ONE_BLIND = SEEN.clone()
ONE_BLIND[..., 3, :] = False
CALLS = {
    "all seen": {},
    "causal": {"mask": SEEN},
    "sliding window": {"mask": SEEN.triu(2)},
    "a row sees nothing": {"mask": ONE_BLIND},
    "mask of each head": {"mask": random(1, HEADS, QUERIES, KEYS, seed=6) > 0},
    "mask of each sequence": {"mask": (random(BATCH, 1, QUERIES, KEYS, seed=7) > 0) & SEEN},
    "soft cap, bias, sinks": {
        "mask": SEEN,
        "softcap": 1.3,
        "bias": random(BATCH, HEADS, QUERIES, KEYS, seed=8),
        "sinks": random(HEADS, seed=9),
    },
}


def whole(of: AttentionCall, head: int, what: str, batch: int = 0) -> Tensor:
    """The head's matrix by `attention`, NaN where the mask hides a key."""
    values = getattr(attention, what)(of, head, batch)
    mask = attention.mask(of, head, batch)
    return values if mask is None else values.masked_fill(~mask, math.nan)


def same(found: Tensor, expected: Tensor) -> None:
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected, atol=2e-6, rtol=1e-5, equal_nan=True)


def check_windows(of: AttentionCall, whats: tuple[str, ...] = WHATS) -> None:
    for what in whats:
        for head in range(of.heads):
            for batch in range(of.value.shape[0]):
                expected = whole(of, head, what, batch)
                for queries, keys in WINDOWS:
                    found = window(of, head, queries, keys, what, batch)
                    same(found, expected[queries, keys])


@pytest.mark.parametrize("case", CALLS)
def test_a_window_is_cut_from_the_heads_own_matrix(case: str):
    check_windows(call(**CALLS[case]))


def test_weights_are_shares_of_the_row_and_not_of_the_window():
    level = {"query": torch.zeros(1, 1, 2, D_K), "key": torch.zeros(1, 1, 4, D_K)}
    flat = call(**level, value=torch.zeros(1, 1, 4, D_V))
    assert window(flat, 0, keys=slice(1, 3)).tolist() == [[0.25, 0.25], [0.25, 0.25]]


def test_an_empty_window():
    assert window(call(), 0, slice(5, 2), slice(3, 3)).shape == (0, 0)


def test_half_precision_is_computed_in_float32():
    half = {name: getattr(call(), name).half() for name in ("query", "key", "value")}
    check_windows(call(mask=SEEN, **half))


def test_a_models_own_weights():
    weights = random(BATCH, HEADS, QUERIES, KEYS).softmax(-1) * SEEN
    of = call(query=None, key=None, observed_weights=weights)
    same(window(of, 4, slice(2, 6), batch=1), weights[1, 4, 2:6].where(SEEN[0, 0, 2:6], math.nan))
    with pytest.raises(ValueError, match="weights only"):
        window(of, 4, what="scores")


# --- the whole head in few cells


def by_loops(matrix: Tensor, tall: int, wide: int) -> list[list[float]]:
    """The number of largest magnitude of each block, NaN where there is none."""
    cells = []
    for top in range(0, matrix.shape[0], tall):
        cells.append([])
        for left in range(0, matrix.shape[1], wide):
            block = matrix[top : top + tall, left : left + wide].flatten().tolist()
            seen = [value for value in block if not math.isnan(value)]
            cells[-1].append(max(seen, key=abs, default=math.nan))
    return cells


def rows_of(of: AttentionCall, head: int, what: str, queries: slice, batch: int = 0):
    return window(of, head, queries, slice(None), what, batch)


@pytest.mark.parametrize(
    ("cells", "tall", "wide"),
    [(100, 1, 1), (11, 1, 1), (7, 1, 2), (5, 2, 3), (3, 3, 4), (1, 7, 11)],
)
@pytest.mark.parametrize("case", CALLS)
def test_a_cell_is_the_largest_of_its_block(case: str, cells: int, tall: int, wide: int):
    of = call(**CALLS[case])
    for what in WHATS:
        found = by_largest(partial(rows_of, of, 4, what, batch=1), of.n, cells)
        expected = by_loops(whole(of, 4, what, batch=1), tall, wide)
        same(found.values, torch.tensor(expected))
        assert max(found.values.shape) <= cells
        for spans, tokens, size in ((found.queries, QUERIES, tall), (found.keys, KEYS, wide)):
            assert [at for span in spans for at in span] == list(range(tokens))
            assert [span[0] for span in spans] == list(range(0, tokens, size))
        assert found.values.shape == (len(found.queries), len(found.keys))


def test_two_by_two_of_three_by_three_by_hand():
    rows = torch.tensor([[1.0, -5.0, math.nan], [2.0, 4.0, math.nan], [-3.0, 0.0, -1.0]])
    found = by_largest(lambda queries: rows[queries], (3, 3), 2)
    same(found.values, torch.tensor([[-5.0, math.nan], [-3.0, -1.0]]))
    assert found.queries == found.keys == ((0, 1), (2,))
    assert isinstance(found, Blocks)


def test_a_weight_of_0_is_not_hidden():
    rows = torch.tensor([[0.0, math.nan], [0.0, math.nan]])
    same(by_largest(lambda queries: rows[queries], (2, 2), 1).values, torch.tensor([[0.0]]))


# --- real models


@cache
def calls_of(family: str) -> tuple[AttentionCall, ...]:
    model = tiny_models.build(family, "eager")
    dice = torch.Generator().manual_seed(4)
    inputs = {"input_ids": torch.randint(3, 53, (1, 11), generator=dice)}
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = torch.randint(3, 53, (1, 7), generator=dice)
    return capture(model, inputs).calls


@pytest.mark.parametrize("family", ["gpt2", "llama", "gemma2", "gpt_oss", "t5", "bart"])
def test_heads_of_real_models(family: str):
    calls = calls_of(family)
    if family in ("t5", "bart"):
        calls = [call for call in calls if call.kind == "cross"]
        assert calls[0].n == (7, 11)
    for of in (calls[0], calls[-1]):
        for head in (0, of.heads - 1):
            for what in WHATS:
                expected = whole(of, head, what)
                same(window(of, head, slice(2, 6), slice(1, 8), what), expected[2:6, 1:8])
                tall, wide = (-(-tokens // 5) for tokens in of.n)
                cells = by_largest(partial(rows_of, of, head, what), of.n, 5).values
                same(cells, torch.tensor(by_loops(expected, tall, wide)))


def test_sequences_of_a_batch_stay_apart():
    of = call()
    other = replace(of, query=of.query.flip(0), key=of.key.flip(0), value=of.value.flip(0))
    same(window(of, 2, batch=1), window(other, 2, batch=0))
    assert not torch.allclose(window(of, 2, batch=1), window(of, 2))
